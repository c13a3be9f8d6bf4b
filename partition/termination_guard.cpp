#include "partition/termination_guard.h"

#include <time.h>

namespace farhop::partition {
namespace {

constexpr long kPollNs = 20'000'000;  // how long the guard's end waits for its thread at most

sigset_t terminationSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

TerminationGuard::TerminationGuard() {
  const sigset_t set = terminationSet();
  ::sigaction(SIGTERM, nullptr, &previousAction_);
  ::pthread_sigmask(SIG_BLOCK, &set, &previousMask_);
  // Blocked by the caller already: then it stays pending for the caller.
  if (sigismember(&previousMask_, SIGTERM) == 1) return;
  watcher_ = std::thread([this] { watch(); });  // inherits the mask
}

TerminationGuard::~TerminationGuard() {
  done_ = true;
  if (watcher_.joinable()) watcher_.join();
  ::pthread_sigmask(SIG_SETMASK, &previousMask_, nullptr);
}

void TerminationGuard::watch() {
  const sigset_t set = terminationSet();
  const timespec poll{0, kPollNs};
  while (!done_) {
    if (::sigtimedwait(&set, nullptr, &poll) != SIGTERM) continue;
    ::sigaction(SIGTERM, &previousAction_, nullptr);
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::raise(SIGTERM);
    // Still here: ignored, or handled by the caller.
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
}

}  // namespace farhop::partition
