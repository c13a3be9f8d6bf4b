#include "partition/dataset_tasks.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "partition/dataset_arrays.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

// Labels of one node type, collected over the sets. Integers become int64 with -1 where there is none,
// floating numbers keep their type with NaN where there is none.
class LabelTable {
 public:
  LabelTable(const FeatureSpec& spec, uint64_t rows) : rows_(rows), present_(rows) {
    spec_ = {kLabelFeature, isIntegerDType(spec.dtype) ? DType::kInt64 : spec.dtype, spec.rowShape};
    data_.resize(rows * spec_.rowBytes());
    const size_t elements = static_cast<size_t>(rows) * spec_.rowElements();
    switch (spec_.dtype) {
      case DType::kInt64:
        fill<int64_t>(elements, -1);
        break;
      case DType::kFloat64:
        fill<double>(elements, std::numeric_limits<double>::quiet_NaN());
        break;
      default:
        fill<float>(elements, std::numeric_limits<float>::quiet_NaN());
        break;
    }
  }

  static bool takes(DType dtype) {
    return isIntegerDType(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
  }

  absl::Status add(const IdColumn& seeds, const FeatureArray& labels) {
    const size_t rowBytes = spec_.rowBytes(), elements = spec_.rowElements();
    const DType expected = isIntegerDType(labels.spec.dtype) ? DType::kInt64 : labels.spec.dtype;
    if (expected != spec_.dtype || labels.spec.rowShape != spec_.rowShape) {
      return absl::InvalidArgumentError(
          absl::StrCat(labels.column.origin, ": labels differ in dtype or shape from those of another set"));
    }
    std::vector<std::byte> row(rowBytes);
    const size_t inputBytes = labels.spec.rowBytes();
    for (uint64_t i = 0; i < seeds.size(); ++i) {
      const std::byte* input = labels.column.data + i * inputBytes;
      if (spec_.dtype == DType::kInt64) {
        widen(labels.spec.dtype, input, elements, reinterpret_cast<int64_t*>(row.data()));
      } else {
        std::memcpy(row.data(), input, rowBytes);
      }
      const uint64_t id = seeds[i];
      std::byte* own = data_.data() + id * rowBytes;
      if (present_[id] && std::memcmp(own, row.data(), rowBytes) != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(labels.column.origin, ": node ", id, " has got another label before"));
      }
      std::memcpy(own, row.data(), rowBytes);
      present_[id] = true;
    }
    return absl::OkStatus();
  }

  FeatureArray finish(const std::string& origin) && {
    auto shared = std::make_shared<const std::vector<std::byte>>(std::move(data_));
    return {spec_, {shared->data(), rows_, shared, origin}};
  }

 private:
  template <typename T>
  void fill(size_t elements, T value) {
    for (size_t i = 0; i < elements; ++i) std::memcpy(data_.data() + i * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  static int64_t load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return static_cast<int64_t>(value);
  }
  static void widen(DType dtype, const std::byte* input, size_t elements, int64_t* output) {
    for (size_t i = 0; i < elements; ++i) {
      const std::byte* at = input + i * dtypeBytes(dtype);
      switch (dtype) {
        case DType::kInt8:
          output[i] = load<int8_t>(at);
          break;
        case DType::kInt16:
          output[i] = load<int16_t>(at);
          break;
        case DType::kInt32:
          output[i] = load<int32_t>(at);
          break;
        case DType::kUInt8:
          output[i] = load<uint8_t>(at);
          break;
        case DType::kUInt16:
          output[i] = load<uint16_t>(at);
          break;
        case DType::kUInt32:
          output[i] = load<uint32_t>(at);
          break;
        default:
          output[i] = load<int64_t>(at);
          break;
      }
    }
  }

  FeatureSpec spec_;
  uint64_t rows_;
  std::vector<std::byte> data_;
  std::vector<bool> present_;
};

class TaskReader {
 public:
  TaskReader(const std::string& directory, Dataset* dataset)
      : directory_(directory), dataset_(*dataset), labels_(dataset->schema.nodeTypes.size()) {}

  absl::Status read(const YamlReader& task) {
    FARHOP_ASSIGN_OR_RETURN(dataset_.task, task.textOr("name", ""));
    if (task.has("num_classes")) {
      FARHOP_ASSIGN_OR_RETURN(uint64_t classes, task.count("num_classes"));
      if (classes > INT32_MAX) return task.error("'num_classes' is too large");
      dataset_.numClasses = static_cast<int64_t>(classes);
    }
    const std::pair<const char*, const char*> sets[] = {
        {"train_set", "train"}, {"validation_set", "validation"}, {"test_set", "test"}};
    for (const auto& [key, name] : sets) {
      FARHOP_RETURN_IF_ERROR(
          task.each(key, [&, split = name](const YamlReader& set) { return readSet(set, split); }));
    }
    for (SplitSeeds& split : dataset_.splits) std::sort(split.ids.begin(), split.ids.end());
    return addLabels();
  }

