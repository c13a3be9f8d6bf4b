// How batches are sampled: what a loader's options come to.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "sampler/neighbor_draw.h"
#include "sampler/stage_clock.h"
#include "sampler/walk_plan.h"

namespace farhop::sampler {

// How one relation's neighbours are drawn.
struct RelationKind {
  DrawKind kind = DrawKind::kUniform;
  uint32_t weight = 0;  // weightIndex() of the feature, for kinds that draw by one
};

// Which nodes a hop draws for: those that the hop before found, or all that are known.
enum class Expand { kNew, kAll };

// Random walks from every seed, instead of neighbours.
struct WalkOptions {
  WalkPlan plan;
  uint32_t walksPerSeed = 1;
};

// The nodes that short walks from a node visit most, as its neighbours. The metapath leads from a node type to itself;
// plan.length is a multiple of its own.
struct ImportanceOptions {
  WalkPlan plan;
  uint32_t walksPerNode = 1;
};

// What a batch's edges are: those that were drawn, or all of the graph between the batch's nodes.
enum class Subgraph { kSampled, kInduced };

struct SamplingOptions {
  // [hop][relation]; hop 0 is next to the seeds. -1 takes all, 0 none.
  std::vector<std::vector<int64_t>> fanouts;
  std::vector<RelationKind> kinds;  // [relation]; empty: all uniform without replacement
  Expand expand = Expand::kNew;
  // Every seed is the root of a tree of its own: its neighbourhood shares no node with those of other seeds.
  bool disjoint = false;
  bool temporal = false;  // requests have times; needs disjoint
  // kLabor and kLaborPoisson: a source has the same random number in all hops.
  bool layerDependency = false;
  std::optional<WalkOptions> walks;             // fanouts is empty then
  std::optional<ImportanceOptions> importance;  // fanouts[hop][0] counts; kinds and edgeIds do not apply
  Subgraph subgraph = Subgraph::kSampled;
  uint64_t seed = 0;
  bool edgeIds = false;
  std::chrono::milliseconds requestTimeout{60'000};
  StageClock* stageClock = nullptr;  // null: nothing is measured; otherwise it outlives the sampler
};

}  // namespace farhop::sampler
