#include "farhop/runtime.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/memory_info.h"
#include "runtime/api/graph_core.h"
#include "runtime/api/status_error.h"
#include "runtime/api/tensor_collectives.h"
#include "runtime/stop_agreement.h"
#include "sampler/bulk_feature_service.h"
#include "sampler/bulk_puller.h"
#include "sampler/edge_lookup.h"
#include "sampler/feature_service.h"
#include "sampler/neighbor_service.h"
#include "sampler/subgraph_wire.h"
#include "sampler/table_keys.h"
#include "sampler/walk_service.h"

namespace farhop {

using api::okOrThrow;
using api::valueOrThrow;

namespace {

static_assert(kStoppedExitCode == runtime::kStoppedExitCode);

// A feature reply's size: large enough that a request's cost does not show, small enough to bound staging.
constexpr size_t kFeatureReplyBytes = size_t{8} << 20;

// Over the group's bulk transport, where it has one.
std::unique_ptr<sampler::FeaturePuller> makeFeaturePuller(const runtime::Session& session,
                                                          std::shared_ptr<const sampler::PartitionedGraph> graph,
                                                          std::shared_ptr<sampler::SamplerMetrics> metrics) {
  const runtime::GroupBulk* const bulk = session.bulk();
  if (bulk == nullptr) {
    return std::make_unique<sampler::FeaturePuller>(std::move(graph), session.agent(), std::move(metrics),
                                                    kFeatureReplyBytes);
  }
  sampler::BulkPullerOptions options;
  options.transport = bulk->transport();
  options.slots = bulk->slots();
  options.peers = bulk->peers();
  options.graph = graph;
  options.reads = valueOrThrow(sampler::bulkReadsFromEnvironment());
  return std::make_unique<sampler::FeaturePuller>(
      std::move(graph), sampler::bulkRowTransport(session.agent(), std::move(options)), std::move(metrics), kFeatureReplyBytes);
}

RuntimeOptions fromContract(const runtime::LaunchContract& contract) {
  RuntimeOptions options;
  options.numMachines = contract.numMachines;
  options.machine = contract.machine;
  options.procsPerMachine = contract.procsPerMachine;
  options.proc = contract.proc;
  options.masterAddr = contract.masterAddr;
  options.masterPort = contract.masterPort;
  options.jobId = contract.jobId;
  options.token = contract.token;
  options.start = runtime::formatStartMode(contract.start);
  options.bind = runtime::formatBindingChoice(contract.binding);
  options.memoryEstimateBytes = contract.memoryEstimateBytes;
  options.graph = contract.graph;
  options.masterFd = contract.masterFd;
  options.launcherFd = contract.launcherFd;
  options.otherMasterPorts = contract.otherMasterPorts;
  return options;
}

runtime::LaunchContract toContract(const RuntimeOptions& options) {
  runtime::LaunchContract contract;
  contract.numMachines = options.numMachines;
  contract.machine = options.machine;
  contract.procsPerMachine = options.procsPerMachine;
  contract.proc = options.proc;
  contract.masterAddr = options.masterAddr;
  contract.masterPort = options.masterPort;
  contract.jobId = options.jobId;
  contract.token = options.token;
  contract.start = valueOrThrow(runtime::parseStartMode(options.start));
  contract.binding = valueOrThrow(runtime::parseBindingChoice(options.bind));
  contract.memoryEstimateBytes = options.memoryEstimateBytes;
  contract.graph = options.graph;
  contract.masterFd = options.masterFd;
  contract.launcherFd = options.launcherFd;
  contract.otherMasterPorts = options.otherMasterPorts;
  return contract;
}

// OpenBLAS makes its threads when it is loaded, before any binding; without this each process of a machine
// computes with as many threads as the machine has cores.
void setBlasThreads(int threads) {
  if (void* function = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(function)(threads);
  }
}

// This process's share of the own partitions' files. A large store takes minutes: not once the job has failed.
absl::Status checkStore(const partition::GraphStore& store, const RuntimeOptions& options,
                        const runtime::FailureMonitor& monitor) {
  if (options.storeCheck == StoreCheck::kNone) return absl::OkStatus();
  FARHOP_ASSIGN_OR_RETURN(const std::vector<int> owners, store.assign(options.numMachines));
  std::vector<int> own;
  for (size_t k = 0; k < owners.size(); ++k) {
    if (owners[k] == options.machine) own.push_back(static_cast<int>(k));
  }
  return store.verifyChecksums(own, options.proc, options.procsPerMachine, options.storeCheck == StoreCheck::kAll,
                               [&monitor](uint64_t, uint64_t) { return monitor.status(); });
}

std::string pack(const RuntimeStats& stats) {
  return std::string(reinterpret_cast<const char*>(&stats), sizeof(stats));
}

}  // namespace

RuntimeOptions RuntimeOptions::fromEnvironment() {
  return fromContract(valueOrThrow(runtime::readLaunchContract(runtime::processEnvironment())));
}

struct Runtime::Impl {
  RuntimeOptions options;
  std::shared_ptr<runtime::Session> session;
  std::shared_ptr<sampler::SamplerMetrics> metrics;
  std::shared_ptr<std::atomic<bool>> left = std::make_shared<std::atomic<bool>>(false);
  double startedAtUnixSeconds = 0;
  bool graphOpened = false;
  std::unique_ptr<runtime::StopAgreement> stop;

