#include "sampler/walker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/random.h"
#include "sampler/walk_kernels.h"
#include "sampler/walk_service.h"

namespace farhop::sampler {
namespace {

// A candidate is accepted with a probability of at least 1 / kMaxBiasRatio, so that as many failures in a row do not
// happen; a bound all the same.
constexpr uint32_t kMaxTries = 1 << 17;

// Parts of a step's key, so that its several kinds of draws share no bits.
constexpr uint64_t kRestartDraw = hashName("restart");
constexpr uint64_t kAcceptDraw = hashName("accept");

double uniformOf(uint64_t key, uint64_t part, uint32_t walk, uint32_t tried) {
  return KeyedRandom(nodeKey(combineKey(key, part), walk, tried)).uniform();
}

}  // namespace

WalkWorkspace::WalkWorkspace(const PartitionedGraph& graph)
    : buckets_(static_cast<size_t>(graph.book().numPartitions())) {}

Walker::Walker(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, Executor* executor, WalkPlan plan,
               uint64_t seed)
    : graph_(std::move(graph)),
      agent_(agent),
      executor_(executor),
      plan_(std::move(plan)),
      seed_(seed),
      largest_(std::max({1 / plan_.p, 1.0, 1 / plan_.q})),
      // About as many as a step needs where most candidates are two edges from the node before.
      firstTries_(plan_.secondOrder() ? static_cast<uint32_t>(std::clamp(largest_ * plan_.q, 2.0, 16.0)) : 1) {}

Task<absl::Status> Walker::walk(WalkStarts starts, Deadline deadline, WalkWorkspace* work, BatchTraffic* traffic) const {
  absl::Status status = begin(starts, work);
  ExchangeOptions options{agent_, executor_, kStepMethod, deadline, traffic};
  ExchangeOptions questions = options;
  questions.method = kAdjacencyMethod;
  for (uint32_t s = 0; status.ok() && s < plan_.length; ++s) {
    Step step{&starts, s, hopKey(seed_, starts.epoch, starts.batch, (starts.hop << 32) | s, Purpose::kWalk,
                                 graph_->relationHash(plan_.stepOf(s).relation))};
    step.tries = s == 0 ? 1 : firstTries_;
    beginStep(step, work);
    while (status.ok() && !work->pending_.empty()) {
      // However many are tried at once, the first that is accepted is the same.
      step.tries = static_cast<uint32_t>(std::clamp<uint64_t>(kMaxCandidates / work->pending_.size(), 1, step.tries));
      status = askForCandidates(step, work);
      if (!status.ok()) break;
      // Without a message nothing is awaited, so that long walks among own nodes do not nest.
      std::function<absl::Status()> own = [this, work] { return serveOwn(&work->steps_, serveSteps); };
      if (work->messages_.empty()) {
        status = own();
      } else {
        status = co_await exchange(&options, &work->messages_, std::move(own));
      }
      if (status.ok()) status = takeCandidates(step, work);
      if (!status.ok()) break;
      judge(step, work);
      if (!work->questions_.empty()) {
        status = askForNeighbors(work);
        if (!status.ok()) break;
        std::function<absl::Status()> ownAnswers = [this, work] { return serveOwn(&work->adjacency_, serveAdjacency); };
        if (work->messages_.empty()) {
          status = ownAnswers();
        } else {
          status = co_await exchange(&questions, &work->messages_, std::move(ownAnswers));
        }
        if (status.ok()) status = takeAnswers(work);
        if (!status.ok()) break;
      }
      move(step, work, traffic);
      step.firstTry += step.tries;
      step.tries = std::min(2 * step.tries, kMaxStepTries);
      if (step.firstTry >= kMaxTries && !work->pending_.empty()) {
        status = absl::InternalError(absl::StrCat("no candidate was accepted in ", step.firstTry, " tries"));
      }
    }
    if (!status.ok()) status = annotate(status, absl::StrCat("walking step ", s));
  }
  co_return status;
}

absl::Status Walker::begin(const WalkStarts& starts, WalkWorkspace* work) const {
  const uint64_t walks = uint64_t{starts.walksPerNode} * starts.nodes.size();
  if (walks > kMaxWalksTogether) {
    return absl::InvalidArgumentError(absl::StrCat(walks, " walks at once; at most ", kMaxWalksTogether));
  }
  if (walks > kMaxNodesTogether / (plan_.length + uint64_t{1})) {
    return absl::InvalidArgumentError(absl::StrCat(walks, " walks of ", plan_.length, " steps at once; at most ",
                                                   kMaxNodesTogether, " nodes"));
  }
  if ((starts.firstNode + starts.nodes.size()) * starts.walksPerNode > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError("a batch has more than 2^32 walks in one hop; use fewer walks, or smaller batches");
  }
  WalkTrace& trace = work->trace;
  trace.walks = walks;
  trace.nodes.clear();
  trace.nodes.append((plan_.length + size_t{1}) * walks, kNoNode);
  trace.restarted.clear();
  trace.restarted.append(plan_.length * walks, 0);
  for (size_t i = 0; i < walks; ++i) trace.nodes[i] = starts.nodes[i / starts.walksPerNode];
  work->before_.clear();
  work->before_.append(walks, kNoNode);
  return absl::OkStatus();
}

void Walker::beginStep(const Step& step, WalkWorkspace* work) const {
  WalkTrace& trace = work->trace;
  const bool mayReturn = plan_.restart > 0 && step.step > 0 && step.step % plan_.metapath.size() == 0;
  work->pending_.clear();
  for (uint32_t walk = 0; walk < trace.walks; ++walk) {
    if (trace.nodes[step.step * trace.walks + walk] == kNoNode) continue;
    work->pending_.push_back(walk);
    if (!mayReturn || uniformOf(step.key, kRestartDraw, step.walkIndex(walk), 0) >= plan_.restart) continue;
    trace.restarted[step.step * trace.walks + walk] = 1;
    work->before_[walk] = kNoNode;
  }
}

void Walker::clearBuckets(WalkWorkspace* work) const {
  for (Bucket& bucket : work->buckets_) {
    bucket.rows.clear();
    bucket.items.clear();
  }
}

absl::Status Walker::put(int nodeType, uint64_t gid, uint32_t item, WalkWorkspace* work) const {
  const partition::PartitionBook& book = graph_->book();
  if (gid >= book.numNodes(nodeType)) {
    return absl::DataLossError(absl::StrCat(graph_->store().directory(), ": gid ", gid, " of node type '",
                                            graph_->schema().nodeTypes[nodeType].name,
                                            "' does not exist; check the store with farhop inspect --verify"));
  }
  const int owner = book.partitionOf(nodeType, gid);
  Bucket& bucket = work->buckets_[owner];
  bucket.rows.push_back(static_cast<uint32_t>(gid - book.begin(nodeType, owner)));
  bucket.items.push_back(item);
  return absl::OkStatus();
}

template <typename Request>
void Walker::gather(const Request& common, WalkWorkspace* work, std::vector<Asked<Request>>* asked) const {
  asked->clear();
  for (int machine = 0; machine < graph_->machines(); ++machine) {
    Asked<Request> one{machine, common, {}, {}};
    for (size_t k = 0; k < work->buckets_.size(); ++k) {
      const Bucket& bucket = work->buckets_[k];
      if (graph_->owner(static_cast<int>(k)) != machine || bucket.rows.empty()) continue;
      one.request.runs.push_back({static_cast<uint32_t>(k), static_cast<uint32_t>(bucket.rows.size())});
      one.request.rows.insert(one.request.rows.end(), bucket.rows.begin(), bucket.rows.end());
      one.items.insert(one.items.end(), bucket.items.begin(), bucket.items.end());
    }
    if (!one.items.empty()) asked->push_back(std::move(one));
  }
}

template <typename Request>
absl::Status Walker::serveOwn(std::vector<Asked<Request>>* asked,
                              absl::StatusOr<rpc::Bytes> (*serve)(const Request&, const PartitionedGraph&)) const {
  for (Asked<Request>& one : *asked) {
    if (one.machine != graph_->machine()) continue;
    FARHOP_ASSIGN_OR_RETURN(rpc::Bytes reply, serve(one.request, *graph_));
    one.own.push_back(std::move(reply));
  }
  return absl::OkStatus();
}

absl::Status Walker::askForCandidates(const Step& step, WalkWorkspace* work) const {
  const WalkTrace& trace = work->trace;
  const int nodeType = walkNodeType(plan_, *graph_, step.step);
  clearBuckets(work);
  for (uint32_t i = 0; i < work->pending_.size(); ++i) {
    const uint32_t walk = work->pending_[i];
    const bool returned = trace.restarted[step.step * trace.walks + walk] != 0;
    FARHOP_RETURN_IF_ERROR(put(nodeType, trace.nodes[(returned ? 0 : step.step * trace.walks) + walk], i, work));
  }
  gather(StepRequest{plan_.stepOf(step.step), step.key, step.firstTry, step.tries, {}, {}, {}}, work, &work->steps_);
  work->messages_.clear();
  for (Asked<StepRequest>& asked : work->steps_) {
    for (uint32_t i : asked.items) asked.request.walks.push_back(step.walkIndex(work->pending_[i]));
    if (asked.machine == graph_->machine()) continue;
    work->messages_.push_back({asked.machine, oneArray(encodeStepRequest(asked.request))});
  }
  return absl::OkStatus();
}

absl::Status Walker::takeCandidates(const Step& step, WalkWorkspace* work) const {
  work->candidates_.resizeUninitialized(work->pending_.size() * step.tries);
  work->remote_.resizeUninitialized(work->pending_.size());
  PodVector<uint64_t> gids;
  auto message = work->messages_.begin();
  for (const Asked<StepRequest>& asked : work->steps_) {
    const bool isOwn = asked.machine == graph_->machine();
    const absl::Status status = decodeStepReply(asked.request, isOwn ? asked.own : (message++)->reply->arrays, *graph_, &gids);
    if (!status.ok()) return annotate(status, absl::StrCat("machine ", asked.machine));
    for (size_t i = 0; i < asked.items.size(); ++i) {
      work->remote_[asked.items[i]] = isOwn ? 0 : 1;
      std::copy_n(gids.data() + i * step.tries, step.tries, work->candidates_.data() + size_t{asked.items[i]} * step.tries);
    }
  }
  return absl::OkStatus();
}

Walker::Verdict Walker::verdictOf(const Step& step, uint32_t walk, uint32_t tried, uint64_t candidate, uint64_t before) const {
  const double level = uniformOf(step.key, kAcceptDraw, step.walkIndex(walk), step.firstTry + tried) * largest_;
  if (candidate == before) return level < 1 / plan_.p ? Verdict::kAccept : Verdict::kReject;
  if (level < std::min(1.0, 1 / plan_.q)) return Verdict::kAccept;
  return level < std::max(1.0, 1 / plan_.q) ? Verdict::kAsk : Verdict::kReject;
}

void Walker::judge(const Step& step, WalkWorkspace* work) const {
  work->verdicts_.clear();
  work->verdicts_.append(work->candidates_.size(), Verdict::kReject);
  work->questions_.clear();
  for (uint32_t i = 0; i < work->pending_.size(); ++i) {
    const uint32_t walk = work->pending_[i];
    const uint64_t before = work->before_[walk];
    for (uint32_t t = 0; t < step.tries; ++t) {
      const uint32_t candidate = i * step.tries + t;
      Verdict& verdict = work->verdicts_[candidate];
      // A walk without a step behind it, or that ends here, takes the first.
      const bool free = before == kNoNode || work->candidates_[candidate] == kNoNode;
      verdict = free ? Verdict::kAccept : verdictOf(step, walk, t, work->candidates_[candidate], before);
      if (verdict == Verdict::kAsk) work->questions_.push_back({candidate, before});
      if (verdict == Verdict::kAccept) break;  // the tries behind it do not matter
    }
  }
}

absl::Status Walker::askForNeighbors(WalkWorkspace* work) const {
  const int relation = plan_.metapath[0].relation;
  const int nodeType = graph_->schema().relations[relation].destination;
  clearBuckets(work);
  for (uint32_t i = 0; i < work->questions_.size(); ++i) {
    FARHOP_RETURN_IF_ERROR(put(nodeType, work->questions_[i].before, i, work));
  }
  gather(AdjacencyRequest{relation, {}, {}, {}}, work, &work->adjacency_);
  work->messages_.clear();
  for (Asked<AdjacencyRequest>& asked : work->adjacency_) {
    for (uint32_t i : asked.items) asked.request.gids.push_back(work->candidates_[work->questions_[i].candidate]);
    if (asked.machine == graph_->machine()) continue;
    work->messages_.push_back({asked.machine, oneArray(encodeAdjacencyRequest(asked.request, *graph_))});
  }
  return absl::OkStatus();
}

absl::Status Walker::takeAnswers(WalkWorkspace* work) const {
  const bool neighborsAreLikelier = plan_.q > 1;
  PodVector<uint8_t> isNeighbor;
  auto message = work->messages_.begin();
  for (const Asked<AdjacencyRequest>& asked : work->adjacency_) {
    const bool isOwn = asked.machine == graph_->machine();
    const absl::Status status = decodeAdjacencyReply(asked.request, isOwn ? asked.own : (message++)->reply->arrays, &isNeighbor);
    if (!status.ok()) return annotate(status, absl::StrCat("machine ", asked.machine));
    for (size_t i = 0; i < asked.items.size(); ++i) {
      const bool accepted = (isNeighbor[i] != 0) == neighborsAreLikelier;
      work->verdicts_[work->questions_[asked.items[i]].candidate] = accepted ? Verdict::kAccept : Verdict::kReject;
    }
  }
  return absl::OkStatus();
}

void Walker::move(const Step& step, WalkWorkspace* work, BatchTraffic* traffic) const {
  WalkTrace& trace = work->trace;
  size_t left = 0;
  for (size_t i = 0; i < work->pending_.size(); ++i) {
    const uint32_t walk = work->pending_[i];
    const Verdict* const verdicts = work->verdicts_.data() + i * step.tries;
    const Verdict* const accepted = std::find(verdicts, verdicts + step.tries, Verdict::kAccept);
    if (accepted == verdicts + step.tries) {
      work->pending_[left++] = walk;
      continue;
    }
    const size_t from = step.step * trace.walks;
    const uint64_t to = work->candidates_[i * step.tries + static_cast<size_t>(accepted - verdicts)];
    trace.nodes[from + trace.walks + walk] = to;
    traffic->remoteEdges += to == kNoNode ? 0 : work->remote_[i];
    work->before_[walk] = trace.nodes[(trace.restarted[from + walk] != 0 ? 0 : from) + walk];
  }
  work->pending_.resize(left);
}

}  // namespace farhop::sampler
