#include "runtime/launcher_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/log.h"

namespace farhop::runtime {
namespace {

int socketOption(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LauncherWatch>> LauncherWatch::open(const LaunchContract& contract,
                                                                   FailureMonitor* monitor,
                                                                   const LauncherDoubt& doubt) {
  if (contract.launcherFd < 0) return std::unique_ptr<LauncherWatch>();
  if (socketOption(contract.launcherFd, SO_DOMAIN) != AF_UNIX ||
      socketOption(contract.launcherFd, SO_TYPE) != SOCK_SEQPACKET) {
    // A wrapper between launcher and trainer may close what it does not know.
    FARHOP_LOG(WARNING) << kEnvLauncherFd << "=" << contract.launcherFd
                        << " is no socket of a launcher: closed on the way to this process? A process that dies before "
                           "any other has met it is missed at the start's deadline only";
    return std::unique_ptr<LauncherWatch>();
  }
  std::unique_ptr<LauncherWatch> watch(new LauncherWatch(contract, monitor, doubt));
  FARHOP_RETURN_IF_ERROR(setCloseOnExec(contract.launcherFd, true));
  watch->fd_ = FileDescriptor(::fcntl(contract.launcherFd, F_DUPFD_CLOEXEC, 0));
  watch->wakeup_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch->fd_.valid() || !watch->wakeup_.valid()) return errnoStatus("listening to the launcher", errno);
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

LauncherWatch::~LauncherWatch() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
  thread_.join();
}

void LauncherWatch::tell(const StageReached& stage) {
  const std::string message = encodeStageNews(stage);
  (void)!::send(fd_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void LauncherWatch::run() {
  setThreadName("farhop/launcher");
  for (;;) {
    pollfd entries[] = {{fd_.get(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    char buffer[kMaxJobNewsBytes];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) {
      // It outlives the processes that it starts, and takes them along when it is killed; but not what these have
      // started, as a script does.
      monitor_->record(absl::UnavailableError("the launcher has ended before the job; see its log, and start the job again"));
      return;
    }
    if (const auto news = decodeJobNews(std::string(buffer, static_cast<size_t>(n)))) take(*news);
  }
}

void LauncherWatch::take(const ProcessEnded& news) {
  const PeerName& process = news.process;
  if (process.machine == contract_.machine && process.proc == contract_.proc) return;
  if (news.clean && allReady_.load()) return;
  if (monitor_->waitFor(Deadline::after(allReady_.load() ? doubt_.whenReady : doubt_.whileStarting))) return;
  monitor_->record(withPeer(
      absl::UnavailableError(absl::StrCat("lost ", describePeer(process), ": it ended with ", news.how,
                                          news.clean ? " before the job was ready" : "", "; its log says why")),
      process));
}

}  // namespace farhop::runtime
