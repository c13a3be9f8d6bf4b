// GraphStore::verify(): every checksum and every invariant that docs/store-format.md states.
#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "base/random.h"
#include "partition/cache_verify.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/sampling_verify.h"
#include "partition/store_checksums.h"

namespace farhop::partition {
namespace {

// More would only repeat what the first ones say.
constexpr size_t kMaxProblems = 20;

// An order-free digest of a set of edges, to compare a relation with its reverse in constant memory. Two sums
// under different keys: 128 bits.
struct EdgeDigest {
  std::array<uint64_t, 2> sums{};

  void add(uint64_t source, uint64_t destination, uint64_t edgeId) {
    for (uint64_t i = 0; i < sums.size(); ++i) {
      sums[i] += combineKey(combineKey(combineKey(i, source), destination), edgeId);
    }
  }
  bool operator==(const EdgeDigest& other) const { return sums == other.sums; }
};

class Verifier {
 public:
  Verifier(const GraphStore& store, std::vector<std::string>* report)
      : store_(store), schema_(store.schema()), book_(store.book()), report_(report) {}

  absl::Status run() {
    checkChecksums();
    for (int k = 0; k < store_.numPartitions(); ++k) openPartition(k);
    for (int t = 0; t < static_cast<int>(schema_.nodeTypes.size()); ++t) checkNodes(t);
    for (int r = 0; r < static_cast<int>(schema_.relations.size()); ++r) checkRelation(r);
    checkReverses();
    checkHalo();
    for (const SplitInfo& split : store_.splits()) checkSplit(split);
    checkSamplingArrays();
    if (problems_.empty()) return absl::OkStatus();
    std::string text;
    for (const std::string& problem : problems_) absl::StrAppend(&text, text.empty() ? "" : "\n", problem);
    return absl::DataLossError(text);
  }

 private:
  std::string fullPath(const std::string& path) const { return absl::StrCat(store_.directory(), "/", path); }

  void problem(const std::string& text) {
    if (problems_.size() < kMaxProblems) problems_.push_back(text);
  }
  void report(const std::string& what, size_t problemsBefore) {
    if (report_ == nullptr) return;
    const size_t found = problems_.size() - problemsBefore;
    report_->push_back(absl::StrCat(what, ": ", found == 0 ? "ok" : absl::StrCat(found, " problems")));
  }

  void checkChecksums() {
    const size_t before = problems_.size();
    uint64_t bytes = 0;
    for (const auto& [path, expected] : store_.manifest().files) {
      const absl::Status status = checkStoredFile(fullPath(path), expected, [&](uint64_t n) {
        bytes += n;
        return absl::OkStatus();
      });
      if (!status.ok()) problem(std::string(status.message()));
    }
    report(absl::StrCat("checksums of ", store_.manifest().files.size(), " files, ", bytes, " bytes"),
           before);
  }

  // A partition that does not open is a problem already told, and left out of what follows.
  void openPartition(int k) {
    auto shard = store_.openPartition(k);
    // What its checksum has told already is not told again in other words.
    if (!shard.ok() && problems_.empty()) problem(std::string(shard.status().message()));
    shards_.push_back(shard.ok() ? std::optional<GraphShard>(*std::move(shard)) : std::nullopt);
    complete_ = complete_ && shards_.back().has_value();
  }

