#include "benchmarks/loader_machine.h"

#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/metrics.h"
#include "benchmarks/machine.h"
#include "benchmarks/sampler_cases.h"
#include "rpc/bulk_slots.h"
#include "sampler/batch_stream.h"
#include "sampler/bulk_feature_service.h"
#include "sampler/bulk_puller.h"
#include "sampler/feature_puller.h"
#include "sampler/neighbor_service.h"
#include "sampler/prefetcher.h"

namespace farhop::benchmarks {
namespace {

using sampler::BatchStream;
using sampler::FeaturePuller;
using sampler::PartitionedGraph;
using sampler::PendingPull;
using sampler::Prefetcher;
using sampler::PullHold;
using sampler::PullMemory;
using sampler::SampledBatch;

constexpr std::chrono::milliseconds kTimeout{60'000};
constexpr size_t kChunkBytes = size_t{8} << 20;  // as a runtime's puller has it
constexpr size_t kMessageBytes = size_t{256} << 20;

Deadline soon() { return Deadline::after(kTimeout); }

// As a tensor's memory: aligned, not initialised, from the allocator.
absl::StatusOr<PullMemory> allocate(size_t bytes) {
  void* const memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (memory == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of features"));
  return PullMemory{static_cast<std::byte*>(memory), std::shared_ptr<void>(memory, std::free)};
}

uint64_t digestBytes(const std::byte* bytes, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
    uint64_t value;
    std::memcpy(&value, bytes + i, sizeof(value));
    sum = sum * 0x9E3779B97F4A7C15U + value;
  }
  return sum;
}

struct Reading {
  std::map<std::string, int64_t> threads;
  int64_t processorNs = 0, systemNs = 0;
  uint64_t faults = 0;

  static Reading now() {
    Reading reading;
    reading.threads = threadTimes();
    reading.processorNs = processorNanoseconds();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    reading.systemNs = int64_t{usage.ru_stime.tv_sec} * 1'000'000'000 + int64_t{usage.ru_stime.tv_usec} * 1'000;
    reading.faults = static_cast<uint64_t>(usage.ru_minflt + usage.ru_majflt);
    return reading;
  }
};

// Samples and pulls over one transport, put together as a loader is.
class CaseRunner {
 public:
  CaseRunner(std::string nameOfIt, std::shared_ptr<const PartitionedGraph> whose) : name(std::move(nameOfIt)), graph(std::move(whose)) {}
  ~CaseRunner() {
    both.reset();
    sampling.reset();
    prefetcher.reset();
    puller.reset();
  }
  CaseRunner(const CaseRunner&) = delete;
  CaseRunner& operator=(const CaseRunner&) = delete;

  const std::string name;
  const std::shared_ptr<const PartitionedGraph> graph;
  std::shared_ptr<rpc::BulkTransport> bulk;  // null: rows come by the agent, or none do
  std::shared_ptr<rpc::BulkSlots> slots = std::make_shared<rpc::BulkSlots>();
  std::unique_ptr<FeaturePuller> puller;
  std::unique_ptr<Prefetcher> prefetcher;
  std::unique_ptr<BatchStream> sampling, both;
  std::vector<std::vector<uint64_t>> nodes;  // of each batch
  LoaderCase result;
};

class LoaderMachine {
 public:
  LoaderMachine(const LoaderOptions& options, int rank, ProcessChannel& channel)
      : options_(options), rank_(rank), channel_(channel) {}
  ~LoaderMachine() {
    cases_.clear();
    if (agent_) agent_->close(absl::CancelledError("the benchmark is over"));
    for (const std::shared_ptr<rpc::BulkTransport>& bulk : bulks_) bulk->close(absl::CancelledError("the benchmark is over"));
  }

  absl::StatusOr<std::vector<LoaderCase>> run() {
    FARHOP_RETURN_IF_ERROR(openGraph());
    FARHOP_RETURN_IF_ERROR(connectAgent());
    FARHOP_RETURN_IF_ERROR(makeCases());
    for (const std::unique_ptr<CaseRunner>& runner : cases_) FARHOP_RETURN_IF_ERROR(warmUp(runner.get()));
    const size_t works = std::size(kLoaderWorks), all = cases_.size() * works;
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      // Each time another one comes first, so that none is always measured in the wake of the same one.
      for (size_t i = 0; i < all; ++i) {
        const size_t at = (static_cast<size_t>(repetition) * 5 + i) % all;
        FARHOP_RETURN_IF_ERROR(measure(cases_[at / works].get(), at % works));
      }
    }
    FARHOP_RETURN_IF_ERROR(agent_->farewell(soon()));
    FARHOP_RETURN_IF_ERROR(meet());
    std::vector<LoaderCase> results;
    for (const std::unique_ptr<CaseRunner>& runner : cases_) results.push_back(std::move(runner->result));
    return results;
  }

 private:
  absl::Status meet() { return channel_.gather("").status(); }

  absl::Status openGraph() {
    const auto progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    std::shared_ptr<const partition::GraphStore> store;
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == (rank_ == 0)) {
        FARHOP_ASSIGN_OR_RETURN(store, openRmatGraph(options_.graph, progress));
      }
      FARHOP_RETURN_IF_ERROR(meet());
    }
    FARHOP_ASSIGN_OR_RETURN(whole_, PartitionedGraph::open(store, 0, 1));
    FARHOP_ASSIGN_OR_RETURN(graph_, PartitionedGraph::open(store, rank_, options_.machines));
    for (const auto& graph : {whole_, graph_}) {
      FARHOP_RETURN_IF_ERROR(touchGraph(*graph, false));
      for (int k : graph->ownPartitions()) {
        FARHOP_ASSIGN_OR_RETURN(const sampler::OwnTable table, sampler::ownTable(*graph, 0, 0, k));
        touchPages({table.data, table.rows * rowBytes()});
      }
    }
    FARHOP_ASSIGN_OR_RETURN(BatchPlan plan,
                            BatchPlan::make(*whole_, options_.seed, options_.batchSize,
                                            options_.batches * static_cast<uint64_t>(options_.machines)));
    plan_.emplace(std::move(plan));
    return absl::OkStatus();
  }