  Deadline collectiveDeadline() const { return Deadline::after(options.collectiveTimeout); }
  runtime::Collectives& collectives() const {
    if (*left) throw Error(ErrorCode::kFailedPrecondition, "the runtime has left the job");
    return session->collectives();
  }
  // How many processes have a batch.
  int64_t average(const std::vector<torch::Tensor>& parameters, bool active) const {
    const api::PresenceCounts counts = valueOrThrow(
        api::averageGradients(parameters, {.active = active, .stop = stop->wanted()}, collectives(), collectiveDeadline()));
    stop->learn(counts.stop);
    return counts.active;
  }
  std::vector<std::string> allGather(const std::string& value) const {
    return valueOrThrow(collectives().allGatherJob(value, collectiveDeadline()));
  }
};

Runtime::Runtime(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;

Runtime::~Runtime() {
  if (impl_ == nullptr || *impl_->left) return;
  if (std::uncaught_exceptions() > 0) {
    // The trainer failed: the others get to know it now, not when they next wait for this process.
    *impl_->left = true;
    impl_->session->abandon(absl::AbortedError("the trainer ended with an exception"));
    return;
  }
  try {
    leave();
  } catch (const std::exception&) {
    // Logged by the session; a destructor has nobody to tell.
  }
}

Runtime Runtime::start(const RuntimeOptions& options) {
  runtime::SessionOptions session;
  session.startTimeout = options.startTimeout;
  session.leaveTimeout = options.leaveTimeout;
  session.peerTimeout = options.peerTimeout;
  session.fabric = rpc::fabricChoiceFromEnvironment();
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  impl->startedAtUnixSeconds = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  impl->stop = std::make_unique<runtime::StopAgreement>(
      options.stopAfter.count() > 0 ? Clock::now() + options.stopAfter : Clock::time_point::max());
  if (options.stopSignals) impl->stop->takeSignals();
  const runtime::LaunchContract contract = toContract(options);
  impl->session = valueOrThrow(runtime::Session::start(contract, session));
  impl->metrics = std::make_shared<sampler::SamplerMetrics>(&impl->session->metrics());
  if (contract.binding.to != runtime::BindTo::kNone) {
    at::set_num_threads(impl->session->computeThreads());
    setBlasThreads(impl->session->computeThreads());
  }
  return Runtime(std::move(impl));
}

int Runtime::machine() const { return impl_->options.machine; }
int Runtime::numMachines() const { return impl_->options.numMachines; }
int Runtime::proc() const { return impl_->options.proc; }
int Runtime::procsPerMachine() const { return impl_->options.procsPerMachine; }
int Runtime::worldRank() const { return machine() * procsPerMachine() + proc(); }
int Runtime::worldSize() const { return numMachines() * procsPerMachine(); }
int Runtime::samplerThreads() const { return impl_->session->samplerThreads(); }

Graph Runtime::openGraph(const std::string& directory) {
  const std::string path = directory.empty() ? impl_->options.graph : directory;
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "openGraph: no store directory; name one, or start with farhop run --graph DIR");
  }
  if (impl_->graphOpened) {
    throw Error(ErrorCode::kFailedPrecondition, "openGraph: this runtime has a graph open already");
  }
  auto open = [&]() -> absl::StatusOr<std::shared_ptr<const sampler::PartitionedGraph>> {
    FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<const partition::GraphStore> store, partition::GraphStore::open(path));
    FARHOP_RETURN_IF_ERROR(checkStore(*store, impl_->options, impl_->session->failure()));
    return sampler::PartitionedGraph::open(std::move(store), machine(), numMachines());
  };
  auto opened = open();
  auto core = std::make_shared<GraphCore>();
  if (opened.ok()) {
    core->session = impl_->session;
    core->left = impl_->left;
    core->graph = *opened;
    core->metrics = impl_->metrics;
    core->collectiveTimeout = impl_->options.collectiveTimeout;
    core->puller = makeFeaturePuller(*impl_->session, *opened, impl_->metrics);
    const auto edgeReader = std::make_shared<const sampler::EdgeReader>(*opened);
    core->edgePuller = std::make_unique<sampler::EdgePuller>(edgeReader, impl_->session->agent(), impl_->metrics,
                                                             kFeatureReplyBytes);
    if (rpc::Agent* agent = impl_->session->agent()) {
      sampler::registerNeighborService(agent, *opened);
      sampler::registerWalkService(agent, *opened);
      sampler::registerSubgraphService(agent, *opened);
      sampler::registerEdgeLookup(agent, *opened);
      // A single row may be larger than a chunk; beyond that the agent's own message limit holds.
      sampler::registerFeatureService(agent, *opened, impl_->metrics, size_t{256} << 20);
      if (const runtime::GroupBulk* bulk = impl_->session->bulk()) {
        sampler::registerBulkFeatureService(agent, {.transport = bulk->transport(), .graph = *opened, .metrics = impl_->metrics});
        sampler::registerTableKeys(agent, bulk->transport(), *opened);
      }
      sampler::registerEdgeService(agent, edgeReader, impl_->metrics, size_t{256} << 20);
    }
  }
  // Nobody asks before everybody serves, and a process that cannot open says so to all.
  const std::string mine = opened.ok() ? absl::StrCat("+", (*opened)->store().fingerprint())
                                       : absl::StrCat("-", opened.status().message());
  const std::vector<std::string> all = impl_->allGather(mine);
  okOrThrow(opened.status());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string who = absl::StrCat("machine ", static_cast<int>(rank) / procsPerMachine(), " process ",
                                         static_cast<int>(rank) % procsPerMachine());
    if (!all[rank].empty() && all[rank][0] == '-') {
      throw Error(ErrorCode::kFailedPrecondition, absl::StrCat(who, " cannot open the graph: ", all[rank].substr(1)));
    }
    if (all[rank] != mine) {
      throw Error(ErrorCode::kFailedPrecondition,
                  absl::StrCat(who, " has opened another store than ", path, "; copy the same store to every machine"));
    }
  }
  impl_->graphOpened = true;
  return Graph(std::move(core));
}