  void checkNodes(int t) {
    const size_t before = problems_.size();
    const uint64_t count = schema_.nodeTypes[t].count;
    auto gids = store_.gidsByOriginalId(t);
    if (!gids.ok() && problems_.empty()) problem(std::string(gids.status().message()));
    checkGlobalOriginalIds(t);
    for (const auto& shard : shards_) {
      if (!shard) continue;
      const auto ids = shard->originalIds(t);
      const std::string path = fullPath(originalIdsPath(schema_, shard->index(), t));
      for (uint64_t i = 0; i < ids.size(); ++i) {
        const uint64_t gid = book_.begin(t, shard->index()) + i;
        if (ids[i] >= count) {
          problem(absl::StrCat(path, ": original id ", ids[i], " at row ", i, " is out of range (", count,
                               " nodes)"));
          idsInRange_ = false;
        } else if (i > 0 && ids[i] <= ids[i - 1] && store_.manifest().order == kOrderById) {
          problem(absl::StrCat(path, ": rows ", i - 1, " and ", i, " are not ascending"));
        } else if (gids.ok() && (*gids)[ids[i]] != gid) {
          problem(absl::StrCat(fullPath(gidMapPath(schema_, t)), ": original id ", ids[i], " maps to gid ",
                               (*gids)[ids[i]], ", but ", path, " gives it gid ", gid));
        } else {
          continue;
        }
        break;  // one per file
      }
    }
    report(absl::StrCat("node type ", schema_.nodeTypes[t].name), before);
  }

  // They are those of the partitions, one after the other.
  void checkGlobalOriginalIds(int t) {
    const auto all = store_.originalIdsByGid(t);
    if (!all.ok()) {
      if (problems_.empty()) problem(std::string(all.status().message()));
      return;
    }
    for (const auto& shard : shards_) {
      if (!shard) continue;
      const auto ids = shard->originalIds(t);
      for (uint64_t i = 0; i < ids.size(); ++i) {
        const uint64_t gid = book_.begin(t, shard->index()) + i;
        if ((*all)[gid] == ids[i]) continue;
        problem(absl::StrCat(fullPath(globalOriginalIdsPath(schema_, t)), ": gid ", gid, " has original id ",
                             (*all)[gid], ", but ", originalIdsPath(schema_, shard->index(), t), " says ", ids[i]));
        return;
      }
    }
  }

  uint64_t originalId(int type, uint64_t gid) const {
    const int k = book_.partitionOf(type, gid);
    return shards_[static_cast<size_t>(k)]->originalIds(type)[gid - book_.begin(type, k)];
  }

  static uint64_t neighbor(const RelationShard& csr, uint64_t edge) {
    return csr.neighbors32.empty() ? csr.neighbors64[edge] : csr.neighbors32[edge];
  }

  void checkRelation(int r) {
    const size_t before = problems_.size();
    std::vector<bool> seen(schema_.relations[r].edgeIdBound());
    digests_.emplace_back();
    bool sound = complete_;
    for (const auto& shard : shards_) {
      if (!shard) continue;
      if (!checkNeighbors(r, *shard)) {
        sound = false;
        continue;
      }
      checkRemoteCount(r, *shard);
      if (!checkEdgeIds(r, *shard, &seen)) sound = false;
      if (complete_ && idsInRange_) checkOrder(r, *shard);
    }
    // Of merged edges only the first is there; that as many as stated are, each once, has been checked.
    const bool merged = schema_.relations[r].inputCount > 0;
    if (sound && !merged && std::find(seen.begin(), seen.end(), false) != seen.end()) {
      problem(absl::StrCat(store_.directory(), ": edge ",
                           std::find(seen.begin(), seen.end(), false) - seen.begin(), " of ",
                           schema_.relationText(r), " is in no partition"));
    }
    report(absl::StrCat("relation ", schema_.relationText(r)), before);
    relationSound_.push_back(sound);
  }

  bool checkNeighbors(int r, const GraphShard& shard) {
    const RelationShard& csr = shard.relation(r);
    const uint64_t count = schema_.nodeTypes[schema_.relations[r].source].count;
    for (uint64_t i = 0; i < csr.edges(); ++i) {
      if (neighbor(csr, i) < count) continue;
      problem(absl::StrCat(fullPath(relationPath(schema_, shard.index(), r, "neighbors")), ": gid ",
                           neighbor(csr, i), " at ", i, " is out of range (", count, " nodes)"));
      return false;
    }
    return true;
  }

