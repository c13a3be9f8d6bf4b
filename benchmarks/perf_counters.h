// Hardware counters of the calling thread, where the kernel and the machine have them (virtual machines often
// have none).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace farhop::benchmarks {

// Counts user code of the thread that made it, from creation on. Not thread-safe.
class PerfCounters {
 public:
  enum Kind { kCacheMisses, kTlbMisses, kInstructions, kKinds };
  using Values = std::array<std::optional<double>, kKinds>;  // empty where there is no such counter

  PerfCounters();
  ~PerfCounters();
  PerfCounters(const PerfCounters&) = delete;
  PerfCounters& operator=(const PerfCounters&) = delete;

  // Events so far, scaled up where the counter had to share its register.
  Values read() const;
  // Events between two readings.
  static Values difference(const Values& later, const Values& earlier);

 private:
  std::array<int, kKinds> descriptors_;
};

}  // namespace farhop::benchmarks
