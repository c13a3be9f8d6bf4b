// One node of a store as samplers see it: `farhop inspect --node`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "partition/graph_store.h"

namespace farhop::launcher {

// A node by type and original id.
struct NodeName {
  int nodeType = 0;
  uint64_t originalId = 0;
};

// "TYPE:ID", or "ID" where the schema has one node type. InvalidArgument or NotFound says what would do.
absl::StatusOr<NodeName> parseNodeName(const partition::Schema& schema, absl::string_view text);

struct NodeView {
  struct Neighbor {
    uint64_t originalId = 0;
    uint64_t gid = 0;
    int partition = 0;
    uint64_t edgeId = 0;
    std::optional<int64_t> time;
    std::optional<float> weight;
  };
  // Its in-edges in one relation that leads to its type.
  struct Relation {
    std::string name;        // "source:relation:destination"
    std::string sourceType;
    uint64_t degree = 0;
    uint64_t remote = 0;               // of these, from other partitions' nodes
    std::vector<Neighbor> neighbors;  // the first ones, in the row's order
  };
  struct OutDegree {
    std::string relation;
    uint64_t degree = 0;
  };
  struct Feature {
    std::string name;
    std::string type;  // "float32 x 64"
    uint64_t elements = 0;
    std::vector<std::string> values;  // the first ones, exactly; JSON numbers where JSON has such
  };
  struct EdgeSeeds {
    std::string split;
    std::string relation;
    uint64_t asSource = 0, asDestination = 0;
  };

  std::string type;
  uint64_t originalId = 0;
  uint64_t gid = 0;
  int partition = 0;
  uint64_t localIndex = 0;
  std::vector<std::string> splits;    // that it is a seed of
  std::vector<EdgeSeeds> edgeSplits;  // with seed edges that it is an end of
  std::vector<Relation> relations;
  std::vector<OutDegree> outDegrees;  // of forward relations from its type
  std::vector<Feature> features;
};

// Maps the partition that owns the node. `neighbors` are listed per relation at most. DataLoss where an id in the store
// is out of range, which checksums would have found.
absl::StatusOr<NodeView> viewNode(const partition::GraphStore& store, absl::string_view name, uint64_t neighbors);

std::string nodeText(const NodeView& view);
nlohmann::ordered_json nodeJson(const NodeView& view);

}  // namespace farhop::launcher
