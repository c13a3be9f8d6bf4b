#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/socket.h"

namespace farhop {
namespace {

constexpr size_t kWriteBufferBytes = size_t{1} << 20;
constexpr size_t kReadBufferBytes = size_t{1} << 20;

struct StreamHash {
  StreamHash() : state(XXH3_createState()) { XXH3_64bits_reset(state); }
  ~StreamHash() { XXH3_freeState(state); }
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  XXH3_state_t* state;
};

absl::Status writeFully(int fd, const char* data, size_t bytes, const std::string& path) {
  while (bytes > 0) {
    ssize_t n = ::write(fd, data, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errnoStatus(absl::StrCat("writing ", path), errno);
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

// The caller closes the descriptor.
absl::StatusOr<int> openRegularFile(const std::string& path, uint64_t* bytes) {
  // Without O_NONBLOCK a named pipe in the file's place would block for good.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errnoStatus(absl::StrCat("opening ", path), errno);
  struct stat info {};
  absl::Status status;
  if (::fstat(fd, &info) != 0) {
    status = errnoStatus(absl::StrCat("reading the size of ", path), errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (!status.ok()) {
    ::close(fd);
    return status;
  }
  *bytes = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

absl::StatusOr<MappedFile> MappedFile::open(const std::string& path) {
  uint64_t bytes = 0;
  FARHOP_ASSIGN_OR_RETURN(const int fd, openRegularFile(path, &bytes));
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(bytes);
  if (file.size_ > 0) {
    void* address = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      absl::Status status = errnoStatus(absl::StrCat("mapping ", path, " (", file.size_, " bytes)"), errno);
      file.size_ = 0;
      ::close(fd);
      return status;
    }
    file.data_ = static_cast<const std::byte*>(address);
  }
  ::close(fd);
  return file;
}

struct AtomicFile::Hash : StreamHash {};

absl::StatusOr<AtomicFile> AtomicFile::create(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  AtomicFile file;
  file.path_ = path;
  file.temporaryPath_ = absl::StrCat(path, ".tmp.", ::getpid(), ".", counter.fetch_add(1));
  file.fd_ = ::open(file.temporaryPath_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return errnoStatus(absl::StrCat("creating ", file.temporaryPath_), errno);
  file.hash_ = std::make_unique<Hash>();
  file.buffer_.reserve(kWriteBufferBytes);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporaryPath_(std::move(other.temporaryPath_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      bytesWritten_(other.bytesWritten_),
      hash_(std::move(other.hash_)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporaryPath_.c_str());
}

absl::Status AtomicFile::write(const void* data, size_t bytes) {
  XXH3_64bits_update(hash_->state, data, bytes);
  bytesWritten_ += bytes;
  if (buffer_.size() + bytes > kWriteBufferBytes) FARHOP_RETURN_IF_ERROR(flush());
  if (bytes >= kWriteBufferBytes) return writeFully(fd_, static_cast<const char*>(data), bytes, temporaryPath_);
  buffer_.append(static_cast<const char*>(data), bytes);
  return absl::OkStatus();
}

absl::Status AtomicFile::writeAt(uint64_t offset, const void* data, size_t bytes) {
  FARHOP_RETURN_IF_ERROR(flush());
  if (::pwrite(fd_, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes)) {
    return errnoStatus(absl::StrCat("writing ", temporaryPath_), errno);
  }
  return absl::OkStatus();
}

uint64_t AtomicFile::checksum() const { return XXH3_64bits_digest(hash_->state); }

absl::Status AtomicFile::flush() {
  absl::Status status = writeFully(fd_, buffer_.data(), buffer_.size(), temporaryPath_);
  buffer_.clear();
  return status;
}

absl::Status AtomicFile::commit(Durability durability) {
  FARHOP_RETURN_IF_ERROR(flush());
  if (durability == Durability::kStarted) {
    // Without a wait; an error of the disk comes back from syncFile().
    static_cast<void>(::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE));
  } else if (::fsync(fd_) != 0) {
    return errnoStatus(absl::StrCat("syncing ", temporaryPath_), errno);
  }
  int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) {
    int error = errno;
    ::unlink(temporaryPath_.c_str());
    return errnoStatus(absl::StrCat("closing ", temporaryPath_), error);
  }
  if (::rename(temporaryPath_.c_str(), path_.c_str()) != 0) {
    int error = errno;
    ::unlink(temporaryPath_.c_str());
    return errnoStatus(absl::StrCat("renaming ", temporaryPath_, " to ", path_), error);
  }
  if (durability == Durability::kStarted) return absl::OkStatus();
  return syncDirectory(std::filesystem::path(path_).parent_path().string());
}

absl::StatusOr<std::string> readFile(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

absl::Status writeFileAtomically(const std::string& path, absl::string_view content) {
  FARHOP_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  FARHOP_RETURN_IF_ERROR(file.write(content.data(), content.size()));
  return file.commit();
}

absl::Status makeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return errnoStatus(absl::StrCat("creating directory ", path), error.value());
  return absl::OkStatus();
}

absl::Status syncFile(const std::string& path) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errnoStatus(absl::StrCat("opening ", path), errno);
  if (::fsync(fd.get()) != 0) return errnoStatus(absl::StrCat("syncing ", path), errno);
  return absl::OkStatus();
}

absl::Status syncDirectory(const std::string& path) {
  const std::string target = path.empty() ? "." : path;
  int fd = ::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errnoStatus(absl::StrCat("opening directory ", target), errno);
  int result = ::fsync(fd);
  int error = errno;
  ::close(fd);
  // Some network file systems cannot sync directories; the rename itself has happened.
  if (result != 0 && error != EINVAL) return errnoStatus(absl::StrCat("syncing directory ", target), error);
  return absl::OkStatus();
}

bool pathExists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

uint64_t checksum64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

absl::StatusOr<FileChecksum> checksumFile(const std::string& path,
                                          const std::function<absl::Status(uint64_t bytes)>& onBytes) {
  uint64_t statedBytes = 0;
  FARHOP_ASSIGN_OR_RETURN(const int opened, openRegularFile(path, &statedBytes));
  const FileDescriptor fd(opened);
  static_cast<void>(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL));  // advice only
  const StreamHash hash;
  std::vector<std::byte> buffer(std::clamp<uint64_t>(statedBytes, 1, kReadBufferBytes));
  FileChecksum result;
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errnoStatus(absl::StrCat("reading ", path), errno);
    if (n == 0) break;
    XXH3_64bits_update(hash.state, buffer.data(), static_cast<size_t>(n));
    result.bytes += static_cast<uint64_t>(n);
    if (onBytes) FARHOP_RETURN_IF_ERROR(onBytes(static_cast<uint64_t>(n)));
  }
  result.checksum = XXH3_64bits_digest(hash.state);
  return result;
}

}  // namespace farhop
