#include "importers/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/socket.h"

namespace farhop::importers {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;
constexpr unsigned char kGzipMagic[] = {0x1F, 0x8B};
constexpr unsigned char kZstdMagic[] = {0x28, 0xB5, 0x2F, 0xFD};

bool endsWith(absl::string_view text, absl::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A regular file, read once.
class PlainSource : public ByteSource {
 public:
  static absl::StatusOr<std::unique_ptr<PlainSource>> open(const std::string& path) {
    // Without O_NONBLOCK a named pipe in the file's place would block for good.
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) return errnoStatus(absl::StrCat("opening ", path), errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errnoStatus(absl::StrCat("reading the size of ", path), errno);
    if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    auto source = std::make_unique<PlainSource>();
    source->path_ = path;
    source->fd_ = std::move(fd);
    source->fileBytes_ = static_cast<uint64_t>(info.st_size);
    return source;
  }

  absl::StatusOr<size_t> read(char* to, size_t size) override {
    for (;;) {
      const ssize_t n = ::read(fd_.get(), to, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errnoStatus(absl::StrCat("reading ", path_), errno);
      bytesRead_ += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
  }
  absl::Status rewind() {
    if (::lseek(fd_.get(), 0, SEEK_SET) != 0) return errnoStatus(absl::StrCat("reading ", path_), errno);
    bytesRead_ = 0;
    return absl::OkStatus();
  }

 private:
  std::string path_;
  FileDescriptor fd_;
};

absl::Status cutShort(const std::string& path, absl::string_view kind) {
  return absl::DataLossError(
      absl::StrCat(path, " ends in the middle of its ", kind, " data (it was cut short); copy it again"));
}

class GzipSource : public ByteSource {
 public:
  GzipSource(std::string path, std::unique_ptr<PlainSource> packed)
      : path_(std::move(path)), packed_(std::move(packed)), input_(kInputBytes) {
    fileBytes_ = packed_->fileBytes();
  }
  ~GzipSource() override {
    if (ready_) ::inflateEnd(&stream_);
  }

  absl::StatusOr<size_t> read(char* to, size_t size) override {
    if (!ready_) {
      // 16: with a gzip header, and nothing else.
      if (::inflateInit2(&stream_, 15 + 16) != Z_OK) return absl::ResourceExhaustedError("no memory to unpack gzip");
      ready_ = true;
    }
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out == size && !done_) {
      if (stream_.avail_in == 0) FARHOP_RETURN_IF_ERROR(refill());
      if (stream_.avail_in == 0) {
        if (!betweenMembers_) return cutShort(path_, "gzip");
        done_ = true;
        break;
      }
      // A file may be several gzip files one after the other.
      if (betweenMembers_ && ::inflateReset(&stream_) != Z_OK) return absl::InternalError("resetting zlib");
      betweenMembers_ = false;
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        betweenMembers_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return absl::DataLossError(absl::StrCat(path_, ": the gzip data is damaged before byte ", bytesRead_, " (",
                                                stream_.msg == nullptr ? "unknown error" : stream_.msg,
                                                "); copy it again"));
      }
    }
    return size - stream_.avail_out;
  }

 private:
  absl::Status refill() {
    FARHOP_ASSIGN_OR_RETURN(const size_t n, packed_->read(input_.data(), input_.size()));
    bytesRead_ = packed_->bytesRead();
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(n);
    return absl::OkStatus();
  }

  std::string path_;
  std::unique_ptr<PlainSource> packed_;
  std::vector<char> input_;
  z_stream stream_{};
  bool ready_ = false;
  bool betweenMembers_ = false;
  bool done_ = false;
};

class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::string path, std::unique_ptr<PlainSource> packed)
      : path_(std::move(path)), packed_(std::move(packed)), input_(kInputBytes), stream_(::ZSTD_createDStream()) {
    fileBytes_ = packed_->fileBytes();
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }

  absl::StatusOr<size_t> read(char* to, size_t size) override {
    if (stream_ == nullptr) return absl::ResourceExhaustedError("no memory to unpack zstd");
    ZSTD_outBuffer output{to, size, 0};
    while (output.pos == 0) {
      if (at_.pos == at_.size) {
        FARHOP_ASSIGN_OR_RETURN(const size_t n, packed_->read(input_.data(), input_.size()));
        bytesRead_ = packed_->bytesRead();
        at_ = {input_.data(), n, 0};
        if (n == 0) {
          if (inFrame_) return cutShort(path_, "zstd");
          return size_t{0};
        }
      }
      const size_t result = ::ZSTD_decompressStream(stream_, &output, &at_);
      if (::ZSTD_isError(result)) {
        return absl::DataLossError(absl::StrCat(path_, ": the zstd data is damaged before byte ", bytesRead_, " (",
                                                ::ZSTD_getErrorName(result), "); copy it again"));
      }
      inFrame_ = result != 0;
    }
    return output.pos;
  }

 private:
  std::string path_;
  std::unique_ptr<PlainSource> packed_;
  std::vector<char> input_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer at_{nullptr, 0, 0};
  bool inFrame_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::open(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<PlainSource> plain, PlainSource::open(path));
  unsigned char magic[4] = {};
  size_t known = 0;
  while (known < sizeof(magic)) {
    FARHOP_ASSIGN_OR_RETURN(const size_t n, plain->read(reinterpret_cast<char*>(magic) + known, sizeof(magic) - known));
    if (n == 0) break;
    known += n;
  }
  FARHOP_RETURN_IF_ERROR(plain->rewind());
  const bool gzip = known >= 2 && magic[0] == kGzipMagic[0] && magic[1] == kGzipMagic[1];
  const bool zstd = known == 4 && std::equal(magic, magic + 4, kZstdMagic);
  if (gzip) return std::make_unique<GzipSource>(path, std::move(plain));
  if (zstd) return std::make_unique<ZstdSource>(path, std::move(plain));
  for (const absl::string_view end : {".gz", ".zst"}) {
    if (!endsWith(path, end)) continue;
    return absl::DataLossError(absl::StrCat(path, " does not begin as a ", end, " file does; copy it again, or give it ",
                                            "the name that fits what it is"));
  }
  return plain;
}

absl::StatusOr<std::string> readSmallFile(const std::string& path, size_t maxBytes) {
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::open(path));
  std::string text;
  std::vector<char> buffer(size_t{64} << 10);
  for (;;) {
    FARHOP_ASSIGN_OR_RETURN(const size_t n, source->read(buffer.data(), buffer.size()));
    if (n == 0) return text;
    if (text.size() + n > maxBytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is longer than the ", maxBytes, " bytes that are read"));
    }
    text.append(buffer.data(), n);
  }
}

}  // namespace farhop::importers
