#include "sampler/job_features.h"

#include <utility>

namespace farhop::sampler {

absl::StatusOr<uint32_t> JobFeatures::add(int nodeType, partition::FeatureSpec spec) {
  std::lock_guard lock(mutex_);
  absl::Status status;
  for (const Feature& other : features_) {
    if (other.nodeType != nodeType || other.spec.name != spec.name || !isNamed(other)) continue;
    status = absl::AlreadyExistsError(absl::StrCat("the job has a node feature '", spec.name,
                                                   "' already; let go of its handle, or take another name"));
  }
  Feature feature;
  feature.nodeType = nodeType;
  feature.spec = std::move(spec);
  if (!status.ok()) feature.state = State::kReleased;
  features_.push_back(std::move(feature));
  if (!status.ok()) return status;
  return kFirstIndex + static_cast<uint32_t>(features_.size() - 1);
}

void JobFeatures::publish(uint32_t index, std::vector<const std::byte*> tables, std::shared_ptr<const void> owner) {
  std::lock_guard lock(mutex_);
  Feature& feature = features_[index - kFirstIndex];
  feature.state = State::kReadable;
  feature.tables = std::move(tables);
  feature.owner = std::move(owner);
}

void JobFeatures::retire(uint32_t index) {
  std::lock_guard lock(mutex_);
  Feature& feature = features_[index - kFirstIndex];
  feature.state = feature.state == State::kReadable ? State::kRetired : State::kReleased;
}

std::vector<uint32_t> JobFeatures::retired() const {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> indexes;
  for (size_t i = 0; i < features_.size(); ++i) {
    if (features_[i].state == State::kRetired) indexes.push_back(kFirstIndex + static_cast<uint32_t>(i));
  }
  return indexes;
}

void JobFeatures::release(const std::vector<uint32_t>& indexes) {
  std::vector<std::shared_ptr<const void>> owners;  // let go of after the lock: it may unmap a lot
  std::lock_guard lock(mutex_);
  for (uint32_t index : indexes) {
    if (index < kFirstIndex || index - kFirstIndex >= features_.size()) continue;
    Feature& feature = features_[index - kFirstIndex];
    if (feature.state != State::kRetired) continue;
    feature.state = State::kReleased;
    feature.tables.clear();
    owners.push_back(std::move(feature.owner));
  }
}

absl::StatusOr<uint32_t> JobFeatures::find(int nodeType, const std::string& name) const {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < features_.size(); ++i) {
    const Feature& feature = features_[i];
    if (feature.nodeType != nodeType || feature.spec.name != name || !isNamed(feature)) continue;
    if (feature.state == State::kReadable) return kFirstIndex + static_cast<uint32_t>(i);
    return absl::FailedPreconditionError(absl::StrCat("node feature '", name, "' is not finished; pull it after finish()"));
  }
  return absl::NotFoundError(absl::StrCat("the job has no node feature '", name, "'"));
}

std::vector<std::string> JobFeatures::names(int nodeType) const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Feature& feature : features_) {
    if (feature.nodeType == nodeType && feature.state == State::kReadable) names.push_back(feature.spec.name);
  }
  return names;
}

bool JobFeatures::known(int nodeType, uint32_t index) const {
  std::lock_guard lock(mutex_);
  return index >= kFirstIndex && index - kFirstIndex < features_.size() &&
         features_[index - kFirstIndex].nodeType == nodeType;
}

partition::FeatureSpec JobFeatures::spec(uint32_t index) const {
  std::lock_guard lock(mutex_);
  return features_[index - kFirstIndex].spec;
}

absl::StatusOr<OwnTable> JobFeatures::table(uint32_t index, int partition, uint64_t rows) const {
  std::lock_guard lock(mutex_);
  const Feature& feature = features_[index - kFirstIndex];
  if (feature.state == State::kMaking || feature.state == State::kReleased) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node feature '", feature.spec.name, "' of the job is ",
        feature.state == State::kReleased ? "gone: all processes have let go of its handle" : "not finished"));
  }
  OwnTable table;
  table.spec = feature.spec;
  table.rows = rows;
  table.data = feature.tables[static_cast<size_t>(partition)];
  table.owner = feature.owner;
  return table;
}

}  // namespace farhop::sampler
