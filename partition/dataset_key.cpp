#include "partition/dataset_key.h"

#include <sys/stat.h>

#include <cstring>

#include "base/file.h"
#include "base/random.h"

namespace farhop::partition {
namespace {

class Key {
 public:
  void add(uint64_t number) {
    low_ = combineKey(low_, number);
    high_ = combineKey(high_ + kGoldenGamma, number);
  }
  void add(const std::string& text) {
    add(text.size());
    add(checksum64(std::as_bytes(std::span<const char>(text.data(), text.size()))));
  }
  // True where `origin` is a file, which then stands for what it holds.
  bool addFile(const std::string& origin) {
    struct stat info {};
    if (::stat(origin.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    add(origin);
    add(static_cast<uint64_t>(info.st_size));
    add(static_cast<uint64_t>(info.st_mtim.tv_sec));
    add(static_cast<uint64_t>(info.st_mtim.tv_nsec));
    return true;
  }
  void add(const IdColumn& ids) {
    add(ids.size());
    for (uint64_t i = 0; i < ids.size(); ++i) add(ids[i]);
  }
  void add(const FeatureSpec& spec, const FeatureColumn& column) {
    add(spec.name);
    add(static_cast<uint64_t>(spec.dtype));
    for (uint64_t dimension : spec.rowShape) add(dimension);
    add(column.rows);
    // Labels of nodes come from several files, of which the origin names one.
    if (spec.name == kLabelFeature || !addFile(column.origin)) add(checksum64({column.data, column.rows * spec.rowBytes()}));
  }

  std::string text() const { return absl::StrCat(low_, "-", high_); }

 private:
  uint64_t low_ = 1, high_ = 2;
};

}  // namespace

std::string datasetKey(const Dataset& dataset) {
  Key key;
  key.add(dataset.name);
  key.add(dataset.task);
  key.add(static_cast<uint64_t>(dataset.numClasses));
  for (size_t t = 0; t < dataset.schema.nodeTypes.size(); ++t) {
    const NodeType& type = dataset.schema.nodeTypes[t];
    key.add(type.name);
    key.add(type.count);
    key.add(type.timeFeature);
    key.add(type.features.size());
    for (size_t f = 0; f < type.features.size(); ++f) key.add(type.features[f], dataset.nodeFeatures[t][f]);
  }
  for (size_t r = 0; r < dataset.schema.relations.size(); ++r) {
    const Relation& relation = dataset.schema.relations[r];
    for (const std::string* name : {&relation.name, &relation.timeFeature, &relation.weightFeature}) key.add(*name);
    for (uint64_t number : {static_cast<uint64_t>(relation.source), static_cast<uint64_t>(relation.destination),
                            relation.count}) {
      key.add(number);
    }
    const EdgeList& edges = dataset.edges[r];
    if (!key.addFile(edges.origin)) {
      key.add(edges.source);
      key.add(edges.destination);
    }
    key.add(relation.features.size());
    for (size_t f = 0; f < relation.features.size(); ++f) key.add(relation.features[f], dataset.edgeFeatures[r][f]);
  }
  for (const SplitSeeds& split : dataset.splits) {
    key.add(split.name);
    key.add(static_cast<uint64_t>(split.nodeType));
    key.add(split.ids.size());
    for (uint64_t id : split.ids) key.add(id);
  }
  for (const EdgeSplitSeeds& split : dataset.edgeSplits) {
    key.add(split.name);
    key.add(static_cast<uint64_t>(split.relation));
    if (!key.addFile(split.origin)) {
      key.add(split.source);
      key.add(split.destination);
    }
    if (split.labelSpec) key.add(*split.labelSpec, split.labels);
  }
  return key.text();
}

}  // namespace farhop::partition