void Runtime::averageGradients(const std::vector<torch::Tensor>& parameters) {
  impl_->average(parameters, true);
}

void Runtime::joinUneven(const std::vector<torch::Tensor>& parameters, const std::function<void()>& step) {
  for (;;) {
    if (impl_->average(parameters, false) == 0) return;
    if (step) step();
  }
}

void Runtime::requestStop() { impl_->stop->request(); }

bool Runtime::stopRequested() {
  impl_->stop->takeSignals();
  return valueOrThrow(impl_->stop->agreed(impl_->collectives(), impl_->collectiveDeadline()));
}

void Runtime::broadcast(const std::vector<torch::Tensor>& tensors) {
  okOrThrow(api::broadcastTensors(tensors, worldRank(), impl_->collectives(), impl_->collectiveDeadline()));
}

std::vector<double> Runtime::sum(const std::vector<double>& values) {
  std::vector<double> result = values;
  okOrThrow(impl_->collectives().allReduceSum(std::span<double>(result), impl_->collectiveDeadline()));
  return result;
}

std::vector<std::string> Runtime::gather(const std::string& value) { return impl_->allGather(value); }

void Runtime::barrier() { okOrThrow(impl_->collectives().barrierJob(impl_->collectiveDeadline())); }

RuntimeStats Runtime::stats() const {
  const sampler::SamplerMetrics& counted = *impl_->metrics;
  const runtime::StageTimes times = impl_->session->times();
  const auto whole = [](const Metrics::Counter& counter) { return static_cast<int64_t>(counter.value()); };
  RuntimeStats stats;
  stats.machine = machine();
  stats.proc = proc();
  stats.batches = whole(counted.batches);
  stats.sampledEdges = whole(counted.sampledEdges);
  stats.remoteEdges = whole(counted.remoteEdges);
  stats.neighborRequests = whole(counted.neighborMessages);
  stats.neighborBytes = whole(counted.neighborBytes);
  stats.ownFeatureRows = whole(counted.ownRows);
  stats.cachedFeatureRows = whole(counted.cachedRows);
  stats.remoteFeatureRows = whole(counted.remoteRows);
  stats.featureBytes = whole(counted.featureBytes);
  stats.featureBytesRead = whole(counted.featureBytesRead);
  stats.prefetchedBatches = whole(counted.prefetchedBatches);
  stats.pullWaitSeconds = counted.pullWaitSeconds.value();
  stats.peakResidentBytes = static_cast<int64_t>(peakResidentBytes());
  stats.sharedMemoryBytes = static_cast<int64_t>(mappedSharedMemoryBytes());
  stats.startedAtUnixSeconds = impl_->startedAtUnixSeconds;
  stats.startSeconds = times.gateSeconds;
  stats.readySeconds = times.readySeconds;
  return stats;
}

