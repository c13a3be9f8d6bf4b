// Listens to the launcher (job_news.h): records in the monitor that a process of the job has ended, or the launcher.
//
// From the first moment of a start, so that a process is missed that dies before anybody has met it. Once the
// processes have met they see each other's end by themselves, and know more about it: what the launcher says counts
// only when nobody else has said it within a moment.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/socket.h"
#include "base/status.h"
#include "runtime/failure_monitor.h"
#include "runtime/job_news.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// How long a loss that the launcher tells of waits for those who see it on the wire. Once all have met these know it and
// the address in a moment; before that it is to be shorter than those wait who see a connection end that may be a
// victim's.
struct LauncherDoubt {
  std::chrono::milliseconds whileStarting{100};
  std::chrono::milliseconds whenReady{500};
};

// Thread-safe.
class LauncherWatch {
 public:
  // Null without a launcher (contract.launcherFd < 0), and with a WARNING when the descriptor is no such socket. The
  // descriptor stays open, for a later session of the same process. `monitor` outlives the watch.
  static absl::StatusOr<std::unique_ptr<LauncherWatch>> open(const LaunchContract& contract, FailureMonitor* monitor,
                                                             const LauncherDoubt& doubt = {});
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

  // Tells the launcher how far this process has come; not worth waiting for where it does not read.
  void tell(const StageReached& stage);

  // All processes of the job have met: one that ends with exit code 0 from now on has left.
  void noteAllReady() { allReady_.store(true); }

 private:
  LauncherWatch(const LaunchContract& contract, FailureMonitor* monitor, const LauncherDoubt& doubt)
      : contract_(contract), monitor_(monitor), doubt_(doubt) {}
  void run();
  void take(const ProcessEnded& news);

  const LaunchContract contract_;
  FailureMonitor* const monitor_;
  const LauncherDoubt doubt_;
  std::atomic<bool> allReady_{false};
  FileDescriptor fd_;
  FileDescriptor wakeup_;  // an eventfd that ends the thread's poll
  std::thread thread_;
};

}  // namespace farhop::runtime
