// Applying a binding plan to the threads of this process.
#include <dirent.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>

#include "runtime/topology.h"

namespace farhop::runtime {
namespace {

constexpr int kMostProcessors = 1 << 16;

// Not hwloc's binding: it needs a loaded topology of this machine, while a plan is just numbers.
class ProcessorSet {
 public:
  explicit ProcessorSet(int processors) : count_(processors), set_(CPU_ALLOC(processors)) { CPU_ZERO_S(bytes(), set_); }
  ~ProcessorSet() { CPU_FREE(set_); }
  ProcessorSet(const ProcessorSet&) = delete;
  ProcessorSet& operator=(const ProcessorSet&) = delete;

  void add(int processor) { CPU_SET_S(processor, bytes(), set_); }
  bool has(int processor) const { return CPU_ISSET_S(processor, bytes(), set_) != 0; }
  size_t bytes() const { return CPU_ALLOC_SIZE(count_); }
  cpu_set_t* get() const { return set_; }

 private:
  int count_;
  cpu_set_t* set_;
};

absl::Status bind(int thread, const std::vector<int>& processors) {
  if (processors.empty()) return absl::InvalidArgumentError("a binding needs at least one processor");
  ProcessorSet set(processors.back() + 1);
  for (int processor : processors) set.add(processor);
  if (::sched_setaffinity(thread, set.bytes(), set.get()) != 0) {
    return errnoStatus(absl::StrCat("binding to the processors ", processorRanges(processors)), errno);
  }
  return absl::OkStatus();
}

std::vector<int> boundProcessors() {
  // The kernel refuses sets that are too small for all processors it knows of.
  for (int count = 1'024; count <= kMostProcessors; count *= 2) {
    ProcessorSet set(count);
    if (::sched_getaffinity(0, set.bytes(), set.get()) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<int> list;
    for (int processor = 0; processor < count; ++processor) {
      if (set.has(processor)) list.push_back(processor);
    }
    return list;
  }
  return {};
}

}  // namespace

absl::Status applyBinding(const std::vector<int>& processors) {
  if (processors.empty()) return absl::InvalidArgumentError("a binding needs at least one processor");
  std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks) {
    while (dirent* entry = ::readdir(tasks.get())) {
      const int thread = std::atoi(entry->d_name);
      // A thread may have ended since; a real failure shows on the calling thread below.
      if (thread > 0) (void)bind(thread, processors);
    }
  }
  return bind(0, processors);
}

absl::Status bindThread(const std::vector<int>& processors) { return bind(0, processors); }

ScopedThreadBinding::ScopedThreadBinding(const std::vector<int>& processors) {
  if (processors.empty()) return;
  before_ = boundProcessors();
  if (!before_.empty()) (void)bindThread(processors);
}

ScopedThreadBinding::~ScopedThreadBinding() {
  if (!before_.empty()) (void)bindThread(before_);
}

}  // namespace farhop::runtime
