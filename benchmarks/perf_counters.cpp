#include "benchmarks/perf_counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farhop::benchmarks {
namespace {

int openCounter(uint32_t type, uint64_t config) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = type;
  attributes.config = config;
  attributes.exclude_kernel = 1;  // what an unprivileged user may count
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

PerfCounters::PerfCounters() {
  descriptors_[kCacheMisses] = openCounter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES);
  descriptors_[kTlbMisses] =
      openCounter(PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB | (PERF_COUNT_HW_CACHE_OP_READ << 8) |
                                          (PERF_COUNT_HW_CACHE_RESULT_MISS << 16));
  descriptors_[kInstructions] = openCounter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
}

PerfCounters::~PerfCounters() {
  for (int fd : descriptors_) {
    if (fd >= 0) ::close(fd);
  }
}

PerfCounters::Values PerfCounters::read() const {
  Values values;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    struct {
      uint64_t value, enabled, running;
    } count{};
    if (descriptors_[kind] < 0 || ::read(descriptors_[kind], &count, sizeof(count)) != sizeof(count)) continue;
    if (count.running == 0 && count.enabled > 0) continue;
    const double scale = count.running == 0 ? 1 : static_cast<double>(count.enabled) / static_cast<double>(count.running);
    values[kind] = static_cast<double>(count.value) * scale;
  }
  return values;
}

PerfCounters::Values PerfCounters::difference(const Values& later, const Values& earlier) {
  Values values;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (later[kind] && earlier[kind]) values[kind] = *later[kind] - *earlier[kind];
  }
  return values;
}

}  // namespace farhop::benchmarks
