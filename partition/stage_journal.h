// What of a store has been written, on disk, so that a run that was killed is gone on with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/manifest.h"

namespace farhop::partition {

// A stage that has ended: the files that it wrote, and numbers that a later run needs of it.
struct FinishedStage {
  std::map<std::string, StoredFile> files;
  std::vector<std::vector<uint64_t>> numbers;
};

// A file of one line per finished stage. Not thread-safe.
class StageJournal {
 public:
  // Reads the journal of an earlier run in `directory`, if it was for the same `key` (what is written and from what):
  // stages up to the first whose files are not there any more. Removes every file of the directory that belongs to none
  // of them. An empty key keeps nothing.
  static absl::StatusOr<StageJournal> open(const std::string& directory, const std::string& key);

  // Null when the stage has not ended.
  const FinishedStage* find(const std::string& stage) const;
  // Syncs the stage's files and then notes it.
  absl::Status add(const std::string& stage, const FinishedStage& finished);
  size_t stagesFound() const { return found_; }

 private:
  absl::Status append(const std::string& line) const;

  std::string directory_;
  std::string path_;
  size_t found_ = 0;  // that an earlier run had finished
  std::map<std::string, FinishedStage> stages_;
};

// Beside graph.json, removed before a store is finished.
inline constexpr char kJournalFile[] = "stages.jsonl";

}  // namespace farhop::partition
