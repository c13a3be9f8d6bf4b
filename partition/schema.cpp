#include "partition/schema.h"

namespace farhop::partition {
namespace {

constexpr size_t kMaxListedNames = 50;

void appendName(std::string* list, size_t index, const std::string& name) {
  if (index > kMaxListedNames) return;
  absl::StrAppend(list, index == 0 ? "" : ", ", index == kMaxListedNames ? "..." : name);
}

}  // namespace

size_t FeatureSpec::rowElements() const {
  size_t product = 1;
  for (uint64_t dimension : rowShape) product *= static_cast<size_t>(dimension);
  return product;
}

const FeatureSpec* findFeature(const std::vector<FeatureSpec>& features, absl::string_view name) {
  for (const FeatureSpec& feature : features) {
    if (absl::string_view(feature.name) == name) return &feature;
  }
  return nullptr;
}

absl::StatusOr<int> Schema::nodeTypeIndex(const std::string& name) const {
  std::string known;
  for (size_t i = 0; i < nodeTypes.size(); ++i) {
    if (nodeTypes[i].name == name) return static_cast<int>(i);
    appendName(&known, i, nodeTypes[i].name);
  }
  return absl::NotFoundError(absl::StrCat("no node type '", name, "'; there are: ", known));
}

absl::StatusOr<int> Schema::relationIndex(const std::string& name) const {
  int found = -1;
  bool ambiguous = false;
  std::string known;
  for (size_t i = 0; i < relations.size(); ++i) {
    const int index = static_cast<int>(i);
    const std::string text = relationText(index);
    if (text == name) return index;
    if (relations[i].name == name) {
      ambiguous = found >= 0;
      found = index;
    }
    appendName(&known, i, text);
  }
  if (ambiguous) {
    return absl::InvalidArgumentError(absl::StrCat("several relations are called '", name,
                                                   "'; say which as source:name:destination: ", known));
  }
  if (found >= 0) return found;
  return absl::NotFoundError(absl::StrCat("no relation '", name, "'; there are: ", known));
}

std::string Schema::relationText(int relation) const {
  const Relation& r = relations[relation];
  return absl::StrCat(nodeTypes[r.source].name, ":", r.name, ":", nodeTypes[r.destination].name);
}

bool Schema::hasTimes(int relation) const {
  const Relation& r = relations[relation];
  return !r.timeFeature.empty() || !nodeTypes[r.source].timeFeature.empty();
}

bool Schema::storesWeights(int relation) const {
  const Relation& r = relations[relation];
  if (r.weightFeature.empty()) return false;
  // A forward float32 feature is the weights as they are.
  const FeatureSpec* feature = findFeature(r.features, r.weightFeature);
  return feature == nullptr || feature->dtype != DType::kFloat32;
}

}  // namespace farhop::partition