 private:
  // What a set says its seeds are: a node type, a relation, or nothing (both -1).
  struct SeedKind {
    int nodeType = -1;
    int relation = -1;
  };

  absl::StatusOr<SeedKind> kindOf(const YamlReader& set) {
    SeedKind kind;
    if (!set.has("type")) return kind;
    const Schema& schema = dataset_.schema;
    FARHOP_ASSIGN_OR_RETURN(std::string name, set.text("type"));
    const auto nodeType = schema.nodeTypeIndex(name);
    const auto relation = schema.relationIndex(name);
    if (nodeType.ok()) {
      kind.nodeType = *nodeType;
    } else if (relation.ok()) {
      kind.relation = *relation;
    } else {
      // A colon shows which of the two was meant.
      const bool ofEdges = name.find(':') != std::string::npos;
      return set.error(ofEdges ? relation.status().message() : nodeType.status().message());
    }
    return kind;
  }

  // Completes the kind by what the file holds; they must agree.
  absl::Status settleKind(const YamlReader& set, const SeedArray& seeds, SeedKind* kind) {
    const Schema& schema = dataset_.schema;
    if (kind->nodeType < 0 && kind->relation < 0) {
      const size_t choices = seeds.isPairs ? schema.relations.size() : schema.nodeTypes.size();
      if (choices > 1) {
        return set.error(seeds.isPairs ? "a set of edges needs a 'type' (source:relation:destination) where there are "
                                         "several relations"
                                       : "a set needs a 'type' where there are several node types");
      }
      (seeds.isPairs ? kind->relation : kind->nodeType) = 0;
    }
    if (seeds.isPairs == (kind->relation >= 0)) return absl::OkStatus();
    return set.error(seeds.isPairs
                         ? absl::StrCat(seeds.origin, " holds pairs of nodes, so 'type' must be a relation "
                                        "(source:relation:destination), not the node type '",
                                        schema.nodeTypes[kind->nodeType].name, "'")
                         : absl::StrCat(seeds.origin, " is of one dimension; seeds of '",
                                        schema.relationText(kind->relation), "' are edges, of shape (n, 2)"));
  }

  absl::Status readSet(const YamlReader& set, const std::string& split) {
    FARHOP_ASSIGN_OR_RETURN(SeedKind kind, kindOf(set));
    std::optional<SeedArray> seeds;
    std::optional<FeatureArray> labels;
    FARHOP_ASSIGN_OR_RETURN(YamlReader data, set.required("data"));
    FARHOP_RETURN_IF_ERROR(set.each("data", [&](const YamlReader& entry) -> absl::Status {
      FARHOP_ASSIGN_OR_RETURN(std::string name, entry.text("name"));
      // What GraphBolt called them before DGL 2.2; what else a set holds is for its trainer.
      const bool isSeeds = name == "seeds" || name == "seed_nodes" || name == "node_pairs";
      if (!isSeeds && name != "labels") return absl::OkStatus();
      FARHOP_ASSIGN_OR_RETURN(std::string format, entry.text("format"));
      FARHOP_ASSIGN_OR_RETURN(std::string file, entry.text("path"));
      const std::string path = (std::filesystem::path(directory_) / file).string();
      if (isSeeds) {
        FARHOP_ASSIGN_OR_RETURN(seeds, readSeeds(path, format));
      } else {
        FARHOP_ASSIGN_OR_RETURN(labels, readFeature(path, format, kLabelsName));
      }
      return absl::OkStatus();
    }));
    if (!seeds) return data.error("this set has no 'seeds'");
    FARHOP_RETURN_IF_ERROR(settleKind(set, *seeds, &kind));
    if (labels && labels->column.rows != seeds->nodes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(labels->column.origin, " has ", labels->column.rows,
                                                     " labels for ", seeds->nodes.size(), " seeds"));
    }
    if (kind.relation >= 0) return addEdges(split, kind.relation, *seeds, labels);
    FARHOP_RETURN_IF_ERROR(addSeeds(split, kind.nodeType, seeds->nodes, seeds->origin));
    return labels ? collectLabels(kind.nodeType, seeds->nodes, *labels) : absl::OkStatus();
  }

  // Several sets of one relation and split follow each other.
  absl::Status addEdges(const std::string& split, int relation, const SeedArray& seeds,
                        const std::optional<FeatureArray>& labels) {
    FARHOP_RETURN_IF_ERROR(
        checkSeedEnds(dataset_.schema, relation, seeds.nodes, seeds.destinations, seeds.origin));
    EdgeSplitSeeds added{split, relation, seeds.nodes, seeds.destinations, seeds.origin, {}, {}};
    if (labels) {
      added.labelSpec = labels->spec;
      added.labels = labels->column;
    }
    for (EdgeSplitSeeds& known : dataset_.edgeSplits) {
      if (known.name == split && known.relation == relation) return appendEdges(added, &known);
    }
    dataset_.edgeSplits.push_back(std::move(added));
    return absl::OkStatus();
  }

