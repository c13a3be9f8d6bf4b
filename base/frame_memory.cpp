#include "base/frame_memory.h"

#include <new>

namespace farhop {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

// More than frames that a sampler thread has under way; larger frames than any of ours are not kept.
constexpr size_t kMostKept = 16;
constexpr size_t kMostBytes = 16'384;

struct Kept {
  void* frame;
  size_t bytes;
};
// Without a destructor, so that frames which end after the thread's other objects find it.
struct ThreadFrames {
  Kept kept[kMostKept];
  size_t count;
  bool over;
};
thread_local ThreadFrames frames = {};

struct AtThreadEnd {
  ~AtThreadEnd() {
    frames.over = true;
    while (frames.count > 0) ::operator delete(frames.kept[--frames.count].frame);
  }
};

}  // namespace

void* FrameMemory::allocate(size_t bytes) {
  for (size_t i = 0; i < frames.count; ++i) {
    if (frames.kept[i].bytes != bytes) continue;
    void* const frame = frames.kept[i].frame;
    frames.kept[i] = frames.kept[--frames.count];
    return frame;
  }
  return ::operator new(bytes);
}

void FrameMemory::release(void* frame, size_t bytes) noexcept {
  if (!kKeeps || frames.over || frames.count == kMostKept || bytes > kMostBytes) {
    ::operator delete(frame);
    return;
  }
  thread_local AtThreadEnd atThreadEnd;
  frames.kept[frames.count++] = {frame, bytes};
}

}  // namespace farhop
