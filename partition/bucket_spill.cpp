#include "partition/bucket_spill.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace farhop::partition {
namespace {

// Several, since appends to one file wait for each other inside the kernel.
constexpr size_t kMaxFiles = 16;
constexpr size_t kReadBytes = size_t{1} << 20;

absl::StatusOr<FileDescriptor> openNameless(const std::string& directory) {
  FileDescriptor nameless(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (nameless.valid()) return nameless;
  // File systems without O_TMPFILE.
  std::string pattern = directory + "/spill-XXXXXX";
  FileDescriptor named(::mkostemp(pattern.data(), O_CLOEXEC));
  if (!named.valid()) return errnoStatus(absl::StrCat("creating a temporary file in ", directory), errno);
  ::unlink(pattern.c_str());
  return named;
}

absl::Status inputChanged() {
  return absl::FailedPreconditionError("the data set changed while it was read; run it again");
}

}  // namespace

absl::StatusOr<BucketSpill> BucketSpill::create(const std::string& directory,
                                                const std::vector<uint64_t>& bucketBytes, uint64_t memoryBytes) {
  BucketSpill spill;
  spill.directory_ = directory;
  const uint64_t total = std::accumulate(bucketBytes.begin(), bucketBytes.end(), uint64_t{0});
  const bool inMemory = total <= memoryBytes;
  const size_t files = inMemory ? 1 : std::clamp<size_t>(bucketBytes.size(), 1, kMaxFiles);
  std::vector<uint64_t> fileBytes(files, 0);
  for (size_t b = 0; b < bucketBytes.size(); ++b) {
    uint64_t& end = fileBytes[b % files];
    spill.places_.push_back({static_cast<uint32_t>(b % files), end, bucketBytes[b]});
    end += bucketBytes[b];
  }
  if (inMemory) spill.memory_ = std::make_unique_for_overwrite<std::byte[]>(total);
  for (uint64_t bytes : inMemory ? std::vector<uint64_t>() : fileBytes) {
    FARHOP_ASSIGN_OR_RETURN(FileDescriptor file, openNameless(directory));
    if (bytes > 0 && ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP) {
      return errnoStatus(absl::StrCat("reserving ", bytes, " bytes of temporary space in ", directory), errno);
    }
    spill.files_.push_back(std::move(file));
  }
  spill.filled_ = std::make_unique<std::atomic<uint64_t>[]>(bucketBytes.size());
  return spill;
}

absl::Status BucketSpill::append(size_t bucket, const void* data, size_t bytes) {
  const Place& place = places_[bucket];
  const uint64_t at = filled_[bucket].fetch_add(bytes, std::memory_order_relaxed);
  if (at + bytes > place.bytes) return inputChanged();
  if (memory_ != nullptr) {
    std::memcpy(memory_.get() + place.offset + at, data, bytes);
    return absl::OkStatus();
  }
  const char* from = static_cast<const char*>(data);
  off_t offset = static_cast<off_t>(place.offset + at);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(files_[place.file].get(), from, bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errnoStatus(absl::StrCat("writing temporary space in ", directory_), errno);
    from += n;
    offset += n;
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status BucketSpill::read(size_t bucket, size_t recordBytes,
                               const std::function<absl::Status(std::span<const std::byte>)>& piece) const {
  const Place& place = places_[bucket];
  if (filled_[bucket].load(std::memory_order_relaxed) != place.bytes) return inputChanged();
  if (memory_ != nullptr) return piece({memory_.get() + place.offset, static_cast<size_t>(place.bytes)});
  const size_t pieceBytes = std::max<size_t>(1, kReadBytes / recordBytes) * recordBytes;
  std::vector<std::byte> buffer(std::min<uint64_t>(pieceBytes, place.bytes));
  for (uint64_t done = 0; done < place.bytes;) {
    const size_t wanted = std::min<uint64_t>(buffer.size(), place.bytes - done);
    for (size_t got = 0; got < wanted;) {
      const ssize_t n = ::pread(files_[place.file].get(), buffer.data() + got, wanted - got,
                                static_cast<off_t>(place.offset + done + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errnoStatus(absl::StrCat("reading temporary space in ", directory_), errno);
      if (n == 0) return absl::DataLossError(absl::StrCat("temporary space in ", directory_, " has been cut short"));
      got += static_cast<size_t>(n);
    }
    FARHOP_RETURN_IF_ERROR(piece(std::span<const std::byte>(buffer).first(wanted)));
    done += wanted;
  }
  return absl::OkStatus();
}

void BucketSpill::release(size_t bucket) {
  const Place& place = places_[bucket];
  if (place.bytes == 0 || memory_ != nullptr) return;
  static_cast<void>(::fallocate(files_[place.file].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(place.offset), static_cast<off_t>(place.bytes)));
}

absl::Status BucketBuffers::flush(size_t bucket) {
  std::vector<std::byte>& buffer = buffers_[bucket];
  if (buffer.empty()) return absl::OkStatus();
  const absl::Status status = spill_.append(bucket, buffer.data(), buffer.size());
  buffer.clear();
  return status;
}

absl::Status BucketBuffers::flushAll() {
  for (size_t bucket = 0; bucket < buffers_.size(); ++bucket) FARHOP_RETURN_IF_ERROR(flush(bucket));
  return absl::OkStatus();
}

}  // namespace farhop::partition
