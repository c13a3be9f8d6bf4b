// Which rows of other partitions' nodes a partition keeps copies of. docs/store-format.md, "Caches".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::partition {

// kVip: the nodes that are most probably in a batch of the partition's seeds (cache_plan.h). kDegree: those with most
// out-edges, over all relations: whatever is sampled, and by whom.
enum class CachePolicy { kVip, kDegree };
absl::StatusOr<CachePolicy> parseCachePolicy(absl::string_view name);  // "vip" or "degree"
absl::string_view cachePolicyName(CachePolicy policy);

struct CacheOptions {
  // Rows kept per partition and node type, of N / K: nodes of the type by partitions. 0: no cache.
  double fraction = 0;
  CachePolicy policy = CachePolicy::kVip;
  // The sampling that is expected: neighbours per node and hop, of every relation; -1 takes all.
  std::vector<int64_t> fanouts = {15, 10};
  uint64_t batch = 1024;  // seeds
  // Names of node features to keep; empty: all.
  std::vector<std::string> features = {};
};

}  // namespace farhop::partition
