// What this process and this machine use of memory, from /proc and cgroups. All in bytes; 0 where unknown.
#pragma once

#include <cstdint>
#include <string>

namespace farhop {

uint64_t peakResidentBytes();      // VmHWM
uint64_t residentBytes();          // VmRSS
uint64_t anonymousBytes();         // RssAnon
uint64_t residentSharedBytes();    // RssShmem: shared memory, memfds; not mapped files
uint64_t availableMemoryBytes();   // the smaller of MemAvailable and what the cgroup's limit leaves
// Bytes of this process's mappings that lie in /dev/shm or are memfds.
uint64_t mappedSharedMemoryBytes();

}  // namespace farhop
