// Seeds that are edges of a relation, or pairs of nodes that could be some: where a batch's pairs come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sampler/partitioned_graph.h"
#include "sampler/seed_dealer.h"

namespace farhop::sampler {

struct SeedPair {
  uint64_t source = 0, destination = 0;  // gids
  uint64_t position = 0;                 // in the user's list, or in the data set's; what labels go by
  int64_t time = 0;                      // where the list has times
};

// A list of pairs, dealt by position. Immutable; thread-safe.
class SeedPairs {
 public:
  virtual ~SeedPairs() = default;
  virtual SeedPair at(uint64_t index) const = 0;
  // Whether pairs have times.
  virtual bool hasTimes() const { return false; }
};

// Pairs of one relation and how they are dealt: a pair belongs to the machine that owns its destination. `set` deals
// indices of `pairs`.
struct LinkSeedSet {
  int relation = 0;
  SeedSet set;
  std::shared_ptr<const SeedPairs> pairs;
  partition::FeatureTable labels;  // row SeedPair::position; no data where there are none
};

// The seed edges of a split, in the order of the data set, read from the mapping when they are dealt; 8 bytes per own
// seed where the machine owns several partitions and deals by owner, or seeds have times. NotFound lists the splits of
// edges that exist. `times`: of all seeds of the split, or empty; InvalidArgument where there are more or fewer.
absl::StatusOr<LinkSeedSet> linkSeedsOfSplit(std::shared_ptr<const PartitionedGraph> graph, int relation,
                                             const std::string& name, Deal deal, std::vector<int64_t> times = {});

// `ends`: original ids, source and destination of pair i at 2 i and 2 i + 1; every process names the same. In the order
// given. InvalidArgument naming the pair for an id out of range. `times` as above. `graph` is kept.
absl::StatusOr<LinkSeedSet> linkSeedsOfPairs(std::shared_ptr<const PartitionedGraph> graph, int relation,
                                             std::span<const int64_t> ends, Deal deal, std::vector<int64_t> times = {});

// Every edge of the relation that this machine owns, by (original id of the destination, position in its row), read from
// the mapping when it is dealt; 16 bytes per own node where the machine owns several partitions. Where the relation has
// times, an edge's time is its visible time. InvalidArgument for
// kGlobal with several machines: no process has a list of all edges. `graph` is kept.
absl::StatusOr<LinkSeedSet> linkSeedsOfRelation(std::shared_ptr<const PartitionedGraph> graph, int relation, Deal deal);

}  // namespace farhop::sampler
