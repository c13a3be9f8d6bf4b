#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace farhop {
namespace {

// Nothing cannot be mapped; a page can.
size_t fileBytes(size_t bytes) { return std::max<size_t>(bytes, 1); }

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::map(int file, size_t bytes) {
  void* const data = ::mmap(nullptr, fileBytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("mapping ", bytes, " bytes of shared memory: ",
                                                     errnoStatus("mmap", errno).message()));
  }
  SharedMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  memory.file_ = file;
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::create(const std::string& name, size_t bytes) {
  const int file = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return errnoStatus("memfd_create", errno);
  // Sealed in its size: nobody can cut it short under others' mappings.
  const bool sized = ::ftruncate(file, static_cast<off_t>(fileBytes(bytes))) == 0 &&
                     ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  absl::StatusOr<SharedMemory> memory =
      sized ? map(file, bytes)
            : absl::ResourceExhaustedError(absl::StrCat("making ", bytes, " bytes of shared memory: ",
                                                        errnoStatus("ftruncate", errno).message()));
  if (!memory.ok()) ::close(file);
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::open(pid_t pid, int file, size_t bytes) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", file);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) {
    return annotate(errnoStatus(path, errno), "opening another process's shared memory (the processes of a machine must "
                                              "see each other in /proc)");
  }
  struct stat status;
  if (::fstat(own, &status) != 0 || static_cast<size_t>(status.st_size) != fileBytes(bytes)) {
    ::close(own);
    return absl::FailedPreconditionError(absl::StrCat(path, " is not the shared memory of ", bytes, " bytes that it should be"));
  }
  absl::StatusOr<SharedMemory> memory = map(own, bytes);
  if (!memory.ok()) ::close(own);
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, fileBytes(size_));
  closeFile();
}

void SharedMemory::closeFile() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace farhop
