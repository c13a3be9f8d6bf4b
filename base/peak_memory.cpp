#include "base/peak_memory.h"

#include <chrono>

#include "base/memory_info.h"

namespace farhop {
namespace {

constexpr std::chrono::milliseconds kPause{20};

}  // namespace

PeakMemory::PeakMemory() {
  look();
  watcher_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kPause, [this] { return stopping_; })) {
      lock.unlock();
      look();
      lock.lock();
    }
  });
}

PeakMemory::~PeakMemory() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  watcher_.join();
}

uint64_t PeakMemory::bytes() {
  look();
  return peak_.load();
}

void PeakMemory::look() {
  const uint64_t now = anonymousBytes() + residentSharedBytes();
  uint64_t before = peak_.load();
  while (now > before && !peak_.compare_exchange_weak(before, now)) {
  }
}

}  // namespace farhop
