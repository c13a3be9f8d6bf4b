#include "base/memory_info.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace farhop {
namespace {

// Value of "Key:   123 kB" in a /proc file, in bytes.
uint64_t kilobyteField(const char* path, const std::string& key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(key + ":", 0) == 0) {
      std::istringstream rest(line.substr(key.size() + 1));
      uint64_t kilobytes = 0;
      rest >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

uint64_t numberIn(const std::string& path, uint64_t otherwise) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : otherwise;
}

// Pages of files among what a cgroup has in use: the kernel takes them back when memory is short.
uint64_t reclaimable(const std::string& statPath, const std::string& prefix) {
  std::ifstream in(statPath);
  std::string name;
  uint64_t total = 0;
  for (uint64_t value = 0; in >> name >> value;) {
    if (name == prefix + "active_file" || name == prefix + "inactive_file") total += value;
  }
  return total;
}

// cgroup v2 (or v1) directory of this process for the memory controller.
uint64_t cgroupHeadroom() {
  const uint64_t unlimited = std::numeric_limits<uint64_t>::max();
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  uint64_t headroom = unlimited;
  while (std::getline(in, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    uint64_t limit = unlimited, used = 0, files = 0;
    if (controllers.empty()) {
      limit = numberIn("/sys/fs/cgroup" + path + "/memory.max", unlimited);
      used = numberIn("/sys/fs/cgroup" + path + "/memory.current", 0);
      files = reclaimable("/sys/fs/cgroup" + path + "/memory.stat", "");
    } else if (controllers.find("memory") != std::string::npos) {
      limit = numberIn("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", unlimited);
      used = numberIn("/sys/fs/cgroup/memory" + path + "/memory.usage_in_bytes", 0);
      files = reclaimable("/sys/fs/cgroup/memory" + path + "/memory.stat", "total_");
    }
    used -= std::min(used, files);
    if (limit < unlimited / 2) headroom = std::min(headroom, limit > used ? limit - used : 0);
  }
  return headroom;
}

}  // namespace

uint64_t peakResidentBytes() { return kilobyteField("/proc/self/status", "VmHWM"); }
uint64_t residentBytes() { return kilobyteField("/proc/self/status", "VmRSS"); }
uint64_t residentSharedBytes() { return kilobyteField("/proc/self/status", "RssShmem"); }
uint64_t anonymousBytes() { return kilobyteField("/proc/self/status", "RssAnon"); }

uint64_t availableMemoryBytes() {
  return std::min(kilobyteField("/proc/meminfo", "MemAvailable"), cgroupHeadroom());
}

uint64_t mappedSharedMemoryBytes() {
  std::ifstream in("/proc/self/maps");
  std::string line;
  uint64_t total = 0;
  while (std::getline(in, line)) {
    if (line.find("/dev/shm/") == std::string::npos && line.find("/memfd:") == std::string::npos) continue;
    const size_t dash = line.find('-');
    const uint64_t from = std::stoull(line.substr(0, dash), nullptr, 16);
    const uint64_t to = std::stoull(line.substr(dash + 1), nullptr, 16);
    total += to - from;
  }
  return total;
}

}  // namespace farhop