  static absl::Status appendEdges(const EdgeSplitSeeds& added, EdgeSplitSeeds* split) {
    const bool alike = added.labelSpec.has_value() == split->labelSpec.has_value() &&
                       (!added.labelSpec || (added.labelSpec->dtype == split->labelSpec->dtype &&
                                             added.labelSpec->rowShape == split->labelSpec->rowShape));
    if (!alike) {
      return absl::InvalidArgumentError(absl::StrCat(
          added.origin, ": labels differ in dtype or shape, or in being there, from those of ", split->origin,
          ", a set of the same edges"));
    }
    const auto joined = [](const IdColumn& first, const IdColumn& second) {
      std::vector<uint64_t> ids;
      ids.reserve(first.size() + second.size());
      for (const IdColumn* column : {&first, &second}) {
        for (uint64_t i = 0; i < column->size(); ++i) ids.push_back((*column)[i]);
      }
      return IdColumn(std::move(ids));
    };
    split->source = joined(split->source, added.source);
    split->destination = joined(split->destination, added.destination);
    if (!added.labelSpec) return absl::OkStatus();
    auto rows = std::make_shared<std::vector<std::byte>>();
    const size_t rowBytes = added.labelSpec->rowBytes();
    rows->insert(rows->end(), split->labels.data, split->labels.data + split->labels.rows * rowBytes);
    rows->insert(rows->end(), added.labels.data, added.labels.data + added.labels.rows * rowBytes);
    split->labels = {rows->data(), split->labels.rows + added.labels.rows, rows, split->labels.origin};
    return absl::OkStatus();
  }

  absl::Status addSeeds(const std::string& split, int type, const IdColumn& seeds, const std::string& path) {
    const NodeType& nodeType = dataset_.schema.nodeTypes[type];
    auto known = std::find_if(dataset_.splits.begin(), dataset_.splits.end(),
                              [&](const SplitSeeds& s) { return s.name == split && s.nodeType == type; });
    if (known == dataset_.splits.end()) known = dataset_.splits.insert(known, SplitSeeds{split, type, {}});
    for (uint64_t i = 0; i < seeds.size(); ++i) {
      if (seeds[i] >= nodeType.count) {
        return absl::OutOfRangeError(absl::StrCat(path, ": seed ", i, " is ", seeds.text(i), ", but type '",
                                                  nodeType.name, "' has ", nodeType.count, " nodes"));
      }
      known->ids.push_back(seeds[i]);
    }
    return absl::OkStatus();
  }

  absl::Status collectLabels(int type, const IdColumn& seeds, const FeatureArray& labels) {
    const NodeType& nodeType = dataset_.schema.nodeTypes[type];
    for (const FeatureSpec& spec : nodeType.features) {
      if (spec.name == kLabelFeature) return absl::OkStatus();
    }
    if (!LabelTable::takes(labels.spec.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(labels.column.origin, " holds ",
                                                     dtypeName(labels.spec.dtype),
                                                     "; labels are integers, float32 or float64"));
    }
    if (!labels_[type]) labels_[type].emplace(labels.spec, nodeType.count);
    labelOrigin_ = labels.column.origin;
    return labels_[type]->add(seeds, labels);
  }

  absl::Status addLabels() {
    for (size_t t = 0; t < labels_.size(); ++t) {
      if (!labels_[t]) continue;
      FeatureArray feature = (*std::move(labels_[t])).finish(labelOrigin_);
      dataset_.schema.nodeTypes[t].features.push_back(std::move(feature.spec));
      dataset_.nodeFeatures[t].push_back(std::move(feature.column));
    }
    return absl::OkStatus();
  }

  const std::string& directory_;
  Dataset& dataset_;
  std::vector<std::optional<LabelTable>> labels_;  // by node type
  std::string labelOrigin_;
};

}  // namespace

absl::Status readTasks(const YamlReader& root, const std::string& directory, const std::string& task,
                       Dataset* dataset) {
  bool found = false;
  std::string known;
  FARHOP_RETURN_IF_ERROR(root.each("tasks", [&](const YamlReader& entry) -> absl::Status {
    FARHOP_ASSIGN_OR_RETURN(std::string name, entry.textOr("name", ""));
    absl::StrAppend(&known, known.empty() ? "" : ", ", "'", name, "'");
    if (found || (!task.empty() && name != task)) return absl::OkStatus();
    found = true;
    return TaskReader(directory, dataset).read(entry);
  }));
  if (found || task.empty() || task == "none") return absl::OkStatus();
  return root.optional("tasks").error(
      absl::StrCat("there is no task '", task, "'; there are: ", known.empty() ? "none" : known));
}

}  // namespace farhop::partition
