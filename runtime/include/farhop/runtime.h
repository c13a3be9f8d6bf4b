// A process of a training job: start, graph, collectives, end.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farhop/error.h"
#include "farhop/graph.h"

namespace farhop {

// The exit code of a trainer that has stopped when asked to, so that whoever started it knows that there is more to do
// (scripts/slurm, docs/stopping.md). EX_TEMPFAIL of sysexits.h.
inline constexpr int kStoppedExitCode = 75;

// What openGraph() compares with the store's checksums before anything is sampled; the machine's processes share
// the work, and reading the files once also brings them into memory. kStructure leaves features out: a damaged
// one gives wrong numbers, not a crash.
enum class StoreCheck { kAll, kStructure, kNone };

struct RuntimeOptions {
  // Where this process stands: machine of numMachines, process of procsPerMachine. Worker group p is process
  // p of every machine; it meets on masterPort + p of masterAddr.
  int numMachines = 1;
  int machine = 0;
  int procsPerMachine = 1;
  int proc = 0;
  std::string masterAddr = "127.0.0.1";
  uint16_t masterPort = 0;
  std::string jobId;
  std::string token;
  // "gate": group i starts when group i-1 is ready. "gate:N": N groups at once, group i when group i-N is ready.
  // "sleep:SECONDS": process p sleeps SECONDS * p.
  std::string start = "gate";
  std::string graph;   // default of Runtime::openGraph
  int masterFd = -1;   // listening socket handed over by a launcher, or -1
  int launcherFd = -1; // socket on which a launcher tells of ended processes, or -1
  // Tried when another program has taken masterPort, the same list on all processes; filled inside a Slurm step.
  std::vector<uint16_t> otherMasterPorts;