JobStats Runtime::gatherStats() {
  JobStats job;
  job.groups.resize(static_cast<size_t>(procsPerMachine()));
  for (const std::string& packed : impl_->allGather(pack(stats()))) {
    RuntimeStats stats;
    if (packed.size() != sizeof(stats)) throw Error(ErrorCode::kInternal, "gatherStats: processes of another version");
    std::memcpy(static_cast<void*>(&stats), packed.data(), sizeof(stats));
    job.processes.push_back(stats);
    job.sampledEdges += stats.sampledEdges;
    job.remoteEdges += stats.remoteEdges;
    job.neighborBytes += stats.neighborBytes;
    job.featureRows += stats.ownFeatureRows + stats.cachedFeatureRows + stats.remoteFeatureRows;
    job.cachedFeatureRows += stats.cachedFeatureRows;
    job.remoteFeatureRows += stats.remoteFeatureRows;
    job.featureBytes += stats.featureBytes;
    job.sharedMemoryBytes += stats.sharedMemoryBytes;
  }
  double origin = job.processes.front().startedAtUnixSeconds;
  for (const RuntimeStats& stats : job.processes) origin = std::min(origin, stats.startedAtUnixSeconds);
  for (const RuntimeStats& stats : job.processes) {
    JobStats::Group& group = job.groups[static_cast<size_t>(stats.proc)];
    const double started = stats.startedAtUnixSeconds - origin;
    group.startSeconds = std::max(group.startSeconds, started + stats.startSeconds);
    group.readySeconds = std::max(group.readySeconds, started + stats.readySeconds);
  }
  return job;
}

std::string Runtime::metricsText() const { return impl_->session->metrics().text(); }

void Runtime::leave() {
  if (impl_->left->exchange(true)) return;
  okOrThrow(impl_->session->leave(Deadline::after(impl_->options.leaveTimeout)));
}

}  // namespace farhop
