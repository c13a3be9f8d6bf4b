#include "launcher/partition_stamp.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "partition/layout.h"

namespace farhop::launcher {
namespace {

constexpr size_t kMaxRawFiles = 1'000'000;

using Json = nlohmann::json;

Json toJson(const PartitionStamp& stamp, uint64_t store) {
  Json json;
  json["arguments"] = stamp.arguments;
  json["store"] = store;
  for (const auto& [path, file] : stamp.files) {
    json["files"][path] = {{"bytes", file.bytes}, {"checksum", file.checksum}, {"modified_ns", file.modifiedNs}};
  }
  return json;
}

struct Stored {
  PartitionStamp stamp;
  uint64_t store = 0;  // checksum of its graph.json
};

// Nothing for a file that is missing, damaged or from elsewhere.
std::optional<Stored> readStamp(const std::string& store) {
  const auto text = readFile(stampPath(store));
  if (!text.ok()) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  try {
    Stored result;
    result.stamp.arguments = json.at("arguments").get<std::vector<std::string>>();
    result.store = json.at("store").get<uint64_t>();
    for (const auto& [path, file] : json.at("files").items()) {
      result.stamp.files[path] = {file.at("bytes"), file.at("checksum"), file.at("modified_ns")};
    }
    return result;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::optional<uint64_t> checksumOfStore(const std::string& store) {
  const auto found = checksumFile(absl::StrCat(store, "/", partition::kManifestFile));
  return found.ok() ? std::optional(found->checksum) : std::nullopt;
}

}  // namespace

std::string stampPath(const std::string& store) {
  return store + ".made-from.json";
}

absl::StatusOr<PartitionStamp> makeStamp(const std::string& raw, const std::vector<std::string>& arguments,
                                         const std::string& store) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path directory = fs::absolute(raw, error);
  if (fs::is_regular_file(directory, error)) directory = directory.parent_path();
  PartitionStamp stamp;
  stamp.arguments = arguments;
  const std::optional<Stored> before = readStamp(store);
  fs::recursive_directory_iterator entries(directory, error), end;
  if (error) return absl::NotFoundError(absl::StrCat("--partition-first ", raw, ": ", error.message()));
  for (; entries != end; entries.increment(error)) {
    if (error) return absl::UnavailableError(absl::StrCat("reading ", directory.string(), ": ", error.message()));
    struct stat info {};
    if (::stat(entries->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (stamp.files.size() == kMaxRawFiles) return absl::InvalidArgumentError(absl::StrCat(raw, " has too many files"));
    const std::string path = entries->path().lexically_relative(directory).string();
    PartitionStamp::RawFile& file = stamp.files[path];
    file.bytes = static_cast<uint64_t>(info.st_size);
    file.modifiedNs = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    const auto known = before ? before->stamp.files.find(path) : std::map<std::string, PartitionStamp::RawFile>::const_iterator();
    if (before && known != before->stamp.files.end() && known->second.bytes == file.bytes &&
        known->second.modifiedNs == file.modifiedNs) {
      file.checksum = known->second.checksum;
      continue;
    }
    FARHOP_ASSIGN_OR_RETURN(const FileChecksum found, checksumFile(entries->path().string()));
    file.checksum = found.checksum;
  }
  return stamp;
}

bool isStamped(const std::string& store, const PartitionStamp& stamp) {
  const std::optional<Stored> stored = readStamp(store);
  const auto sameFile = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.bytes == b.second.bytes && a.second.checksum == b.second.checksum;
  };
  return stored && stored->stamp.arguments == stamp.arguments && checksumOfStore(store) == stored->store &&
         std::equal(stored->stamp.files.begin(), stored->stamp.files.end(), stamp.files.begin(), stamp.files.end(), sameFile);
}

absl::Status putStamp(const std::string& store, const PartitionStamp& stamp) {
  const std::optional<uint64_t> checksum = checksumOfStore(store);
  if (!checksum) return absl::NotFoundError(absl::StrCat(store, " has no graph.json"));
  return writeFileAtomically(stampPath(store),
                             toJson(stamp, *checksum).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace farhop::launcher
