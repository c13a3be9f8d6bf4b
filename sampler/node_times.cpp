#include "sampler/node_times.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <utility>

#include "partition/feature_values.h"
#include "sampler/feature_service.h"
#include "sampler/seed_set.h"

namespace farhop::sampler {
namespace {

// Nodes whose times are asked for at once, which bounds what a pull takes beside the result.
constexpr uint64_t kNodesAtOnce = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<std::vector<int64_t>> pullNodeTimes(const PartitionedGraph& graph, FeaturePuller* puller, int nodeType,
                                                   std::vector<uint64_t> gids, Deadline deadline, const std::string& what) {
  const partition::NodeType& type = graph.schema().nodeTypes[nodeType];
  if (type.timeFeature.empty()) {
    return absl::NotFoundError(absl::StrCat(graph.store().directory(), " has no times of node type '", type.name,
                                            "'; it has times of: ", timesText(graph.schema())));
  }
  FARHOP_ASSIGN_OR_RETURN(const uint32_t feature, featureIndex(graph, nodeType, type.timeFeature));
  const partition::FeatureSpec spec = featureSpec(graph, nodeType, feature);
  struct Held {
    std::vector<uint64_t> gids;
    std::vector<std::byte> rows;
    std::promise<absl::Status> done;
  };
  const auto held = std::make_shared<Held>();
  held->gids = std::move(gids);
  held->rows.resize(held->gids.size() * spec.rowBytes());
  PullRequest request;
  request.nodeType = nodeType;
  request.gids = held->gids;
  request.targets = {{feature, held->rows.data()}};
  request.keepAlive = held;
  request.deadline = deadline;
  std::future<absl::Status> done = held->done.get_future();
  puller->pull(std::move(request), [held](absl::Status status) { held->done.set_value(std::move(status)); });
  // The pull's own deadline comes first.
  if (done.wait_for(std::chrono::milliseconds(deadline.remainingMs()) + std::chrono::seconds(10)) != std::future_status::ready) {
    return absl::DeadlineExceededError(absl::StrCat("the times of ", what, " did not arrive in time"));
  }
  FARHOP_RETURN_IF_ERROR(annotate(done.get(), absl::StrCat("times of ", what)));
  std::vector<int64_t> times(held->gids.size());
  for (size_t i = 0; i < times.size(); ++i) times[i] = partition::integerAt(spec.dtype, held->rows.data(), i);
  return times;
}

absl::StatusOr<std::shared_ptr<const NodeTimes>> NodeTimes::make(const PartitionedGraph& graph, FeaturePuller* puller,
                                                                 int nodeType, Deadline deadline) {
  const std::string what = absl::StrCat("node type '", graph.schema().nodeTypes[nodeType].name, "'");
  FARHOP_ASSIGN_OR_RETURN(const std::span<const uint64_t> gidOf, graph.store().gidsByOriginalId(nodeType));
  const uint64_t nodes = graph.book().numNodes(nodeType);
  if (std::any_of(gidOf.begin(), gidOf.end(), [nodes](uint64_t gid) { return gid >= nodes; })) {
    return damagedIdMap(graph, nodeType);
  }
  std::vector<int64_t> timeOf;
  timeOf.reserve(gidOf.size());
  for (uint64_t first = 0; first < gidOf.size(); first += kNodesAtOnce) {
    const auto some = gidOf.subspan(first, std::min<uint64_t>(kNodesAtOnce, gidOf.size() - first));
    FARHOP_ASSIGN_OR_RETURN(const std::vector<int64_t> times,
                            pullNodeTimes(graph, puller, nodeType, {some.begin(), some.end()}, deadline, what));
    timeOf.insert(timeOf.end(), times.begin(), times.end());
  }
  return std::make_shared<const NodeTimes>(timeOf);
}

NodeTimes::NodeTimes(std::span<const int64_t> timeOf) : order_(timeOf.size()) {
  std::iota(order_.begin(), order_.end(), uint64_t{0});
  std::sort(order_.begin(), order_.end(), [&](uint64_t a, uint64_t b) {
    return timeOf[a] < timeOf[b] || (timeOf[a] == timeOf[b] && a < b);
  });
  times_.reserve(order_.size());
  for (uint64_t id : order_) times_.push_back(timeOf[id]);
}

uint64_t NodeTimes::countUntil(int64_t time) const {
  return static_cast<uint64_t>(std::upper_bound(times_.begin(), times_.end(), time) - times_.begin());
}

}  // namespace farhop::sampler
