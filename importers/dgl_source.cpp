// Partitions that DGL writes: dgl.distributed.partition_graph and the dispatcher of its tools, as DGL or GraphBolt graphs.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "importers/dgl_file.h"
#include "importers/fused_graph.h"
#include "importers/partition_parts.h"
#include "importers/scatter_npy.h"
#include "importers/sources.h"
#include "partition/dataset.h"

namespace farhop::importers {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxPartitions = 65536;

// Ids after partitioning, over all types: each (partition, type) has a range. Ids of a type alone count its ranges on.
class IdRanges {
 public:
  struct Place {
    size_t type = 0;
    int partition = 0;
    uint64_t id = 0;  // among its type's
  };

  // {"type": [[begin, end], ...]}, or ends only.
  absl::Status read(const nlohmann::json& map, const std::vector<std::string>& types, int partitions, const std::string& where) {
    counts_.assign(types.size(), 0);
    for (size_t t = 0; t < types.size(); ++t) {
      const auto ranges = map.find(types[t]);
      if (ranges == map.end() || !ranges->is_array() || ranges->size() != static_cast<size_t>(partitions)) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": there are no ranges of ", types[t], " for each partition"));
      }
      uint64_t before = 0;
      for (int p = 0; p < partitions; ++p) {
        const nlohmann::json& range = (*ranges)[static_cast<size_t>(p)];
        const bool pair = range.is_array() && range.size() == 2 && range[0].is_number_integer() && range[1].is_number_integer();
        if (!pair && !range.is_number_integer()) return absl::InvalidArgumentError(absl::StrCat(where, ": a range of ", types[t], " is none"));
        const uint64_t begin = pair ? range[0].get<uint64_t>() : before;
        const uint64_t end = pair ? range[1].get<uint64_t>() : range.get<uint64_t>();
        if (end < begin || end >> 48 != 0) return absl::InvalidArgumentError(absl::StrCat(where, ": a range of ", types[t], " is none"));
        before = end;
        starts_.push_back({begin, end, t, p, counts_[t]});
        counts_[t] += end - begin;
      }
    }
    std::sort(starts_.begin(), starts_.end(), [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      if (starts_[i].end > starts_[i + 1].begin) return absl::InvalidArgumentError(absl::StrCat(where, ": ranges overlap"));
    }
    return absl::OkStatus();
  }

  uint64_t count(size_t type) const { return counts_[type]; }
  // Where the type's ids in a partition begin, among the type's, and how many they are.
  uint64_t first(size_t type, int partition) const { return rangeOf(type, partition).before; }
  uint64_t size(size_t type, int partition) const { return rangeOf(type, partition).end - rangeOf(type, partition).begin; }

  bool find(uint64_t id, Place* place) const {
    auto after = std::upper_bound(starts_.begin(), starts_.end(), id, [](uint64_t value, const Range& range) { return value < range.begin; });
    if (after == starts_.begin()) return false;
    const Range& range = *--after;
    if (id >= range.end) return false;
    *place = {range.type, range.partition, range.before + (id - range.begin)};
    return true;
  }

 private:
  struct Range {
    uint64_t begin, end;
    size_t type;
    int partition;
    uint64_t before;
  };
  const Range& rangeOf(size_t type, int partition) const {
    return *std::find_if(starts_.begin(), starts_.end(), [&](const Range& range) { return range.type == type && range.partition == partition; });
  }

  std::vector<Range> starts_;
  std::vector<uint64_t> counts_;
};

// Which id of the data set's each id of a type was, by partition; empty where DGL has not written that.
using OriginalIds = std::vector<std::vector<ArrayView>>;  // [type][partition]

class DglImporter {
 public:
  DglImporter(std::string file, DatasetOutput* output) : file_(std::move(file)), directory_(fs::path(file_).parent_path().string()), output_(*output) {
    if (directory_.empty()) directory_ = ".";
  }

