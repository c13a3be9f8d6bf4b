// The machine under a measurement: its cores, where a thread runs, what the kernel did to it meanwhile.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::benchmarks {

std::string cpuModel();

// One CPU for each physical core that this process may use, ascending (hardware threads of one core share
// what is measured, so only the first counts).
std::vector<int> usableCores();

// Binds the calling thread; a thread started later by it inherits that.
absl::Status pinThread(int cpu);

// What the kernel counts for the calling thread.
struct ThreadUsage {
  std::chrono::nanoseconds cpuTime{0};
  uint64_t minorFaults = 0;
  uint64_t majorFaults = 0;

  static ThreadUsage now();
  ThreadUsage operator-(const ThreadUsage& earlier) const;
  ThreadUsage& operator+=(const ThreadUsage& other);
};

// Anonymous memory, written once so that every page is there. Throws nothing; empty() when memory is short.
class TouchedMemory {
 public:
  enum class Pages { kSmall, kHuge };

  // Of kHuge the kernel gives as many as it can.
  TouchedMemory(size_t bytes, Pages pages);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;

  bool empty() const { return data_ == nullptr; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Reads one byte of every page, so that a mapping's first use costs nothing later.
void touchPages(std::span<const std::byte> bytes);

// Of all threads of this process so far.
int64_t processorNanoseconds();
// By the machine's one steady clock.
int64_t steadyNanoseconds();
// Processor time of this process's threads by name, the numbers of an executor's threads left out. Empty where the
// kernel does not say.
std::map<std::string, int64_t> threadTimes();

}  // namespace farhop::benchmarks