  bool checkEdgeIds(int r, const GraphShard& shard, std::vector<bool>* seen) {
    const auto ids = shard.relation(r).edgeIds;
    const std::string path = fullPath(relationPath(schema_, shard.index(), r, "edge_ids"));
    for (uint64_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= seen->size()) {
        problem(absl::StrCat(path, ": edge id ", ids[i], " at ", i, " is out of range (", seen->size(),
                             " edges)"));
        return false;
      }
      if ((*seen)[ids[i]]) {
        problem(absl::StrCat(path, ": edge id ", ids[i], " at ", i, " occurs twice"));
        return false;
      }
      (*seen)[ids[i]] = true;
    }
    return true;
  }

  void checkRemoteCount(int r, const GraphShard& shard) {
    const RelationShard& csr = shard.relation(r);
    const int source = schema_.relations[r].source;
    uint64_t remote = 0;
    for (uint64_t i = 0; i < csr.edges(); ++i)
      remote += book_.partitionOf(source, neighbor(csr, i)) != shard.index();
    const uint64_t stated = store_.manifest().remoteEdges[r][shard.index()];
    if (remote != stated) {
      problem(absl::StrCat(fullPath(kManifestFile), ": partition ", shard.index(), " has ", remote,
                           " remote edges of ", schema_.relationText(r), ", not ", stated));
    }
  }

  // Also folds the edges into the relation's digest.
  void checkOrder(int r, const GraphShard& shard) {
    const RelationShard& csr = shard.relation(r);
    const Relation& relation = schema_.relations[r];
    const auto destinations = shard.originalIds(relation.destination);
    bool ordered = true;
    for (uint64_t row = 0; row < csr.rows(); ++row) {
      std::tuple<int64_t, uint64_t, uint64_t> last(0, 0, 0);
      for (uint64_t i = csr.indptr[row]; i < csr.indptr[row + 1]; ++i) {
        const uint64_t source = originalId(relation.source, neighbor(csr, i));
        const std::tuple edge(csr.times.empty() ? int64_t{0} : csr.times[i], source, csr.edgeIds[i]);
        if (ordered && i > csr.indptr[row] && edge <= last) {
          problem(absl::StrCat(fullPath(relationPath(schema_, shard.index(), r, "neighbors")), ": row ", row,
                               " is not sorted by (", csr.times.empty() ? "" : "time, ", "original id, edge id) at ", i));
          ordered = false;
        }
        last = edge;
        digests_.back().add(source, destinations[row], csr.edgeIds[i]);
      }
    }
  }

  void checkReverses() {
    for (size_t r = 0; r < schema_.relations.size(); ++r) {
      const int forward = schema_.relations[r].reverseOf;
      if (forward < 0 || !relationSound_[r] || !relationSound_[forward]) continue;
      const size_t before = problems_.size();
      if (!(mirroredDigest(static_cast<int>(r)) == digests_[forward])) {
        problem(absl::StrCat(store_.directory(), ": ", schema_.relationText(static_cast<int>(r)),
                             " does not hold the edges of ", schema_.relationText(forward), " turned round"));
      }
      report(absl::StrCat("relation ", schema_.relationText(static_cast<int>(r)), " mirrors ",
                          schema_.relationText(forward)),
             before);
    }
  }

  EdgeDigest mirroredDigest(int r) const {
    const Relation& relation = schema_.relations[r];
    EdgeDigest digest;
    for (const auto& shard : shards_) {
      const RelationShard& csr = shard->relation(r);
      const auto destinations = shard->originalIds(relation.destination);
      for (uint64_t row = 0; row < csr.rows(); ++row) {
        for (uint64_t i = csr.indptr[row]; i < csr.indptr[row + 1]; ++i) {
          digest.add(destinations[row], originalId(relation.source, neighbor(csr, i)), csr.edgeIds[i]);
        }
      }
    }
    return digest;
  }

