// Memory of coroutine frames, kept for the next frame of the same size, so that a batch after the first allocates none.
#pragma once

#include <cstddef>

namespace farhop {

// Frames may be released on another thread than they were allocated on; each thread keeps a few. In builds with
// AddressSanitizer or ThreadSanitizer nothing is kept, so that these see every use after the end.
class FrameMemory {
 public:
  // Throws std::bad_alloc.
  static void* allocate(size_t bytes);
  static void release(void* frame, size_t bytes) noexcept;
};

// A promise type that derives from this has its frames there.
struct KeptFrame {
  static void* operator new(size_t bytes) { return FrameMemory::allocate(bytes); }
  static void operator delete(void* frame, size_t bytes) noexcept { FrameMemory::release(frame, bytes); }
};

}  // namespace farhop
