// The agent's trainers: started one after the other, their output, their ends, and the end of everything.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent.h"
#include "launcher/job_processes.h"
#include "launcher/trainer_environment.h"
#include "runtime/job_news.h"

namespace farhop::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kKillTime{5'000};      // SIGKILL takes effect at once unless the kernel itself is stuck
constexpr milliseconds kFarewellTime{10'000};
// Linux lets an unprivileged process have pipes of at most 1 MiB.
constexpr size_t kMaxDrainBytes = size_t{1} << 20;

// On which a trainer hears of the others' ends, and of the launcher's.
struct SocketPair {
  FileDescriptor ours, theirs;
};

absl::StatusOr<SocketPair> makeSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) return errnoStatus("socketpair", errno);
  return SocketPair{FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

}  // namespace

// One at a time: the next when the program of the one before runs, so that a machine's file system is not asked for all
// at once and the first that cannot be executed is the last that was tried.
void Agent::startNext() {
  if (!starting_ || nextTrainer_ >= trainers_.size()) return;
  Trainer& trainer = trainers_[nextTrainer_++];
  if (const absl::Status started = startTrainer(trainer); !started.ok()) refuse(started);
}

absl::Status Agent::startTrainer(Trainer& trainer) {
  FARHOP_ASSIGN_OR_RETURN(runtime::LaunchContract contract, contractOf(orders_, trainer.proc));
  // The processes of a single machine meet at no store.
  if (orders_.machine == 0 && orders_.machines > 1) {
    contract.masterFd = ports_.listeners[static_cast<size_t>(trainer.proc)].get();
  }
  FARHOP_ASSIGN_OR_RETURN(SocketPair news, makeSocketPair());
  contract.launcherFd = news.theirs.get();
  SpawnRequest request;
  request.program = program_;
  request.arguments = orders_.command;
  request.environment = trainerEnvironment(orders_.environment, contract, static_cast<int>(orders_.attempt));
  request.workingDirectory = orders_.workingDirectory;
  for (const int fd : {contract.masterFd, contract.launcherFd}) {
    if (fd >= 0) request.inheritedFds.push_back(fd);
  }
  request.openFiles = openFiles_;
  FARHOP_ASSIGN_OR_RETURN(Process process, Process::begin(request));
  watcher_.tellTrainer(process.pid());
  // The trainer's own from here on: when it ends, connecting to its port is refused rather than left waiting.
  if (orders_.machine == 0) ports_.listeners[static_cast<size_t>(trainer.proc)].reset();
  trainer.pipes[0] = process.takeOut();
  trainer.pipes[1] = process.takeErr();
  trainer.news = std::move(news.ours);
  trainer.process.emplace(std::move(process));
  return absl::OkStatus();
}

void Agent::takeExec(Trainer& trainer) {
  if (!trainer.process) return;
  const std::optional<absl::Status> result = trainer.process->execResult();
  if (!result) return;
  trainer.executed = true;
  if (!result->ok()) {
    trainer.ended = true;
    refuse(annotate(*result, absl::StrCat("starting machine ", orders_.machine, " process ", trainer.proc)));
    return;
  }
  stream_.send(FrameKind::kStarted, encode(TrainerStarted{static_cast<uint32_t>(trainer.proc),
                                                          static_cast<uint32_t>(trainer.process->pid())}));
  startNext();
}

void Agent::refuse(const absl::Status& status) {
  starting_ = false;
  stream_.send(FrameKind::kRefused, encodeRefusal(status));
}

void Agent::takeEnd(Trainer& trainer) {
  const std::optional<ProcessEnd> end = trainer.process->end();
  if (!end) return;
  // What it wrote comes before its end, whatever the launcher's window: that is at most what pipes hold.
  drain(trainer);
  trainer.ended = true;
  stream_.send(FrameKind::kEnded, encode(TrainerEnded{static_cast<uint32_t>(trainer.proc), end->signaled,
                                                      static_cast<uint32_t>(end->code)}));
}

void Agent::takeSaid(Trainer& trainer) {
  char bytes[runtime::kMaxJobNewsBytes];
  const ssize_t n = ::recv(trainer.news.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n > 0) {
    const std::string message(bytes, static_cast<size_t>(n));
    stream_.send(FrameKind::kSaid, encode(TrainerSaid{static_cast<uint32_t>(trainer.proc), message}));
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    trainer.news.reset();
  }
}

size_t Agent::pump(Trainer& trainer, int stream, size_t limit) {
  FileDescriptor& pipe = trainer.pipes[stream];
  if (!pipe.valid()) return 0;
  TrainerOutput output{static_cast<uint32_t>(trainer.proc), static_cast<uint8_t>(stream), std::string()};
  output.bytes.resize(std::min(limit, kMaxOutputFrameBytes));
  ssize_t n = 0;
  do {
    n = ::read(pipe.get(), output.bytes.data(), output.bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
  if (n <= 0) pipe.reset();
  output.bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  stream_.send(FrameKind::kOutput, encode(output));
  return output.bytes.size();
}

void Agent::drain(Trainer& trainer) {
  for (int stream = 0; stream < 2; ++stream) {
    for (size_t total = 0; total < kMaxDrainBytes;) {
      const size_t bytes = pump(trainer, stream, kMaxOutputFrameBytes);
      if (bytes == 0) break;
      total += bytes;
    }
  }
}

bool Agent::pipesOpen() const {
  return std::any_of(trainers_.begin(), trainers_.end(),
                     [](const Trainer& t) { return t.pipes[0].valid() || t.pipes[1].valid(); });
}

// Leaders that ended may have left others in their groups, and those may have left their groups.
bool Agent::killAll() {
  for (const Trainer& trainer : trainers_) {
    if (trainer.process) trainer.process->signalGroup(SIGKILL);
  }
  const Deadline deadline = Deadline::after(kKillTime);
  for (Trainer& trainer : trainers_) {
    if (trainer.process) trainer.process->reap(deadline);
  }
  return killChildren(deadline);
}

void Agent::finish() {
  std::vector<pid_t> pids;
  for (const Trainer& trainer : trainers_) {
    if (trainer.process) pids.push_back(trainer.process->pid());
  }
  const bool allGone = killAll();
  // A trainer that was killed while libfabric's shm provider was in use leaves 16 MB and more.
  removeFilesOfDead(pids);
  for (Trainer& trainer : trainers_) drain(trainer);
  stream_.send(FrameKind::kDone, encodeNumber(allGone ? 0 : 1));
  const Deadline deadline = Deadline::after(kFarewellTime);
  while (stream_.pending() && !deadline.expired() && stream_.writeSome().ok()) {
    pollfd entry{stream_.outFd(), POLLOUT, 0};
    ::poll(&entry, 1, std::min(deadline.remainingMs(), 100));
  }
}

}  // namespace farhop::launcher
