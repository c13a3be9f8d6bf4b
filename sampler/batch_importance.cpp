// Batches whose neighbours are the nodes that short random walks visit most.
#include <algorithm>
#include <utility>

#include "sampler/batch_sampler.h"

namespace farhop::sampler {
namespace {

// Nodes that one set of walks visits, about; a large frontier walks in several sets. Of no effect on the result, since
// a walk's key has its node's number in the batch.
constexpr uint64_t kVisitsTogether = uint64_t{1} << 22;

}  // namespace

Task<BatchSampler::Result> BatchSampler::sampleImportance(BatchRequest request, BatchWorkspace* work,
                                                          std::unique_ptr<SampledBatch> batch) const {
  numberSeeds(&request, work, batch.get());
  const ImportanceOptions& importance = *options_.importance;
  const uint64_t visitsPerNode = uint64_t{importance.walksPerNode} * (importance.plan.length + uint64_t{1});
  const uint32_t together = static_cast<uint32_t>(std::clamp<uint64_t>(
      std::min(kVisitsTogether / visitsPerNode, kMaxWalksTogether / importance.walksPerNode), 1, 1 << 20));
  uint32_t begin = 0, end = batch->nodesByHop[request.seedType][0];  // the nodes that draw
  NodeNumbering& numbering = work->numbering_[request.seedType];
  for (size_t hop = 0; hop < options_.fanouts.size(); ++hop) {
    const Deadline deadline = Deadline::after(options_.requestTimeout);
    const int64_t fanout = options_.fanouts[hop][0];
    if (fanout == 0) {
      SampledRelation& rows = batch->relations[0];
      rows.indptr.append(end - begin, rows.indptr.back());
    }
    for (uint32_t first = begin; fanout != 0 && first < end; first += together) {
      const uint32_t count = std::min(together, end - first);
      WalkStarts starts{batch->epoch, batch->number, hop, {}, first, importance.walksPerNode};
      starts.nodes = std::span<const uint64_t>(numbering.nodes().data() + first, count);
      absl::Status status = co_await walker_->walk(starts, deadline, &work->walk_, &batch->traffic);
      if (status.ok()) status = appendMostVisited(fanout, work, batch.get());
      if (!status.ok()) co_return Result(annotate(status, absl::StrCat("sampling hop ", hop, " of batch ", batch->number)));
    }
    begin = end;
    end = numbering.size();
    for (size_t type = 0; type < work->numbering_.size(); ++type) {
      batch->nodesByHop[type].push_back(work->numbering_[type].size());
    }
  }
  batch->traffic.sampledEdges = batch->relations[0].indices.size();
  batch->traffic.remoteEdges = 0;  // steps are no edges of the batch
  co_return Result(std::move(batch));
}

absl::Status BatchSampler::appendMostVisited(int64_t fanout, BatchWorkspace* work, SampledBatch* batch) const {
  struct Visited {
    uint32_t times;
    uint32_t order;  // of the first visit
  };
  const WalkPlan& plan = walker_->plan();
  const WalkTrace& trace = work->walk_.trace;
  const uint32_t walksPerNode = options_.importance->walksPerNode;
  const uint32_t stride = static_cast<uint32_t>(plan.metapath.size());
  NodeNumbering& numbering = work->numbering_[batch->seedType];
  SampledRelation& rows = batch->relations[0];
  PodVector<uint64_t> distinct;
  std::vector<Visited> visits;
  for (size_t node = 0; node < trace.walks / walksPerNode; ++node) {
    work->visited_.reset(&distinct);
    visits.clear();
    const uint64_t start = trace.nodes[node * walksPerNode];
    for (size_t walk = node * walksPerNode; walk < (node + 1) * walksPerNode; ++walk) {
      for (uint32_t step = stride; step <= plan.length; step += stride) {
        const uint64_t gid = trace.nodes[step * trace.walks + walk];
        if (gid == kNoNode) break;
        if (gid == start) continue;
        const uint32_t order = work->visited_.number(gid);
        if (order == visits.size()) visits.push_back({0, order});
        ++visits[order].times;
      }
    }
    const size_t kept = fanout < 0 ? visits.size() : std::min<uint64_t>(visits.size(), static_cast<uint64_t>(fanout));
    std::partial_sort(visits.begin(), visits.begin() + static_cast<ptrdiff_t>(kept), visits.end(),
                      [](const Visited& a, const Visited& b) {
                        return a.times > b.times || (a.times == b.times && a.order < b.order);
                      });
    if (rows.indices.size() + kept > kMaxEdges) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxEdges,
                                                       " importance neighbours in one batch; use smaller fanouts or batches"));
    }
    for (size_t i = 0; i < kept; ++i) {
      rows.indices.push_back(numbering.number(distinct[visits[i].order]));
      rows.visits.push_back(visits[i].times);
    }
    rows.indptr.push_back(static_cast<uint32_t>(rows.indices.size()));
  }
  return absl::OkStatus();
}

}  // namespace farhop::sampler
