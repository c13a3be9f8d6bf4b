// An absolute point in time after which a wait must end. Every wait in Farhop takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace farhop {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  // Already expired.
  Deadline() : at_(Clock::time_point::min()) {}
  explicit Deadline(Clock::time_point at) : at_(at) {}

  static Deadline after(std::chrono::milliseconds timeout) { return Deadline(Clock::now() + timeout); }
  // Of a wait that something else ends, such as the end of a process.
  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline earliest(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

  Clock::time_point at() const { return at_; }
  bool expired() const { return Clock::now() >= at_; }

  // Milliseconds left, never negative, at most an hour so that it fits poll(2).
  int remainingMs() const {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    if (at_ == Clock::time_point::min()) return 0;
    return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
  }

 private:
  Clock::time_point at_;
};

}  // namespace farhop
