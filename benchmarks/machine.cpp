#include "benchmarks/machine.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

namespace farhop::benchmarks {
namespace {

constexpr size_t kPageBytes = 4096;

std::string firstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

std::string cpuModel() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::vector<int> usableCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  std::set<std::string> seen;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string siblings =
        firstLine(absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    if (siblings.empty() || seen.insert(siblings).second) cores.push_back(cpu);
  }
  return cores;
}

absl::Status pinThread(int cpu) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &wanted);
  if (::sched_setaffinity(0, sizeof(wanted), &wanted) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot run on CPU ", cpu, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

ThreadUsage ThreadUsage::now() {
  ThreadUsage usage;
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  usage.cpuTime = std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  rusage counts{};
  ::getrusage(RUSAGE_THREAD, &counts);
  usage.minorFaults = static_cast<uint64_t>(counts.ru_minflt);
  usage.majorFaults = static_cast<uint64_t>(counts.ru_majflt);
  return usage;
}

ThreadUsage ThreadUsage::operator-(const ThreadUsage& earlier) const {
  return {cpuTime - earlier.cpuTime, minorFaults - earlier.minorFaults, majorFaults - earlier.majorFaults};
}

ThreadUsage& ThreadUsage::operator+=(const ThreadUsage& other) {
  cpuTime += other.cpuTime;
  minorFaults += other.minorFaults;
  majorFaults += other.majorFaults;
  return *this;
}

TouchedMemory::TouchedMemory(size_t bytes, Pages pages) : bytes_(bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    bytes_ = 0;
    return;
  }
  data_ = static_cast<std::byte*>(mapped);
  ::madvise(mapped, bytes, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  // Not zeros: pages of zeros could be shared.
  for (size_t at = 0; at + sizeof(size_t) <= bytes; at += sizeof(size_t))
    std::memcpy(data_ + at, &at, sizeof(size_t));
}

TouchedMemory::~TouchedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void touchPages(std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kPageBytes) {
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
  }
}

int64_t processorNanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t steadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::map<std::string, int64_t> threadTimes() {
  std::map<std::string, int64_t> times;
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return times;
  while (const dirent* entry = ::readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const std::string directory = absl::StrCat("/proc/self/task/", entry->d_name);
    std::ifstream nameFile(directory + "/comm"), timeFile(directory + "/schedstat");
    std::string name;
    int64_t nanoseconds = 0;
    if (std::getline(nameFile, name) && timeFile >> nanoseconds)
      times[name.substr(0, name.find('/'))] += nanoseconds;
  }
  ::closedir(tasks);
  return times;
}

}  // namespace farhop::benchmarks
