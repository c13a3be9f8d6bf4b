// Keeps SIGTERM working while a library runs that catches it for itself.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

namespace farhop::partition {

// METIS installs a handler for SIGTERM that jumps out of whatever it is doing, the allocator included, and returns
// an error: the program would go on, with a heap that may be broken. While a guard lives, this thread does not
// take SIGTERM; a thread of the guard's waits for it and, when it comes, gives it the disposition that it had before
// the guard: by default the program ends. SIGABRT stays METIS's, which raises it itself when memory runs out.
// For programs whose other threads do not take SIGTERM (in `farhop partition` only the progress display has one, which blocks all signals). One at a time per process.
class TerminationGuard {
 public:
  TerminationGuard();
  ~TerminationGuard();
  TerminationGuard(const TerminationGuard&) = delete;
  TerminationGuard& operator=(const TerminationGuard&) = delete;

 private:
  void watch();

  sigset_t previousMask_;
  struct sigaction previousAction_ {};
  std::atomic<bool> done_{false};
  std::thread watcher_;
};

}  // namespace farhop::partition