  void checkHalo() {
    // Counting needs neighbours in range everywhere.
    if (!complete_ || std::find(relationSound_.begin(), relationSound_.end(), false) != relationSound_.end())
      return;
    const size_t before = problems_.size();
    for (const auto& shard : shards_) {
      const int k = shard->index();
      std::vector<std::vector<bool>> seen(schema_.nodeTypes.size());
      uint64_t halo = 0;
      for (size_t r = 0; r < schema_.relations.size(); ++r) {
        const int source = schema_.relations[r].source;
        seen[source].resize(schema_.nodeTypes[source].count);
        const RelationShard& csr = shard->relation(static_cast<int>(r));
        for (uint64_t i = 0; i < csr.edges(); ++i) {
          const uint64_t gid = neighbor(csr, i);
          if (book_.partitionOf(source, gid) == k || seen[source][gid]) continue;
          seen[source][gid] = true;
          ++halo;
        }
      }
      if (halo != store_.manifest().haloNodes[k]) {
        problem(absl::StrCat(fullPath(kManifestFile), ": partition ", k, " has ", halo, " halo nodes, not ",
                             store_.manifest().haloNodes[k]));
      }
    }
    report("halo nodes", before);
  }

  // What openPartition() and splitOriginalIds() do not see: that they hold the same seeds.
  void checkSplit(const SplitInfo& split) {
    const size_t before = problems_.size();
    checkGlobalSplit(split);
    report(absl::StrCat("split ", split.name, " of ", schema_.nodeTypes[split.nodeType].name), before);
  }

  // The list over all partitions holds the same seeds, by original id.
  void checkGlobalSplit(const SplitInfo& split) {
    const auto global = store_.splitOriginalIds(split.name, split.nodeType);
    if (!global.ok()) {
      if (problems_.empty()) problem(std::string(global.status().message()));
      return;
    }
    std::vector<uint64_t> ids;
    for (const auto& shard : shards_) {
      if (!shard) return;  // reported already; nothing to compare with
      const auto originalIds = shard->originalIds(split.nodeType);
      for (uint64_t seed : shard->split(split.name, split.nodeType)) {
        const uint64_t row = seed - book_.begin(split.nodeType, shard->index());
        if (row >= originalIds.size()) return;
        ids.push_back(originalIds[row]);
      }
    }
    std::sort(ids.begin(), ids.end());
    if (!std::equal(ids.begin(), ids.end(), global->begin(), global->end())) {
      problem(absl::StrCat(fullPath(globalSplitPath(schema_, split.nodeType, split.name)),
                           " does not hold the seeds that the partitions hold"));
    }
  }

  // What lies beside the edges; only where nothing that it is compared with is out of range.
  void checkSamplingArrays() {
    const bool comparable =
        complete_ && idsInRange_ &&
        std::find(relationSound_.begin(), relationSound_.end(), false) == relationSound_.end();
    if (!comparable) return;
    const OpenStore open{store_, shards_};
    const auto add = [&](const std::string& what, const std::vector<std::string>& found) {
      const size_t before = problems_.size();
      for (const std::string& text : found) problem(text);
      report(what, before);
    };
    for (int r = 0; r < static_cast<int>(schema_.relations.size()); ++r) {
      const std::string text = schema_.relationText(r);
      if (schema_.hasTimes(r) || schema_.hasWeights(r)) {
        add(absl::StrCat("times and weights of ", text), checkSamplingColumns(open, r));
      }
      if (schema_.relations[r].reverseOf < 0) add(absl::StrCat("degrees of ", text), checkDegrees(open, r));
    }
    if (store_.manifest().cache) add("caches", checkCaches(open));
    for (const EdgeSplitInfo& split : store_.edgeSplits()) {
      add(absl::StrCat("split ", split.name, " of ", schema_.relationText(split.relation)),
          checkEdgeSplit(open, split));
    }
  }

  const GraphStore& store_;
  const Schema& schema_;
  const PartitionBook& book_;
  std::vector<std::string>* report_;
  std::vector<std::string> problems_;
  std::vector<std::optional<GraphShard>> shards_;  // by partition
  bool complete_ = true;                           // all partitions opened
  bool idsInRange_ = true;
  std::vector<EdgeDigest> digests_;  // by relation, of (source, destination, edge id)
  std::vector<bool> relationSound_;  // neighbours in range, each edge once
};

}  // namespace

absl::Status GraphStore::verify(std::vector<std::string>* report) const {
  return Verifier(*this, report).run();
}

}  // namespace farhop::partition
