#include "runtime/status_board.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/executor.h"
#include "base/memory_info.h"

namespace farhop::runtime {
namespace {

constexpr std::chrono::seconds kTick{1};
constexpr size_t kSamples = 11;  // ten seconds
constexpr int kBacklog = 16;

double secondsBetween(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double>(to - from).count(); }

std::string hostName() {
  char host[256] = {};
  return ::gethostname(host, sizeof(host) - 1) == 0 ? host : "unknown";
}

}  // namespace

StatusBoard::StatusBoard(const LaunchContract& contract) : contract_(contract) {}

void StatusBoard::setOnEnter(std::function<void(const ProcessStatus&)> onEnter) {
  std::lock_guard lock(mutex_);
  onEnter_ = std::move(onEnter);
}

void StatusBoard::enter(ProcessState state) {
  std::function<void(const ProcessStatus&)> onEnter;
  {
    std::lock_guard lock(mutex_);
    if (state <= state_) return;
    state_ = state;
    const double now = secondsBetween(begin_, Clock::now());
    if (state == ProcessState::kConnecting) gateSeconds_ = now;
    if (state == ProcessState::kReady) readySeconds_ = now;
    onEnter = onEnter_;
  }
  if (onEnter) onEnter(status());
}

void StatusBoard::beginEpoch(int64_t epoch) {
  {
    std::lock_guard lock(mutex_);
    epoch_ = epoch;
  }
  enter(ProcessState::kTraining);
}

void StatusBoard::tick() {
  const Sample sample{Clock::now(), batches_.load(std::memory_order_relaxed)};
  std::lock_guard lock(mutex_);
  samples_.push_back(sample);
  if (samples_.size() > kSamples) samples_.pop_front();
}

ProcessStatus StatusBoard::status() const {
  ProcessStatus status;
  status.jobId = contract_.jobId;
  status.machine = contract_.machine;
  status.proc = contract_.proc;
  status.numMachines = contract_.numMachines;
  status.procsPerMachine = contract_.procsPerMachine;
  status.pid = ::getpid();
  status.host = hostName();
  status.residentBytes = residentBytes();
  status.peakBytes = peakResidentBytes();
  status.batches = batches_.load(std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  status.upSeconds = secondsBetween(begin_, now);
  std::lock_guard lock(mutex_);
  status.state = state_;
  status.gateSeconds = gateSeconds_;
  status.readySeconds = readySeconds_;
  status.epoch = epoch_;
  // The youngest sample may be a moment old: a rate over less than a tick would jump.
  if (!samples_.empty() && now - samples_.front().at >= kTick / 2) {
    status.batchesPerSecond =
        static_cast<double>(status.batches - samples_.front().batches) / secondsBetween(samples_.front().at, now);
  }
  return status;
}

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::open(const LaunchContract& contract, StatusBoard* board) {
  if (contract.jobId.empty()) return std::unique_ptr<StatusServer>();
  std::unique_ptr<StatusServer> server(new StatusServer(board));
  FARHOP_ASSIGN_OR_RETURN(server->listener_, listenAbstract(statusSocketName(contract), kBacklog));
  server->wakeup_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->wakeup_.valid()) return errnoStatus("eventfd", errno);
  board->tick();
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  return server;
}

StatusServer::~StatusServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
  thread_.join();
}

void StatusServer::run() {
  setThreadName("farhop/status");
  for (Deadline next = Deadline::after(kTick);;) {
    pollfd entries[] = {{wakeup_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (::poll(entries, 2, next.remainingMs()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    if (entries[1].revents != 0) answerAll();
    if (!next.expired()) continue;
    board_->tick();
    next = Deadline::after(kTick);
  }
}

void StatusServer::answerAll() {
  for (int answered = 0; answered < kBacklog; ++answered) {
    const FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // Without descriptors the listener stays readable: not in a busy loop.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        pollfd entry{wakeup_.get(), POLLIN, 0};
        (void)::poll(&entry, 1, 100);
      }
      return;
    }
    if (!sameUser(fd.get())) continue;
    // Far less than a socket's buffer holds: it is there whole, or the connection is of no use.
    const std::string text = encodeProcessStatus(board_->status());
    (void)!::send(fd.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

}  // namespace farhop::runtime
