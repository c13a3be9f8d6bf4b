// Node features that the running job makes: known by name next to the store's, rows in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::sampler {

// A table and what keeps its memory alive; null where the graph's mapping does.
struct OwnTable : partition::FeatureTable {
  std::shared_ptr<const void> owner;
};

// Every process of a job adds the same features in the same order, so that an index means the same on all. A process
// that is through with a feature retires it, but goes on serving its rows to others until all have: they agree on that
// and release it. What a feature was stays known. Thread-safe.
class JobFeatures {
 public:
  // Smallest index, above those of any store's features.
  static constexpr uint32_t kFirstIndex = 0x80000000;

  // Takes the next index for a feature that nobody can pull yet. AlreadyExists when one of that name is there, made or
  // in the making; an index is used up all the same.
  absl::StatusOr<uint32_t> add(int nodeType, partition::FeatureSpec spec);
  // From now on it can be found and read: tables[partition] are its rows there, null for partitions of others; `owner`
  // holds them.
  void publish(uint32_t index, std::vector<const std::byte*> tables, std::shared_ptr<const void> owner);
  // Its name is free and finds it no more; its rows can still be read by index. One in the making is gone.
  void retire(uint32_t index);
  std::vector<uint32_t> retired() const;
  // Lets go of the rows of those of `indexes` that are retired, but for whoever reads them at the moment.
  void release(const std::vector<uint32_t>& indexes);

  // The index of a feature that can be read; NotFound, or FailedPrecondition while it is in the making.
  absl::StatusOr<uint32_t> find(int nodeType, const std::string& name) const;
  // Names of a node type's features that can be read.
  std::vector<std::string> names(int nodeType) const;
  // True for an index of the node type's that add() has given, also when the feature is gone.
  bool known(int nodeType, uint32_t index) const;
  // Of a known index.
  partition::FeatureSpec spec(uint32_t index) const;
  // Rows of an own partition, or FailedPrecondition: released, or not there yet.
  absl::StatusOr<OwnTable> table(uint32_t index, int partition, uint64_t rows) const;

 private:
  enum class State { kMaking, kReadable, kRetired, kReleased };
  struct Feature {
    int nodeType = 0;
    partition::FeatureSpec spec;
    State state = State::kMaking;
    std::vector<const std::byte*> tables;
    std::shared_ptr<const void> owner;
  };

  // Whether its name is taken.
  static bool isNamed(const Feature& feature) { return feature.state == State::kMaking || feature.state == State::kReadable; }

  mutable std::mutex mutex_;
  std::vector<Feature> features_;  // by index - kFirstIndex; guarded by mutex_
};

}  // namespace farhop::sampler
