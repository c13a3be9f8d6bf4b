// A data set directory being written: arrays, metadata.yaml, and a record of where they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "partition/staged_directory.h"

namespace farhop::importers {

inline constexpr char kMetadataFile[] = "metadata.yaml";
// Tells a directory that Farhop has written, which --force may replace, from one that holds somebody's data.
inline constexpr char kRecordFile[] = "farhop.json";

// What a metadata.yaml says (docs/importing.md, "What is written"). Paths are relative to the directory.
struct DatasetDescription {
  struct Nodes {
    std::string type;
    uint64_t count = 0;
    std::string partitionPath;   // partition of each node, int32 .npy; empty where the source knows none
    std::string dictionaryPath;  // the source's own ids by node; empty where they are the node's numbers
  };
  struct Edges {
    std::string type;  // "source:relation:destination"
    std::string path;
  };
  struct Feature {
    std::string domain;  // "node", "edge" or "graph"
    std::string type;
    std::string name;
    std::string path;
  };
  struct SetData {
    std::string name;  // "seeds", "labels", ...
    std::string path;
  };
  struct Set {
    std::string split;  // "train", "validation" or "test"
    std::string type;
    std::vector<SetData> data;
  };
  struct Task {
    std::string name;
    std::optional<uint64_t> numClasses;
    std::vector<Set> sets;
  };

  std::string name;
  int numPartitions = 0;  // where nodes have a partitionPath
  std::vector<Nodes> nodes;
  std::vector<Edges> edges;
  std::vector<Feature> features;
  std::vector<Task> tasks;
};

// The text of metadata.yaml. A graph of one node type "_N" and one relation "_E" is written without types, as
// homogeneous graphs are.
std::string formatMetadata(const DatasetDescription& description);

// Calls report(step, done, total) now and then, `done` and `total` in the unit that the step's name says; total is 0 where
// it is not known. May be empty.
using ProgressReport = std::function<void(const std::string& step, uint64_t done, uint64_t total)>;

// Not thread-safe. Destroyed without commit(), it leaves nothing.
class DatasetOutput {
 public:
  // As partition::StagedDirectory::create(): a directory that Farhop has not written is never replaced.
  static absl::StatusOr<DatasetOutput> create(const std::string& directory, bool force);

  DatasetDescription& description() { return description_; }
  // "NAME.npy" made of a file name's parts, each with its odd characters written as %XX, and not taken yet.
  std::string newFile(const std::vector<std::string>& parts, absl::string_view ending = ".npy");
  // Where a file of the directory is written.
  std::string pathOf(const std::string& file) const { return staged_.path() + "/" + file; }

  // Writes metadata.yaml and the record (`source`: what it was made of), reads the data set back with all checks that
  // `farhop partition` makes, and puts it in its place.
  absl::Status commit(const std::string& kind, const std::vector<std::string>& sources);

 private:
  explicit DatasetOutput(partition::StagedDirectory staged) : staged_(std::move(staged)) {}

  partition::StagedDirectory staged_;
  DatasetDescription description_;
  std::vector<std::string> taken_;
};

}  // namespace farhop::importers
