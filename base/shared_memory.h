// Memory that processes of one machine share, without a name in any file system: it lives as long as somebody maps it or
// has it open, so a killed process leaves nothing behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/status.h"

namespace farhop {

// A mapping, readable and writable. Movable. Writes show in all processes that map it; who writes what, when, and when
// others may read it is their agreement.
class SharedMemory {
 public:
  SharedMemory() = default;
  // Makes `bytes` zeros; pages take memory when they are first written. `name` shows in /proc/PID/maps. ResourceExhausted
  // when there is not so much address space.
  static absl::StatusOr<SharedMemory> create(const std::string& name, size_t bytes);
  // Maps what the living process `pid` has open as `file`, made with as many bytes. It must be of the same user.
  // FailedPrecondition when the file there is another one.
  static absl::StatusOr<SharedMemory> open(pid_t pid, int file, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // What others open() by; -1 after closeFile().
  int file() const { return file_; }
  // For when all others have opened it. The mapping stays.
  void closeFile();

 private:
  static absl::StatusOr<SharedMemory> map(int file, size_t bytes);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int file_ = -1;
};

}  // namespace farhop