  absl::Status connectAgent() {
    rpc::AgentOptions agent;
    agent.rank = rank_;
    agent.size = options_.machines;
    for (int peer = 0; peer < options_.machines; ++peer) peers_.push_back({peer, 0, ""});
    agent.peers = peers_;
    agent.jobId = agent.token = "loader";
    FARHOP_ASSIGN_OR_RETURN(agent_, rpc::Agent::create(agent));
    sampler::registerNeighborService(agent_.get(), graph_);
    sampler::registerFeatureService(agent_.get(), graph_, metrics_, kMessageBytes);
    FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, channel_.gather(agent_->address()));
    return agent_->connect(addresses, soon());
  }

  absl::Status connectBulk(CaseRunner* runner) {
    rpc::BulkOptions bulk;
    bulk.rank = rank_;
    bulk.size = options_.machines;
    bulk.peers = peers_;
    FARHOP_ASSIGN_OR_RETURN(runner->bulk, rpc::makeFabricTransport(std::move(bulk), {.choice = runner->name}));
    bulks_.push_back(runner->bulk);
    runner->bulk->onArrival([slots = runner->slots](uint32_t data) { slots->arrived(data); });
    // The channel carries text.
    FARHOP_ASSIGN_OR_RETURN(std::vector<std::string> endpoints, channel_.gather(absl::BytesToHexString(runner->bulk->address())));
    for (std::string& endpoint : endpoints) endpoint = absl::HexStringToBytes(endpoint);
    return runner->bulk->connect(endpoints);
  }

  absl::Status makeCases() {
    cases_.push_back(std::make_unique<CaseRunner>("local", whole_));
    cases_.back()->puller = std::make_unique<FeaturePuller>(whole_, nullptr, metrics_, kChunkBytes);
    for (const std::string& transport : options_.transports) {
      auto& runner = cases_.emplace_back(std::make_unique<CaseRunner>(transport, graph_));
      if (transport == "tensorpipe") {
        runner->puller = std::make_unique<FeaturePuller>(graph_, agent_.get(), metrics_, kChunkBytes);
        continue;
      }
      FARHOP_RETURN_IF_ERROR(connectBulk(runner.get()));
      sampler::BulkPullerOptions bulk;
      bulk.transport = runner->bulk;
      bulk.slots = runner->slots;
      bulk.peers = peers_;
      runner->puller = std::make_unique<FeaturePuller>(graph_, sampler::bulkRowTransport(agent_.get(), std::move(bulk)),
                                                       metrics_, kChunkBytes);
    }
    for (const std::unique_ptr<CaseRunner>& runner : cases_) FARHOP_RETURN_IF_ERROR(makeStreams(runner.get()));
    return absl::OkStatus();
  }

  absl::Status makeStreams(CaseRunner* runner) {
    sampler::SeedSet seeds;
    seeds.name = "node";
    for (uint64_t batch = 0; batch < plan_->batches(); ++batch) {
      const std::vector<uint64_t> some = plan_->request(batch).seeds;
      seeds.all.insert(seeds.all.end(), some.begin(), some.end());
    }
    sampler::DealOptions deal;
    deal.batchSize = options_.batchSize;
    deal.shuffle = false;  // the plan's order is a permutation already
    deal.deal = sampler::Deal::kGlobal;
    deal.machine = rank_;
    deal.numMachines = options_.machines;
    sampler::SamplingOptions sampling;
    for (int64_t fanout : options_.fanouts) sampling.fanouts.push_back({fanout});
    sampling.seed = options_.seed;
    sampling.requestTimeout = kTimeout;
    sampler::PrefetchOptions prefetch;
    prefetch.features = {{.nodeType = 0, .feature = 0, .ofSeeds = false}};
    prefetch.maxBytes = size_t{1} << 30;  // what bounds it are the batches under way
    prefetch.timeout = kTimeout;
    prefetch.allocate = [bytes = rowBytes()](size_t, size_t rows) { return allocate(rows * bytes); };
    runner->prefetcher = std::make_unique<Prefetcher>(runner->puller.get(), runner->graph, std::move(prefetch));
    sampler::StreamOptions stream{1, options_.underWay};
    for (const bool pulls : {false, true}) {
      FARHOP_ASSIGN_OR_RETURN(sampler::SeedDealer dealer, sampler::SeedDealer::make(seeds, deal));
      if (pulls) stream.sampled = [prefetcher = runner->prefetcher.get()](const SampledBatch& batch) { prefetcher->add(batch); };
      (pulls ? runner->both : runner->sampling) = std::make_unique<BatchStream>(
          runner->graph, runner->graph == whole_ ? nullptr : agent_.get(), std::move(dealer), sampling, stream, metrics_);
    }
    runner->result.name = runner->name;
    runner->result.passes.resize(std::size(kLoaderWorks));
    return absl::OkStatus();
  }

  // Rows come by this case's transport from here on; nothing is under way.
  absl::Status begin(const CaseRunner& runner) {
    if (runner.bulk != nullptr) {
      sampler::registerBulkFeatureService(agent_.get(), {.transport = runner.bulk, .graph = graph_, .metrics = metrics_});
    }
    return meet();
  }

  // Every batch's nodes, and a digest of its rows, the same whatever they come by.
  absl::Status warmUp(CaseRunner* runner) {
    FARHOP_RETURN_IF_ERROR(begin(*runner));
    LoaderPass ignored;
    FARHOP_RETURN_IF_ERROR(readEpoch(runner, runner->sampling.get(), &ignored, [&](const SampledBatch& batch, auto) {
      runner->nodes.emplace_back(batch.nodes[0].data(), batch.nodes[0].data() + batch.nodes[0].size());
    }));
    FARHOP_RETURN_IF_ERROR(meet());
    FARHOP_RETURN_IF_ERROR(readEpoch(runner, runner->both.get(), &ignored, [&](const SampledBatch& batch, auto pull) {
      runner->result.checksum += digestBytes(pull->memory()[0].data, batch.nodes[0].size() * rowBytes());
    }));
    FARHOP_RETURN_IF_ERROR(meet());
    if (runner->result.checksum == cases_[0]->result.checksum) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("rows that came by ", runner->name, " differ from the graph's"));
  }

  absl::Status measure(CaseRunner* runner, size_t work) {
    FARHOP_RETURN_IF_ERROR(begin(*runner));
    LoaderPass pass;
    const Reading before = Reading::now();
    const double remoteBefore = metrics_->remoteRows.value();
    FARHOP_RETURN_IF_ERROR(meet());
    pass.startNs = steadyNanoseconds();
    const auto ignore = [](const SampledBatch&, auto) {};
    switch (kLoaderWorks[work]) {
      case LoaderWork::kSample: FARHOP_RETURN_IF_ERROR(readEpoch(runner, runner->sampling.get(), &pass, ignore)); break;
      case LoaderWork::kBoth: FARHOP_RETURN_IF_ERROR(readEpoch(runner, runner->both.get(), &pass, ignore)); break;
      case LoaderWork::kPull: FARHOP_RETURN_IF_ERROR(pullEpoch(runner, &pass)); break;
    }
    pass.endNs = steadyNanoseconds();
    FARHOP_RETURN_IF_ERROR(meet());  // the others may still have to be served
    const Reading after = Reading::now();
    pass.processorNs = after.processorNs - before.processorNs;
    pass.systemNs = after.systemNs - before.systemNs;
    pass.faults = after.faults - before.faults;
    pass.remoteRows = static_cast<uint64_t>(metrics_->remoteRows.value() - remoteBefore);
    for (const auto& [name, nanoseconds] : after.threads) {
      const auto earlier = before.threads.find(name);
      pass.threadsNs[name] += nanoseconds - (earlier == before.threads.end() ? 0 : earlier->second);
    }
    runner->result.passes[work].push_back(std::move(pass));
    return absl::OkStatus();
  }

  // use(batch, its pull or null). A batch and its rows live until the next ones are there, as in a trainer.
  template <typename Use>
  absl::Status readEpoch(CaseRunner* runner, BatchStream* stream, LoaderPass* pass, const Use& use) {
    const bool pulls = stream == runner->both.get();
    std::unique_ptr<SampledBatch> held;
    std::shared_ptr<PullHold> heldPull;
    stream->start(0);
    for (;;) {
      FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<SampledBatch> batch, stream->next());
      if (batch == nullptr) break;
      std::shared_ptr<PullHold> pull;
      if (pulls) {
        std::vector<sampler::Prefetched> prefetched = runner->prefetcher->take(batch->epoch, batch->step);
        pass->prefetched += prefetched.size();
        if (!prefetched.empty()) {
          pull = prefetched[0].hold;
        } else {
          const PodVector<uint64_t>& nodes = batch->nodes[0];
          FARHOP_ASSIGN_OR_RETURN(pull, startPull(runner, {nodes.data(), nodes.size()}));
        }
        FARHOP_RETURN_IF_ERROR(finish(pull.get()));
      }
      ++pass->batches;
      pass->nodes += batch->nodes[0].size();
      use(*batch, pull == nullptr ? nullptr : &pull->pull());
      heldPull = std::move(pull);
      if (held != nullptr) stream->pool()->giveBack(std::move(held));
      held = std::move(batch);
    }
    if (held != nullptr) stream->pool()->giveBack(std::move(held));
    return absl::OkStatus();
  }

  absl::Status pullEpoch(CaseRunner* runner, LoaderPass* pass) {
    std::deque<std::shared_ptr<PullHold>> underWay;
    std::shared_ptr<PullHold> held;
    const auto takeOne = [&]() -> absl::Status {
      FARHOP_RETURN_IF_ERROR(finish(underWay.front().get()));
      held = std::move(underWay.front());
      underWay.pop_front();
      ++pass->batches;
      return absl::OkStatus();
    };
    for (const std::vector<uint64_t>& nodes : runner->nodes) {
      if (underWay.size() == static_cast<size_t>(options_.underWay)) FARHOP_RETURN_IF_ERROR(takeOne());
      FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<PullHold> pull, startPull(runner, nodes));
      underWay.push_back(std::move(pull));
      pass->nodes += nodes.size();
    }
    while (!underWay.empty()) FARHOP_RETURN_IF_ERROR(takeOne());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<PullHold>> startPull(CaseRunner* runner, std::span<const uint64_t> nodes) const {
    FARHOP_ASSIGN_OR_RETURN(PullMemory memory, allocate(nodes.size() * rowBytes()));
    auto pending = std::make_shared<PendingPull>(std::vector<PullMemory>{std::move(memory)});
    sampler::PullRequest request;
    request.gids = nodes;
    request.targets = {{0, pending->memory()[0].data}};
    request.keepAlive = pending;
    request.deadline = soon();
    request.cancelled = pending->cancelled();
    runner->puller->pull(std::move(request), [pending](absl::Status status) { pending->finish(std::move(status)); });
    return std::make_shared<PullHold>(pending);
  }

  static absl::Status finish(PullHold* hold) {
    if (!hold->pull().waitFor(kTimeout)) return absl::DeadlineExceededError("a pull did not end");
    return hold->pull().status();
  }

  size_t rowBytes() const { return options_.graph.floats * sizeof(float); }

  const LoaderOptions& options_;
  const int rank_;
  ProcessChannel& channel_;
  Metrics registry_;
  const std::shared_ptr<sampler::SamplerMetrics> metrics_ = std::make_shared<sampler::SamplerMetrics>(&registry_);
  std::shared_ptr<const PartitionedGraph> whole_;  // for local batches, which say what rows are right
  std::shared_ptr<const PartitionedGraph> graph_;
  std::optional<BatchPlan> plan_;
  std::vector<PeerName> peers_;
  std::unique_ptr<rpc::Agent> agent_;
  std::vector<std::shared_ptr<rpc::BulkTransport>> bulks_;
  std::vector<std::unique_ptr<CaseRunner>> cases_;  // last: they use the members above
};

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoaderPass, startNs, endNs, batches, nodes, remoteRows, prefetched, processorNs, systemNs,
                                   faults, threadsNs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoaderCase, name, passes, checksum)

std::string encodeLoaderCases(const std::vector<LoaderCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const LoaderCase& one : cases) to_json(list.emplace_back(), one);
  return list.dump();
}

absl::StatusOr<std::vector<LoaderCase>> decodeLoaderCases(const std::string& text) {
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (list.is_discarded() || !list.is_array()) return absl::InternalError("malformed result of a process");
  std::vector<LoaderCase> cases;
  for (const nlohmann::json& one : list) from_json(one, cases.emplace_back());
  return cases;
}

absl::StatusOr<std::vector<LoaderCase>> runLoaderMachine(const LoaderOptions& options, int rank, int cpu,
                                                         ProcessChannel& channel) {
  FARHOP_RETURN_IF_ERROR(pinThread(cpu));  // inherited by every thread from here on
  LoaderMachine machine(options, rank, channel);
  return machine.run();
}

}  // namespace farhop::benchmarks
