#include "partition/cache_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "partition/array_opener.h"
#include "partition/layout.h"

namespace farhop::partition {
namespace {

constexpr char kTrainSplit[] = "train";
constexpr size_t kMaxHops = 64;

// The probability that one of two independent events happens. Keeps small probabilities exact, which a product of
// their complements would round away.
void include(double probability, double* total) {
  *total += probability * (1 - *total);
}

absl::Status checkNumbers(const CacheOptions& options) {
  if (!std::isfinite(options.fraction) || options.fraction < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cache's fraction is ", options.fraction, "; give a number above 0, such as 0.25"));
  }
  if (options.batch < 1) return absl::InvalidArgumentError("the cache's batch is 0; give the seeds of a batch");
  if (options.fanouts.empty() || options.fanouts.size() > kMaxHops) {
    return absl::InvalidArgumentError(absl::StrCat("the cache's fanouts have ", options.fanouts.size(),
                                                   " hops; 1 to ", kMaxHops, " are possible"));
  }
  for (int64_t fanout : options.fanouts) {
    if (fanout >= -1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the cache's fanout ", fanout, " is out of range; -1 takes all neighbours, 0 none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CachePolicy> parseCachePolicy(absl::string_view name) {
  for (CachePolicy policy : {CachePolicy::kVip, CachePolicy::kDegree}) {
    if (cachePolicyName(policy) == name) return policy;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown cache policy '", name, "'; there are vip and degree"));
}

absl::string_view cachePolicyName(CachePolicy policy) {
  return policy == CachePolicy::kVip ? "vip" : "degree";
}

absl::Status checkCacheOptions(const Dataset& dataset, const CacheOptions& options) {
  FARHOP_RETURN_IF_ERROR(checkNumbers(options));
  if (options.fraction == 0) return absl::OkStatus();
  for (const std::string& name : options.features) {
    std::string known;
    bool exists = false;
    for (const NodeType& type : dataset.schema.nodeTypes) {
      exists = exists || findFeature(type.features, name) != nullptr;
      for (const FeatureSpec& feature : type.features) {
        absl::StrAppend(&known, known.empty() ? "'" : ", '", feature.name, "' of ", type.name);
      }
    }
    if (exists) continue;
    return absl::NotFoundError(absl::StrCat("no node type has a feature '", name, "' to cache; there are: ",
                                            known.empty() ? "none" : known));
  }
  if (options.policy != CachePolicy::kVip) return absl::OkStatus();
  const auto isTrain = [](const auto& split) { return split.name == kTrainSplit; };
  if (std::any_of(dataset.splits.begin(), dataset.splits.end(), isTrain) ||
      std::any_of(dataset.edgeSplits.begin(), dataset.edgeSplits.end(), isTrain)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "a cache by vip starts from the split 'train', which the data set has not; cache by degree");
}

CachePlanner::CachePlanner(const std::string& directory, const Manifest& manifest, CacheOptions options,
                           std::vector<int> types)
    : directory_(directory),
      manifest_(manifest),
      options_(std::move(options)),
      types_(std::move(types)),
      book_(manifest.offsets) {}

CachePlanner::Values CachePlanner::zeros() const {
  Values values;
  for (const NodeType& type : manifest_.schema.nodeTypes) values.emplace_back(type.count, 0.0);
  return values;
}

bool CachePlanner::hasTrainSeeds() const {
  const auto isTrain = [](const auto& split) { return split.name == kTrainSplit; };
  return std::any_of(manifest_.splits.begin(), manifest_.splits.end(), isTrain) ||
         std::any_of(manifest_.edgeSplits.begin(), manifest_.edgeSplits.end(), isTrain);
}

absl::Status CachePlanner::startFromSeeds(int partition, Values* probability) const {
  const ArrayOpener opener(directory_, manifest_);
  std::vector<NpyArray> files;
  const auto ofOne = [&](uint64_t seeds) {
    return std::min(1.0, static_cast<double>(options_.batch) / static_cast<double>(seeds));
  };
  for (const SplitInfo& split : manifest_.splits) {
    if (split.name != kTrainSplit) continue;
    FARHOP_ASSIGN_OR_RETURN(
        const auto seeds,
        opener.openColumn<uint64_t>(splitPath(manifest_.schema, partition, split.nodeType, split.name),
                                    split.partitionCounts[partition], &files));
    for (uint64_t gid : seeds) include(ofOne(seeds.size()), &(*probability)[split.nodeType][gid]);
  }
  for (const EdgeSplitInfo& split : manifest_.edgeSplits) {
    if (split.name != kTrainSplit) continue;
    const Relation& relation = manifest_.schema.relations[split.relation];
    const uint64_t seeds = split.partitionCounts[partition];
    FARHOP_ASSIGN_OR_RETURN(
        const auto ends,
        opener.openArray<uint64_t>(edgeSplitPath(manifest_.schema, partition, split.relation, split.name), {seeds, 2},
                                   &files));
    for (uint64_t i = 0; i < ends.size(); ++i) {
      include(ofOne(seeds), &(*probability)[i % 2 == 0 ? relation.source : relation.destination][ends[i]]);
    }
  }
  return absl::OkStatus();
}

absl::Status CachePlanner::expand(int64_t fanout, const Values& before, Values* after) const {
  const Schema& schema = manifest_.schema;
  const ArrayOpener opener(directory_, manifest_);
  for (int r = 0; r < static_cast<int>(schema.relations.size()); ++r) {
    const Relation& relation = schema.relations[r];
    std::vector<double>& sources = (*after)[relation.source];
    for (int k = 0; k < book_.numPartitions(); ++k) {
      const uint64_t first = book_.begin(relation.destination, k), rows = book_.count(relation.destination, k);
      const uint64_t edges = manifest_.partitionEdges[r][k];
      std::vector<NpyArray> files;
      FARHOP_ASSIGN_OR_RETURN(const auto indptr,
                              opener.openColumn<uint64_t>(relationPath(schema, k, r, "indptr"), rows + 1, &files));
      const auto addRows = [&](const auto& neighbors) {
        for (uint64_t row = 0; row < rows; ++row) {
          const double reached = before[relation.destination][first + row];
          const uint64_t degree = indptr[row + 1] - indptr[row];
          if (reached == 0 || degree == 0) continue;
          const double drawn =
              fanout < 0 ? 1.0 : std::min(1.0, static_cast<double>(fanout) / static_cast<double>(degree));
          for (uint64_t e = indptr[row]; e < indptr[row + 1]; ++e) include(drawn * reached, &sources[neighbors[e]]);
        }
      };
      const std::string path = relationPath(schema, k, r, "neighbors");
      if (schema.nodeTypes[relation.source].count < kSmallNodeCount) {
        FARHOP_ASSIGN_OR_RETURN(const auto neighbors, opener.openColumn<uint32_t>(path, edges, &files));
        addRows(neighbors);
      } else {
        FARHOP_ASSIGN_OR_RETURN(const auto neighbors, opener.openColumn<uint64_t>(path, edges, &files));
        addRows(neighbors);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<double>>> CachePlanner::inclusion(int partition) const {
  Values score = zeros(), before = zeros(), after;
  FARHOP_RETURN_IF_ERROR(startFromSeeds(partition, &before));
  for (size_t hop = 0;; ++hop) {
    for (size_t t = 0; t < score.size(); ++t) {
      for (size_t i = 0; i < score[t].size(); ++i) include(before[t][i], &score[t][i]);
    }
    if (hop == options_.fanouts.size()) return score;
    after = zeros();
    FARHOP_RETURN_IF_ERROR(expand(options_.fanouts[hop], before, &after));
    before.swap(after);
  }
}

absl::StatusOr<CachePlanner::Values> CachePlanner::outDegrees() const {
  const ArrayOpener opener(directory_, manifest_);
  const Schema& schema = manifest_.schema;
  Values degrees = zeros();
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const Relation& relation = schema.relations[r];
    const bool reverse = relation.reverseOf >= 0;
    std::vector<NpyArray> files;
    // By original id; of a reverse relation: the forward one's in-degrees.
    FARHOP_ASSIGN_OR_RETURN(
        const auto counts,
        opener.openColumn<uint32_t>(globalRelationPath(schema, reverse ? relation.reverseOf : static_cast<int>(r),
                                                       reverse ? "in_degree" : "out_degree"),
                                    schema.nodeTypes[relation.source].count, &files));
    FARHOP_ASSIGN_OR_RETURN(
        const auto gids, opener.openColumn<uint64_t>(gidMapPath(schema, relation.source), counts.size(), &files));
    for (uint64_t id = 0; id < counts.size(); ++id) degrees[relation.source][gids[id]] += counts[id];
  }
  return degrees;
}

absl::StatusOr<std::vector<uint64_t>> CachePlanner::hottest(int partition, int nodeType,
                                                            const std::vector<double>& scores) const {
  const uint64_t count = scores.size();
  const ArrayOpener opener(directory_, manifest_);
  std::vector<NpyArray> files;
  FARHOP_ASSIGN_OR_RETURN(
      const IdArray originalIds,
      opener.openIds(globalOriginalIdsPath(manifest_.schema, nodeType), count, count, &files));
  std::vector<uint64_t> hot;
  for (uint64_t gid = 0; gid < count; ++gid) {
    if (scores[gid] > 0 && (gid < book_.begin(nodeType, partition) || gid >= book_.end(nodeType, partition))) {
      hot.push_back(gid);
    }
  }
  const double wanted = options_.fraction * static_cast<double>(count) / static_cast<double>(book_.numPartitions());
  if (wanted < static_cast<double>(hot.size())) {
    const auto kept = static_cast<size_t>(wanted);
    std::nth_element(hot.begin(), hot.begin() + static_cast<ptrdiff_t>(kept), hot.end(), [&](uint64_t a, uint64_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : originalIds[a] < originalIds[b];
    });
    hot.resize(kept);
  }
  std::sort(hot.begin(), hot.end());
  return hot;
}

absl::StatusOr<PartitionCachePlan> CachePlanner::plan(int partition) const {
  const bool byVip = options_.policy == CachePolicy::kVip;
  PartitionCachePlan plan;
  plan.gids.resize(manifest_.schema.nodeTypes.size());
  if (!byVip) {
    FARHOP_ASSIGN_OR_RETURN(const Values degrees, outDegrees());
    for (int t : types_) {
      FARHOP_ASSIGN_OR_RETURN(plan.gids[t], hottest(partition, t, degrees[t]));
    }
    if (!hasTrainSeeds()) return plan;
  }
  FARHOP_ASSIGN_OR_RETURN(const Values inclusion, this->inclusion(partition));
  plan.expectedRows = plan.expectedHits = 0;
  for (int t : types_) {
    if (byVip) {
      FARHOP_ASSIGN_OR_RETURN(plan.gids[t], hottest(partition, t, inclusion[t]));
    }
    for (uint64_t gid = 0; gid < inclusion[t].size(); ++gid) {
      const bool own = gid >= book_.begin(t, partition) && gid < book_.end(t, partition);
      if (!own) plan.expectedRows += inclusion[t][gid];
    }
    for (uint64_t gid : plan.gids[t]) plan.expectedHits += inclusion[t][gid];
  }
  plan.expectedHits = std::min(plan.expectedHits, plan.expectedRows);  // sums in another order
  return plan;
}

}  // namespace farhop::partition
