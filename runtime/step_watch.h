// Misses the slurmstepd that started this process: Slurm's own hold on it, without which nobody would end it, read its
// output or tell the others of its end.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/socket.h"
#include "base/status.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// The nearest ancestor of this process that calls itself so; nullopt when there is none.
std::optional<pid_t> findAncestor(const std::string& name);

// Records in the monitor that a process has ended, under this process's name: with it this one is lost. Thread-safe.
class StepWatch {
 public:
  // Null without such an ancestor, with a launcher (who starts steps itself, and is watched itself), and for a process that
  // is alone. `monitor` outlives the watch.
  static absl::StatusOr<std::unique_ptr<StepWatch>> open(const LaunchContract& contract, FailureMonitor* monitor,
                                                         const std::string& ancestor = "slurmstepd");
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

 private:
  StepWatch(const LaunchContract& contract, FailureMonitor* monitor) : contract_(contract), monitor_(monitor) {}
  void run();

  const LaunchContract contract_;
  FailureMonitor* const monitor_;
  std::string what_;        // "slurmstepd (pid 4711)"
  FileDescriptor pidFd_;    // readable once it has ended
  FileDescriptor wakeup_;   // an eventfd that ends the thread's poll
  std::thread thread_;
};

}  // namespace farhop::runtime
