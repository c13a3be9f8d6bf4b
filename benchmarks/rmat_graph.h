// The graph that benchmarks run on: R-MAT (Chakrabarti, Zhan, Faloutsos: "R-MAT: a recursive model for graph
// mining", SDM 2004), a = 0.57, b = 0.19, c = 0.19, d = 0.05, as a store on disk that is made once and
// reused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/random.h"
#include "base/status.h"
#include "benchmarks/report.h"
#include "partition/graph_store.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

struct RmatOptions {
  int nodesLog2 = 20;  // up to 31
  uint64_t edges = 25'000'000;
  uint64_t seed = 1;
  int parts = 1;  // random partitions
  bool timesAndWeights = false;  // edge features "t", int64, and "w", float32, declared as such
  uint64_t floats = 0;           // width of a node feature "x", float32; 0: none
  std::string cacheDirectory = "build/bench-cache";

  uint64_t nodes() const { return uint64_t{1} << nodesLog2; }
  GraphParameters parameters() const { return {nodes(), edges, seed, parts}; }
  // Bytes that sampling may touch: row starts, neighbour ids and original ids.
  uint64_t bytes() const { return edges * sizeof(uint32_t) + 2 * nodes() * sizeof(uint64_t); }
};

// --nodes-log2, --edges, --graph-seed, --parts, --cache.
void addRmatOptions(CLI::App& command, RmatOptions* options);

// Of an edge: uniform in [0, kRmatTimes).
inline constexpr uint64_t kRmatTimes = uint64_t{1} << 40;
int64_t rmatTime(uint64_t seed, uint64_t edge);
// Of an edge: above 0, at most 1, uniform.
float rmatWeight(uint64_t seed, uint64_t edge);
// Of a node's feature "x": small whole numbers.
float rmatFeature(uint64_t seed, uint64_t node, uint64_t column);

struct Edge {
  uint32_t source = 0;
  uint32_t destination = 0;
};

// Edge number `edge` of the graph: a function of the seed, the sizes and the number alone. Node ids are
// permuted, so that an id says nothing of a degree; parallel edges and self loops stay.
class RmatEdges {
 public:
  explicit RmatEdges(const RmatOptions& options);
  Edge operator()(uint64_t edge) const;

 private:
  int levels_;
  uint64_t key_;
  KeyedPermutation permutation_;
};

// Opens the graph, making it first when the cache has none with these parameters. `progress` gets a line
// before each long step. Making needs about 16 bytes of memory per edge.
absl::StatusOr<std::shared_ptr<const partition::GraphStore>> openRmatGraph(
    const RmatOptions& options, const std::function<void(const std::string&)>& progress);

}  // namespace farhop::benchmarks