  // "core": to this process's share of the machine's physical cores. "numa": to all cores of the NUMA node that the
  // share lies in. Both set libtorch's threads to the share's cores. With ":split" behind, sampler and communication
  // threads get a third of the cores for themselves (of a single core all hardware threads but the first) instead of
  // sharing all with the trainer's. "none": nothing is bound, and libtorch's threads are left alone.
  std::string bind = "core";
  // Until all groups are ready. 0: two minutes, and a minute and the sleep step more per process of a machine.
  std::chrono::milliseconds startTimeout{0};
  std::chrono::milliseconds leaveTimeout{30'000};
  std::chrono::milliseconds peerTimeout{10'000};     // a peer silent for this long is lost
  // How long a collective waits for processes that are alive but slow (a lost one ends it at once).
  std::chrono::milliseconds collectiveTimeout{1'800'000};
  StoreCheck storeCheck = StoreCheck::kAll;
  // From start() on SIGUSR1 and SIGTERM ask the whole job to stop, see Runtime::stopRequested(). Otherwise they do from its
  // first call on, and end this process before.
  bool stopSignals = false;
  // This long after start() the process asks as well; 0: never.
  std::chrono::milliseconds stopAfter{0};
  // What the gate waits to be free; 0: no check. farhop run gives what a start takes, batches excluded; a trainer that knows
  // its loader's options may add these (docs/launcher.md).
  uint64_t memoryEstimateBytes = 0;

  // From FARHOP_* (farhop run), else from a Slurm step, else a single process. Throws
  // Error(kInvalidArgument) naming the variable that is missing or wrong.
  static RuntimeOptions fromEnvironment();
};

// What this process did so far.
struct RuntimeStats {
  int machine = 0;
  int proc = 0;
  int64_t batches = 0;
  int64_t sampledEdges = 0;
  int64_t remoteEdges = 0;
  int64_t neighborRequests = 0;      // sent to other machines
  int64_t neighborBytes = 0;         // payload of neighbour requests sent and replies received
  int64_t ownFeatureRows = 0;
  int64_t cachedFeatureRows = 0;     // of other machines' nodes, from the own partitions' caches
  int64_t remoteFeatureRows = 0;
  int64_t featureBytes = 0;          // payload of feature requests sent and replies received
  int64_t featureBytesRead = 0;      // read from own partitions, for this process or for others
  int64_t prefetchedBatches = 0;     // whose prefetch had begun when they were handed out
  double pullWaitSeconds = 0;        // that callers spent in pull(), get(), pullInto(), over all threads
  int64_t peakResidentBytes = 0;
  int64_t sharedMemoryBytes = 0;     // mapped from /dev/shm (or memfd) by this process
  double startedAtUnixSeconds = 0;   // when start() was called
  double startSeconds = 0;           // from then until it passed the start gate
  double readySeconds = 0;           // from then until its group was ready
};

// The same of the whole job.
struct JobStats {
  int64_t sampledEdges = 0;
  int64_t remoteEdges = 0;
  int64_t neighborBytes = 0;
  int64_t featureRows = 0;           // own, cached and remote
  int64_t cachedFeatureRows = 0;
  int64_t remoteFeatureRows = 0;
  int64_t featureBytes = 0;
  int64_t sharedMemoryBytes = 0;
  // When the last of a worker group's processes passed the start gate and was ready, counted from the first
  // start() of the job (by the machines' clocks).
  struct Group {
    double startSeconds = 0;
    double readySeconds = 0;
  };
  std::vector<Group> groups;
  std::vector<RuntimeStats> processes;  // by world rank

  double remoteEdgeShare() const {
    return sampledEdges > 0 ? static_cast<double>(remoteEdges) / static_cast<double>(sampledEdges) : 0.0;
  }
  double cachedFeatureShare() const {
    return featureRows > 0 ? static_cast<double>(cachedFeatureRows) / static_cast<double>(featureRows) : 0.0;
  }
  double remoteFeatureShare() const {
    return featureRows > 0 ? static_cast<double>(remoteFeatureRows) / static_cast<double>(featureRows) : 0.0;
  }
};

// One per process. Movable. Destroyed, it leaves; destroyed by an exception, it tells the others and ends. Not thread-safe unless said; graphs and batches are.
class Runtime {
 public:
  // Binds cores, passes the start gate, meets the group, returns when all groups are ready. Throws Error; one
  // about a lost peer names its machine, process and address.
  static Runtime start(const RuntimeOptions& options);
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  ~Runtime();

  int machine() const;
  int numMachines() const;
  int proc() const;
  int procsPerMachine() const;
  int worldRank() const;
  int worldSize() const;
  // Threads that the binding leaves to a loader's samplers.
  int samplerThreads() const;

  // Maps this machine's partitions of a store directory (empty: RuntimeOptions::graph). Collective: every
  // process opens the same store, else Error(kFailedPrecondition).
  Graph openGraph(const std::string& directory = "");

  // Averages the parameters' gradients over all processes of the job, in place: reduced among the machine's
  // processes, all-reduced in each group, handed back on the machine. The result has the same bits on every
  // process. Undefined gradients count as zeros and come back defined. float32 or float64, CPU. Collective;
  // with kUneven tails, processes that run out early call joinUneven(). Throws Error.
  void averageGradients(const std::vector<torch::Tensor>& parameters);
  // For a process whose epoch ended before the others': takes part in their averageGradients() with nothing
  // of its own, calling `step` after each (usually the optimiser's), until all have called joinUneven().
  void joinUneven(const std::vector<torch::Tensor>& parameters, const std::function<void()>& step);

  // Whether the job is to stop: true on all processes after the same step, and from then on, once any of them got SIGUSR1
  // or SIGTERM (from the first call on; signals that the program handles or ignores itself stay its own), has been in the
  // job for stopAfter, or called requestStop(). To be called once per step, after averageGradients(), whose message
  // carries the question: it then sends nothing. Without one since the last call it is a collective, a sum of one number.
  // What to do then: save model and NeighborLoader::state(), leave(), end with kStoppedExitCode. Throws Error.
  bool stopRequested();
  // Asks, as a signal does. Thread-safe.
  void requestStop();

  // Copies rank 0's values to all processes, in place. Collective.
  void broadcast(const std::vector<torch::Tensor>& tensors);
  // Sums element by element over all processes. Collective.
  std::vector<double> sum(const std::vector<double>& values);
  // One string from each process, by world rank; on every process. Collective.
  std::vector<std::string> gather(const std::string& value);
  void barrier();

  RuntimeStats stats() const;
  // All processes' stats and their sums, on every process. Collective.
  JobStats gatherStats();
  // Counters in the Prometheus text format. Thread-safe.
  std::string metricsText() const;

  // Farewell: waits until no peer may still ask, at most leaveTimeout, then closes. Idempotent. Throws Error
  // when a peer was lost.
  void leave();

 private:
  struct Impl;
  explicit Runtime(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace farhop
