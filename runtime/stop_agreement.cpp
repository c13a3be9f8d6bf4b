#include "runtime/stop_agreement.h"

#include <signal.h>

#include <span>

#include "base/log.h"

namespace farhop::runtime {
namespace {

constexpr int kSignals[2] = {SIGUSR1, SIGTERM};

std::atomic<bool> isTaken = false;
std::atomic<int> lastRaised = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void note(int signal) { lastRaised = signal; }

}  // namespace

std::unique_ptr<StopSignals> StopSignals::take() {
  if (isTaken.exchange(true)) return nullptr;
  return std::unique_ptr<StopSignals>(new StopSignals());
}

StopSignals::StopSignals() {
  lastRaised = 0;
  for (int i = 0; i < 2; ++i) {
    struct sigaction current {};
    if (::sigaction(kSignals[i], nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 ||
        current.sa_handler != SIG_DFL) {
      continue;
    }
    struct sigaction action {};
    action.sa_handler = &note;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    taken_[i] = ::sigaction(kSignals[i], &action, nullptr) == 0;
  }
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 2; ++i) {
    struct sigaction current {};
    // Unless the program has changed its mind meanwhile.
    if (taken_[i] && ::sigaction(kSignals[i], nullptr, &current) == 0 && current.sa_handler == &note) {
      ::signal(kSignals[i], SIG_DFL);
    }
  }
  isTaken = false;
}

int StopSignals::raised() const { return lastRaised; }

void StopAgreement::takeSignals() {
  if (signals_ != nullptr) return;
  signals_ = StopSignals::take();
}

bool StopAgreement::wanted() const {
  return requested_ || (signals_ != nullptr && signals_->raised() != 0) || Clock::now() >= limit_;
}

void StopAgreement::learn(int64_t wanting) {
  learned_ = true;
  if (wanting <= 0 || agreed_) return;
  agreed_ = true;
  if (!wanted()) return;
  const int signal = signals_ == nullptr ? 0 : signals_->raised();
  FARHOP_LOG(INFO) << (signal == 0 ? "the job is asked to stop" : absl::StrCat("signal ", signal, " asks the job to stop"))
                   << "; all processes do after this step";
}

absl::StatusOr<bool> StopAgreement::agreed(Collectives& collectives, Deadline deadline) {
  if (!agreed_ && !learned_) {
    int64_t wanting = wanted() ? 1 : 0;
    FARHOP_RETURN_IF_ERROR(collectives.allReduceSum(std::span<int64_t>(&wanting, 1), deadline));
    learn(wanting);
  }
  learned_ = false;
  return agreed_;
}

}  // namespace farhop::runtime
