#include "partition/stage_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/socket.h"

namespace farhop::partition {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json toJson(const std::string& stage, const FinishedStage& finished) {
  Json files = Json::object();
  for (const auto& [path, file] : finished.files) files[path] = {file.bytes, file.checksum};
  return {{"stage", stage}, {"files", files}, {"numbers", finished.numbers}};
}

// Whether the files are there and as long as they were.
bool filesExist(const std::string& directory, const FinishedStage& finished) {
  for (const auto& [path, file] : finished.files) {
    std::error_code error;
    if (fs::file_size(fs::path(directory) / path, error) != file.bytes || error) return false;
  }
  return true;
}

absl::Status removeOthers(const std::string& directory, const std::set<std::string>& kept) {
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(directory).string();
    if (!it->is_directory() && kept.count(name) == 0) others.push_back(it->path());
  }
  for (const fs::path& path : others) {
    if (!error) fs::remove(path, error);
  }
  return error ? errnoStatus(absl::StrCat("clearing ", directory), error.value()) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageJournal> StageJournal::open(const std::string& directory, const std::string& key) {
  StageJournal journal;
  journal.directory_ = directory;
  journal.path_ = absl::StrCat(directory, "/", kJournalFile);
  std::set<std::string> kept;
  auto text = readFile(journal.path_);
  std::string sound;  // lines that are gone on from
  // A line that a kill has cut short ends what is known.
  for (size_t at = 0; text.ok() && !key.empty();) {
    const size_t end = text->find('\n', at);
    if (end == std::string::npos) break;
    const Json line = Json::parse(text->substr(at, end - at), nullptr, false);
    if (at == 0) {
      if (!line.is_object() || line.value("key", "") != key) break;
    } else {
      try {
        FinishedStage finished;
        for (const auto& [path, file] : line.at("files").items()) {
          finished.files[path] = {file.at(0).get<uint64_t>(), file.at(1).get<uint64_t>()};
        }
        finished.numbers = line.at("numbers").get<std::vector<std::vector<uint64_t>>>();
        if (!filesExist(directory, finished)) break;
        for (const auto& [path, file] : finished.files) kept.insert(path);
        journal.stages_[line.at("stage").get<std::string>()] = std::move(finished);
      } catch (const Json::exception&) {
        break;
      }
    }
    sound += text->substr(at, end + 1 - at);
    at = end + 1;
  }
  journal.found_ = journal.stages_.size();
  FARHOP_RETURN_IF_ERROR(removeOthers(directory, kept));
  if (sound.empty()) sound = Json({{"key", key}}).dump() + "\n";
  FARHOP_RETURN_IF_ERROR(writeFileAtomically(journal.path_, sound));
  return journal;
}

const FinishedStage* StageJournal::find(const std::string& stage) const {
  const auto found = stages_.find(stage);
  return found == stages_.end() ? nullptr : &found->second;
}

absl::Status StageJournal::add(const std::string& stage, const FinishedStage& finished) {
  for (const auto& [path, file] : finished.files) {
    FARHOP_RETURN_IF_ERROR(syncFile(absl::StrCat(directory_, "/", path)));
  }
  FARHOP_RETURN_IF_ERROR(append(toJson(stage, finished).dump() + "\n"));
  stages_[stage] = finished;
  return absl::OkStatus();
}

absl::Status StageJournal::append(const std::string& line) const {
  const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file.valid()) return errnoStatus(absl::StrCat("opening ", path_), errno);
  if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) || ::fsync(file.get()) != 0) {
    return errnoStatus(absl::StrCat("writing ", path_), errno == 0 ? ENOSPC : errno);
  }
  return absl::OkStatus();
}

}  // namespace farhop::partition
