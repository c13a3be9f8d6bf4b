// Random walks across partitions, all of a batch in lock-step: one request per step and owner, more for second-order
// steps that are tried again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/executor.h"
#include "base/pod_vector.h"
#include "base/task.h"
#include "rpc/agent.h"
#include "sampler/exchange.h"
#include "sampler/partitioned_graph.h"
#include "sampler/walk_plan.h"
#include "sampler/walk_wire.h"

namespace farhop::sampler {

// Walks that go on at the same time, at most, and nodes that they may visit: what bounds messages and memory (1 GiB).
inline constexpr uint64_t kMaxWalksTogether = uint64_t{1} << 20;
inline constexpr uint64_t kMaxNodesTogether = uint64_t{1} << 27;

// Walks of which batch, from where. Walk i starts at nodes[i / walksPerNode] and has the index
// firstNode * walksPerNode + i, which is part of every draw's key and must be below 2^32.
struct WalkStarts {
  uint64_t epoch = 0;
  uint64_t batch = 0;
  uint64_t hop = 0;
  std::span<const uint64_t> nodes;  // gids; must live until the walks are over
  uint32_t firstNode = 0;
  uint32_t walksPerNode = 1;
};

// Where walks have been. nodesAt(0) are the starts.
struct WalkTrace {
  size_t walks = 0;
  PodVector<uint64_t> nodes;      // [length + 1][walks] gids; kNoNode once a walk has ended
  PodVector<uint8_t> restarted;   // [length][walks] 1 where the step was taken from the start, after a return

  std::span<const uint64_t> nodesAt(uint32_t step) const { return {nodes.data() + step * walks, walks}; }
};

// Memory that walks work in, reused. One set of walks at a time.
class WalkWorkspace {
 public:
  explicit WalkWorkspace(const PartitionedGraph& graph);
  WalkTrace trace;

 private:
  friend class Walker;

  // Rows to ask a partition about, each for an item of some list.
  struct Bucket {
    std::vector<uint32_t> rows;
    std::vector<uint32_t> items;
  };
  // A request to one machine (or to this one), and which item each of its rows is for.
  template <typename Request>
  struct Asked {
    int machine = 0;
    Request request;
    std::vector<uint32_t> items;
    std::vector<rpc::Bytes> own;  // this machine's reply
  };
  // Whether walks go to a candidate.
  enum class Verdict : uint8_t { kReject, kAccept, kAsk };
  // A candidate whose verdict depends on whether it is a neighbour of the node before.
  struct Question {
    uint32_t candidate = 0;  // index into candidates and verdicts
    uint64_t before = 0;
  };

  std::vector<Bucket> buckets_;        // [partition]
  PodVector<uint64_t> before_;         // [walk] the node before the current one; kNoNode where there is none
  std::vector<uint32_t> pending_;      // walks whose step is not decided yet
  PodVector<uint8_t> remote_;          // [pending] 1 where another machine has drawn the candidates
  PodVector<uint64_t> candidates_;     // [pending][tries]
  PodVector<Verdict> verdicts_;        // [pending][tries]
  std::vector<Question> questions_;
  std::vector<Asked<StepRequest>> steps_;
  std::vector<Asked<AdjacencyRequest>> adjacency_;
  std::vector<MachineMessage> messages_;
};

// Stateless but for its parts. `agent` may be null when this machine owns everything; it and the executor must outlive
// all walks under way.
class Walker {
 public:
  // `plan` as checkWalkPlan() accepts it.
  Walker(std::shared_ptr<const PartitionedGraph> graph, rpc::Agent* agent, Executor* executor, WalkPlan plan, uint64_t seed);

  // Leaves the walks in work->trace. At most kMaxWalksTogether. The result is a function of seed, plan, starts and graph
  // alone. All messages share the deadline.
  Task<absl::Status> walk(WalkStarts starts, Deadline deadline, WalkWorkspace* work, BatchTraffic* traffic) const;

  const WalkPlan& plan() const { return plan_; }

 private:
  using Bucket = WalkWorkspace::Bucket;
  using Verdict = WalkWorkspace::Verdict;
  template <typename Request>
  using Asked = WalkWorkspace::Asked<Request>;

  // One step of all walks, on its way.
  struct Step {
    const WalkStarts* starts;
    uint32_t step;
    uint64_t key;       // of the step, as in base/random.h
    uint32_t firstTry = 0;
    uint32_t tries = 1;
    uint32_t walkIndex(uint32_t walk) const { return starts->firstNode * starts->walksPerNode + walk; }
  };

  // Fills the trace with starts and leaves every walk pending. InvalidArgument for too many.
  absl::Status begin(const WalkStarts& starts, WalkWorkspace* work) const;
  // Finds the walks that go on, and sends some of them back to their start.
  void beginStep(const Step& step, WalkWorkspace* work) const;
  absl::Status askForCandidates(const Step& step, WalkWorkspace* work) const;
  absl::Status takeCandidates(const Step& step, WalkWorkspace* work) const;
  // Decides what it can and collects questions.
  void judge(const Step& step, WalkWorkspace* work) const;
  Verdict verdictOf(const Step& step, uint32_t walk, uint32_t tried, uint64_t candidate, uint64_t before) const;
  absl::Status askForNeighbors(WalkWorkspace* work) const;
  absl::Status takeAnswers(WalkWorkspace* work) const;
  // Moves walks whose step is decided; the others stay pending. Counts the steps that other machines have drawn.
  void move(const Step& step, WalkWorkspace* work, BatchTraffic* traffic) const;

  void clearBuckets(WalkWorkspace* work) const;
  // Into the bucket of the partition that owns the node.
  absl::Status put(int nodeType, uint64_t gid, uint32_t item, WalkWorkspace* work) const;
  template <typename Request>
  void gather(const Request& common, WalkWorkspace* work, std::vector<Asked<Request>>* asked) const;
  template <typename Request>
  absl::Status serveOwn(std::vector<Asked<Request>>* asked,
                        absl::StatusOr<rpc::Bytes> (*serve)(const Request&, const PartitionedGraph&)) const;

  std::shared_ptr<const PartitionedGraph> graph_;
  rpc::Agent* agent_;
  Executor* executor_;
  WalkPlan plan_;
  uint64_t seed_;
  double largest_;       // of the biases 1/p, 1 and 1/q
  uint32_t firstTries_;  // of a second-order step
};

}  // namespace farhop::sampler
