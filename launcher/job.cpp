#include "launcher/job.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "base/file.h"

namespace farhop::launcher {
namespace {

constexpr int kFirstPort = 20'000;
constexpr int kEndPort = 32'768;
constexpr int kPortAttempts = 100;
constexpr int kBacklog = 1'024;

absl::StatusOr<std::string> randomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
    return errnoStatus("getrandom", errno);
  return bytes;
}

absl::StatusOr<std::string> randomHex(size_t count) {
  FARHOP_ASSIGN_OR_RETURN(const std::string bytes, randomBytes(count));
  std::string text;
  for (char byte : bytes) absl::StrAppendFormat(&text, "%02x", static_cast<unsigned char>(byte));
  return text;
}

absl::StatusOr<PortReservation> bindConsecutive(const std::string& host, int count, int base) {
  PortReservation result;
  result.base = static_cast<uint16_t>(base);
  for (int p = 0; p < count; ++p) {
    FARHOP_ASSIGN_OR_RETURN(FileDescriptor listener,
                            listenTcp({host, static_cast<uint16_t>(base + p)}, kBacklog));
    result.listeners.push_back(std::move(listener));
  }
  return result;
}

}  // namespace

absl::StatusOr<std::string> makeJobId() {
  FARHOP_ASSIGN_OR_RETURN(const std::string suffix, randomHex(4));
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &utc);
  return absl::StrCat(text, "-", suffix);
}

absl::StatusOr<std::string> makeToken() {
  return randomHex(16);
}

absl::StatusOr<PortReservation> reservePorts(const std::string& host, int count,
                                             std::optional<uint16_t> base) {
  if (base) {
    auto result = bindConsecutive(host, count, *base);
    return result.ok() ? std::move(result) : annotate(result.status(), "--master-port");
  }
  absl::Status last;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    FARHOP_ASSIGN_OR_RETURN(const std::string bytes, randomBytes(sizeof(uint32_t)));
    uint32_t random = 0;
    std::memcpy(&random, bytes.data(), sizeof(random));
    const int candidate =
        kFirstPort + static_cast<int>(random % static_cast<uint32_t>(kEndPort - kFirstPort - count));
    auto result = bindConsecutive(host, count + 1, candidate);
    if (result.ok()) {
      result->listeners.pop_back();  // torch's, which binds it itself
      return result;
    }
    if (!absl::IsAlreadyExists(result.status())) return result;
    last = result.status();
  }
  return annotate(last, absl::StrCat("no ", count, " consecutive free ports in ", kPortAttempts,
                                     " attempts; give --master-port"));
}

absl::StatusOr<LogDirectory> LogDirectory::create(const std::string& requested, const std::string& jobId) {
  LogDirectory result;
  if (!requested.empty()) {
    if (absl::Status made = makeDirectories(requested); !made.ok()) return annotate(made, "--log-dir");
    result.path_ = requested;
    return result;
  }
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error)
    return absl::UnavailableError(absl::StrCat("no temporary directory: ", error.message(), "; set TMPDIR"));
  result.path_ = (base / ("farhop-" + jobId)).string();
  result.temporary_ = true;
  if (::mkdir(result.path_.c_str(), 0700) != 0) {
    return errnoStatus(
        absl::StrCat("creating the log directory ", result.path_, " (--log-dir chooses another)"), errno);
  }
  return result;
}

std::string LogDirectory::fileFor(int machine, int proc, int attempt) const {
  const std::string again = attempt == 0 ? "" : absl::StrCat("-attempt", attempt);
  return absl::StrCat(path_, "/m", machine, "-p", proc, again, ".log");
}

void LogDirectory::removeTemporary() {
  if (!temporary_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace farhop::launcher