  absl::Status run() {
    FARHOP_RETURN_IF_ERROR(readConfig());
    FARHOP_RETURN_IF_ERROR(readOriginalIds("orig_nids.dgl", nodeTypes_, nodeRanges_, &originalNodes_));
    FARHOP_RETURN_IF_ERROR(readOriginalIds("orig_eids.dgl", edgeTypes_, edgeRanges_, &originalEdges_));
    PartitionParts parts(numParts_, &output_);
    for (size_t t = 0; t < nodeTypes_.size(); ++t) FARHOP_RETURN_IF_ERROR(addNodes(t, &parts));
    FARHOP_RETURN_IF_ERROR(addEdges());
    FARHOP_RETURN_IF_ERROR(addFeatures("node", "node_feats", nodeTypes_, nodeRanges_, originalNodes_, &parts));
    return addFeatures("edge", "edge_feats", edgeTypes_, edgeRanges_, originalEdges_, &parts);
  }

 private:
  absl::Status bad(absl::string_view what) const { return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what)); }

  // Names of types by their numbers; the only one's where there are none.
  absl::StatusOr<std::vector<std::string>> typeNames(const char* key, const std::string& only) const {
    const auto types = config_.find(key);
    if (types == config_.end()) return std::vector<std::string>{only};
    if (!types->is_object()) return bad(absl::StrCat("'", key, "' is no object"));
    std::vector<std::string> names(types->size());
    for (const auto& [name, number] : types->items()) {
      const bool known = number.is_number_unsigned() && number.get<uint64_t>() < names.size() && names[number.get<uint64_t>()].empty();
      if (!known) return bad(absl::StrCat("'", key, "' does not number types from 0"));
      names[number.get<uint64_t>()] = name;
    }
    return names;
  }

  absl::Status readConfig() {
    FARHOP_ASSIGN_OR_RETURN(const std::string text, readFile(file_));
    config_ = nlohmann::json::parse(text, nullptr, false);
    if (!config_.is_object()) return bad("this is no JSON object");
    const auto parts = config_.find("num_parts");
    if (parts == config_.end() || !parts->is_number_integer() || *parts < 1 || *parts > kMaxPartitions) return bad("'num_parts' is no number of partitions");
    numParts_ = parts->get<int>();
    FARHOP_ASSIGN_OR_RETURN(nodeTypes_, typeNames("ntypes", partition::kHomogeneousNodeType));
    FARHOP_ASSIGN_OR_RETURN(edgeTypes_, typeNames("etypes", absl::StrCat(partition::kHomogeneousNodeType, ":", partition::kHomogeneousRelation,
                                                                         ":", partition::kHomogeneousNodeType)));
    for (const auto& [key, types, ranges] : {std::tuple{"node_map", &nodeTypes_, &nodeRanges_}, {"edge_map", &edgeTypes_, &edgeRanges_}}) {
      const auto map = config_.find(key);
      if (map == config_.end() || (!map->is_object() && !map->is_array())) {
        return bad(absl::StrCat("'", key, "' lists no ranges (older forms, of a file per map, are not read)"));
      }
      // A single list is of the only type.
      nlohmann::json typed = *map;
      if (map->is_array()) typed = nlohmann::json::object({{(*types)[0], *map}});
      FARHOP_RETURN_IF_ERROR(ranges->read(typed, *types, numParts_, absl::StrCat(file_, " (", key, ")")));
    }
    if (config_.contains("graph_name") && config_["graph_name"].is_string()) output_.description().name = config_["graph_name"].get<std::string>();
    return absl::OkStatus();
  }

  // The path of a partition's file, or where it usually is.
  std::string partFile(int part, const char* key, const char* usual) const {
    const auto entry = config_.find(absl::StrCat("part-", part));
    if (entry != config_.end() && entry->is_object() && entry->contains(key) && (*entry)[key].is_string()) {
      return (fs::path(directory_) / (*entry)[key].get<std::string>()).string();
    }
    return absl::StrCat(directory_, "/part", part, "/", usual);
  }

  absl::Status readOriginalIds(const char* name, const std::vector<std::string>& types, const IdRanges& ranges, OriginalIds* ids) {
    if (!pathExists(absl::StrCat(directory_, "/part0/", name))) return absl::OkStatus();
    ids->resize(types.size());
    for (int part = 0; part < numParts_; ++part) {
      const std::string path = absl::StrCat(directory_, "/part", part, "/", name);
      FARHOP_ASSIGN_OR_RETURN(const TensorMap tensors, openDglTensors(path));
      for (size_t t = 0; t < types.size(); ++t) {
        const auto found = tensors.find(types[t]);
        ArrayView view;
        view.dtype = DType::kInt64;
        view.shape = {0};
        view.strides = {1};
        if (found != tensors.end()) view = found->second;
        if (!view.isInteger() || view.shape.size() != 1 || view.rows() != ranges.size(t, part)) {
          return absl::InvalidArgumentError(absl::StrCat(path, " has ", view.shapeText(), " ids of ", types[t], " for ", ranges.size(t, part)));
        }
        (*ids)[t].push_back(std::move(view));
      }
    }
    return absl::OkStatus();
  }

  static uint64_t originalOf(const IdRanges::Place& place, const IdRanges& ranges, const OriginalIds& ids) {
    if (ids.empty()) return place.id;
    return ids[place.type][static_cast<size_t>(place.partition)].integerAt(place.id - ranges.first(place.type, place.partition));
  }

  absl::Status addNodes(size_t type, PartitionParts* parts) {
    std::vector<int32_t> partitionOf(nodeRanges_.count(type), -1);
    for (int part = 0; part < numParts_; ++part) {
      const uint64_t first = nodeRanges_.first(type, part);
      for (uint64_t i = 0; i < nodeRanges_.size(type, part); ++i) {
        const uint64_t id = originalOf({type, part, first + i}, nodeRanges_, originalNodes_);
        if (id >= partitionOf.size() || partitionOf[id] >= 0) {
          return absl::InvalidArgumentError(absl::StrCat(directory_, "/part", part, "/orig_nids.dgl: original id ", static_cast<int64_t>(id),
                                                         " of ", nodeTypes_[type], id < partitionOf.size() ? " is there twice" : " is out of range"));
        }
        partitionOf[id] = part;
      }
    }
    return parts->addNodes(nodeTypes_[type], partitionOf.size(), [&](uint64_t i) { return partitionOf[i]; });
  }

  absl::Status addEdges() {
    std::vector<ScatterNpy> pairs;
    uint64_t mostNodes = 0;
    for (size_t t = 0; t < nodeTypes_.size(); ++t) mostNodes = std::max(mostNodes, nodeRanges_.count(t));
    for (size_t r = 0; r < edgeTypes_.size(); ++r) {
      const std::string path = output_.newFile({"edges", edgeTypes_[r]});
      FARHOP_ASSIGN_OR_RETURN(ScatterNpy npy, ScatterNpy::createPairs(output_.pathOf(path), edgeRanges_.count(r), mostNodes));
      pairs.push_back(std::move(npy));
      output_.description().edges.push_back({edgeTypes_[r], path});
    }
    for (int part = 0; part < numParts_; ++part) {
      std::string path = partFile(part, "part_graph", "graph.dgl");
      DglGraph graph;
      if (pathExists(path)) {
        FARHOP_ASSIGN_OR_RETURN(graph, openDglGraph(path));
      } else {
        path = partFile(part, "part_graph_graphbolt", "fused_csc_sampling_graph.pt");
        FARHOP_ASSIGN_OR_RETURN(FusedGraph fused, openFusedGraph(path));
        graph = std::move(fused.graph);
      }
      FARHOP_RETURN_IF_ERROR(addPartEdges(part, path, graph, &pairs));
    }
    for (size_t r = 0; r < edgeTypes_.size(); ++r) FARHOP_RETURN_IF_ERROR(pairs[r].finish(absl::StrCat(file_, ": edges of ", edgeTypes_[r])));
    return absl::OkStatus();
  }

  absl::Status addPartEdges(int part, const std::string& path, const DglGraph& graph, std::vector<ScatterNpy>* pairs) {
    const auto nodeIds = graph.nodes.find("_ID"), edgeIds = graph.edges.find("_ID");
    const auto isList = [](const TensorMap& map, TensorMap::const_iterator at, uint64_t rows) {
      return at != map.end() && at->second.isInteger() && at->second.shape.size() == 1 && at->second.rows() == rows;
    };
    if (!isList(graph.nodes, nodeIds, graph.numNodes) || !isList(graph.edges, edgeIds, graph.first.rows())) {
      return absl::InvalidArgumentError(absl::StrCat(path, " does not say which nodes and edges it has ('_ID')"));
    }
    return graph.eachEdge([&](uint64_t source, uint64_t destination, uint64_t edge) -> absl::Status {
      IdRanges::Place places[3];
      const bool inside = source < graph.numNodes && destination < graph.numNodes && edge < graph.first.rows() &&
                          nodeRanges_.find(nodeIds->second.integerAt(source), &places[0]) &&
                          nodeRanges_.find(nodeIds->second.integerAt(destination), &places[1]) &&
                          edgeRanges_.find(edgeIds->second.integerAt(edge), &places[2]);
      if (!inside) return absl::OutOfRangeError(absl::StrCat(path, ": edge ", edge, " is out of range"));
      if (places[2].partition != part) return absl::OkStatus();  // of another partition, around this one's nodes
      const std::string& type = edgeTypes_[places[2].type];
      if (type.rfind(nodeTypes_[places[0].type] + ":", 0) != 0 ||
          type.substr(type.rfind(':') + 1) != nodeTypes_[places[1].type]) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": edge ", edge, " of ", type, " is between nodes of other types"));
      }
      return (*pairs)[places[2].type].putPair(originalOf(places[2], edgeRanges_, originalEdges_), originalOf(places[0], nodeRanges_, originalNodes_),
                                              originalOf(places[1], nodeRanges_, originalNodes_), path);
    });
  }

  // Files of tensors "type/name", rows in the order of the partition's ids of that type.
  absl::Status addFeatures(const char* domain, const char* key, const std::vector<std::string>& types, const IdRanges& ranges,
                           const OriginalIds& original, PartitionParts* parts) {
    std::map<std::pair<size_t, std::string>, std::vector<PartitionParts::Rows>> features;
    const std::string usual = absl::StrCat(domain, "_feat.dgl");
    for (int part = 0; part < numParts_; ++part) {
      const std::string path = partFile(part, key, usual.c_str());
      if (!pathExists(path)) continue;
      FARHOP_ASSIGN_OR_RETURN(TensorMap tensors, openDglTensors(path));
      for (auto& [name, values] : tensors) {
        const size_t slash = name.rfind('/');
        const std::string type = slash == std::string::npos ? types[0] : name.substr(0, slash);
        const auto known = std::find(types.begin(), types.end(), type);
        if (known == types.end()) return absl::InvalidArgumentError(absl::StrCat(values.origin, " is of an unknown type"));
        const auto t = static_cast<size_t>(known - types.begin());
        features[{t, name.substr(slash == std::string::npos ? 0 : slash + 1)}].push_back({idsOf(t, part, ranges, original), std::move(values)});
      }
    }
    for (const auto& [which, rows] : features) {
      FARHOP_RETURN_IF_ERROR(parts->addFeature({domain, types[which.first], which.second, ""}, ranges.count(which.first), 0, rows));
    }
    return absl::OkStatus();
  }

  static ArrayView idsOf(size_t type, int part, const IdRanges& ranges, const OriginalIds& original) {
    if (!original.empty()) return original[type][static_cast<size_t>(part)];
    auto ids = std::make_shared<std::vector<uint64_t>>(ranges.size(type, part));
    for (size_t i = 0; i < ids->size(); ++i) (*ids)[i] = ranges.first(type, part) + i;
    ArrayView view;
    view.dtype = DType::kInt64;
    view.shape = {ids->size()};
    view.strides = {1};
    view.data = reinterpret_cast<const std::byte*>(ids->data());
    view.owner = ids;
    return view;
  }

  std::string file_, directory_;
  DatasetOutput& output_;
  nlohmann::json config_;
  int numParts_ = 0;
  std::vector<std::string> nodeTypes_, edgeTypes_;
  IdRanges nodeRanges_, edgeRanges_;
  OriginalIds originalNodes_, originalEdges_;
};

}  // namespace

absl::Status importDgl(const std::string& source, const ImportOptions&, DatasetOutput* output) {
  std::error_code error;
  if (!fs::is_directory(source, error)) return DglImporter(source, output).run();
  // The one description beside the partitions.
  std::vector<std::string> found;
  for (fs::directory_iterator it(source, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") found.push_back(it->path().string());
  }
  if (found.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(source, " has ", found.size(), " .json files; name the one that describes the partitions"));
  }
  return DglImporter(found[0], output).run();
}

}  // namespace farhop::importers
