#include "benchmarks/exchange_machine.h"

#include <sys/resource.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/metrics.h"
#include "base/random.h"
#include "benchmarks/limits_bench.h"
#include "benchmarks/machine.h"
#include "benchmarks/sampler_cases.h"
#include "sampler/batch_stream.h"
#include "sampler/neighbor_service.h"

namespace farhop::benchmarks {
namespace {

using sampler::BatchStream;
using sampler::PartitionedGraph;
using sampler::SampledBatch;

constexpr std::chrono::milliseconds kConnectTimeout{30'000};
constexpr std::chrono::milliseconds kRequestTimeout{60'000};

// What is read before and after an epoch.
struct Reading {
  rpc::PeerTraffic traffic;
  sampler::StageClock::Sums stages{};
  std::map<std::string, int64_t> threads;
  int64_t processorNs = 0;
  uint64_t faults = 0;
};

class ExchangeMachine {
 public:
  ExchangeMachine(const ExchangeOptions& options, int rank, int cpu, ProcessChannel& channel)
      : options_(options), rank_(rank), cpu_(cpu), channel_(channel) {}

  absl::StatusOr<MachineResult> run() {
    FARHOP_RETURN_IF_ERROR(pinThread(cpu_));  // inherited by every thread from here on
    FARHOP_RETURN_IF_ERROR(openGraph());
    FARHOP_RETURN_IF_ERROR(connect());
    FARHOP_RETURN_IF_ERROR(makeStreams());
    FARHOP_RETURN_IF_ERROR(warmUp());
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      if (limit_ != nullptr) limit_->measure();
      // Each time another case comes first, so that none is always measured in the wake of the same one.
      // Local sampling is one of them.
      for (size_t i = 0; i <= streams_.size(); ++i) {
        const size_t at = (static_cast<size_t>(repetition) + i) % (streams_.size() + 1);
        if (at == streams_.size()) {
          FARHOP_RETURN_IF_ERROR(timeLocal());
          continue;
        }
        FARHOP_ASSIGN_OR_RETURN(ExchangePass pass, timeEpoch(*streams_[at]));
        result_.passes[at].push_back(std::move(pass));
      }
    }
    streams_.clear();
    FARHOP_RETURN_IF_ERROR(agent_->farewell(Deadline::after(kConnectTimeout)));
    FARHOP_RETURN_IF_ERROR(meet());
    agent_->close(absl::CancelledError("the benchmark is over"));
    if (limit_ != nullptr) {
      result_.smallPageReads = limit_->smallPages().values();
      result_.hugePageReads = limit_->hugePages().values();
      result_.limitChecksum = limit_->checksum();
    }
    return std::move(result_);
  }

 private:
  absl::Status meet() { return channel_.gather("").status(); }

  absl::Status openGraph() {
    const auto progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    std::shared_ptr<const partition::GraphStore> store;
    if (rank_ == 0) {
      FARHOP_ASSIGN_OR_RETURN(store, openRmatGraph(options_.graph, progress));
    }
    FARHOP_RETURN_IF_ERROR(meet());
    if (rank_ != 0) {
      FARHOP_ASSIGN_OR_RETURN(store, openRmatGraph(options_.graph, progress));
    }
    FARHOP_ASSIGN_OR_RETURN(whole_, PartitionedGraph::open(store, 0, 1));
    FARHOP_ASSIGN_OR_RETURN(graph_, PartitionedGraph::open(store, rank_, options_.machines));
    FARHOP_RETURN_IF_ERROR(touchGraph(*whole_, false));
    FARHOP_RETURN_IF_ERROR(touchGraph(*graph_, false));
    FARHOP_ASSIGN_OR_RETURN(const BatchPlan plan,
                            BatchPlan::make(*whole_, options_.seed, options_.batchSize,
                                            options_.batches * static_cast<uint64_t>(options_.machines)));
    plan_ = plan;
    for (int64_t fanout : options_.fanouts) sampling_.fanouts.push_back({fanout});
    sampling_.seed = options_.seed;
    sampling_.requestTimeout = kRequestTimeout;
    local_ = makeBatchSampler(whole_, sampling_, &idle_);
    return absl::OkStatus();
  }

  absl::Status connect() {
    rpc::AgentOptions agent;
    agent.rank = rank_;
    agent.size = options_.machines;
    for (int peer = 0; peer < options_.machines; ++peer) agent.peers.push_back({peer, 0, ""});
    agent.jobId = "exchange";
    agent.token = "exchange";
    FARHOP_ASSIGN_OR_RETURN(agent_, rpc::Agent::create(agent));
    sampler::registerNeighborService(agent_.get(), graph_, &stages_);
    FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, channel_.gather(agent_->address()));
    return agent_->connect(addresses, Deadline::after(kConnectTimeout));
  }

  absl::Status makeStreams() {
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
    sampler::SamplingOptions sampling = sampling_;
    sampling.stageClock = &stages_;
    for (int underWay : options_.underWay) {
      FARHOP_ASSIGN_OR_RETURN(sampler::SeedDealer dealer, sampler::SeedDealer::make(seeds, deal));
      streams_.push_back(std::make_unique<BatchStream>(graph_, agent_.get(), std::move(dealer), sampling,
                                                       sampler::StreamOptions{1, underWay}, metrics_));
    }
    result_.passes.resize(streams_.size());
    return absl::OkStatus();
  }

  // An untimed epoch of each case, digested and compared with local sampling of the same batches. Digests are
  // added, so that the sum over processes does not depend on who sampled which.
  absl::Status warmUp() {
    for (uint64_t step = 0; step < options_.batches; ++step) {
      const uint64_t number = step * static_cast<uint64_t>(options_.machines) + static_cast<uint64_t>(rank_);
      FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<SampledBatch> batch, local_->make(plan_->request(number)));
      result_.checksum += digestOf(*whole_, *batch);
      local_->over(std::move(batch));
    }
    for (size_t at = 0; at < streams_.size(); ++at) {
      uint64_t checksum = 0;
      FARHOP_RETURN_IF_ERROR(meet());
      FARHOP_RETURN_IF_ERROR(
          readEpoch(*streams_[at], [&](const SampledBatch& batch) { checksum += digestOf(*whole_, batch); }));
      FARHOP_RETURN_IF_ERROR(meet());
      if (checksum == result_.checksum) continue;
      return absl::InternalError(
          absl::StrCat("with ", options_.underWay[at], " batches under way the exchange sampled ",
                       "other batches than the local sampler, so that their times cannot be compared"));
    }
    if (rank_ != 0) return absl::OkStatus();
    FARHOP_ASSIGN_OR_RETURN(worker_, PinnedWorker::start(cpu_));
    FARHOP_ASSIGN_OR_RETURN(limit_,
                            ReadLimit::create(worker_.get(), options_.graph.bytes(), options_.limitReads));
    return absl::OkStatus();
  }

  // Process 0 samples alone, with all partitions its own; the others wait.
  absl::Status timeLocal() {
    FARHOP_RETURN_IF_ERROR(meet());
    if (rank_ == 0) {
      const PerfCounters counters;
      const Pass pass = timePass(*local_, *plan_, {0, options_.batches}, counters);
      FARHOP_RETURN_IF_ERROR(pass.status);
      const double edges = static_cast<double>(pass.edges);
      result_.localEdgesPerSecond.push_back(edges / pass.seconds);
      result_.localEdgesPerProcessorSecond.push_back(
          edges / std::chrono::duration<double>(pass.usage.cpuTime).count());
    }
    return meet();
  }

  template <typename Use>
  absl::Status readEpoch(BatchStream& stream, const Use& use) {
    std::unique_ptr<SampledBatch> held;  // a batch lives until the next one is there, as in a trainer
    stream.start(0);
    for (;;) {
      FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<SampledBatch> batch, stream.next());
      if (held != nullptr) stream.pool()->giveBack(std::move(held));
      if (batch == nullptr) return absl::OkStatus();
      use(*batch);
      held = std::move(batch);
    }
  }

  absl::StatusOr<ExchangePass> timeEpoch(BatchStream& stream) {
    ExchangePass pass;
    const Reading before = read();
    FARHOP_RETURN_IF_ERROR(meet());
    pass.startNs = steadyNanoseconds();
    FARHOP_RETURN_IF_ERROR(readEpoch(stream, [&](const SampledBatch& batch) {
      ++pass.batches;
      pass.edges += batch.traffic.sampledEdges;
      pass.remoteEdges += batch.traffic.remoteEdges;
      pass.payloadBytes += batch.traffic.neighborBytes;
    }));
    pass.endNs = steadyNanoseconds();
    FARHOP_RETURN_IF_ERROR(meet());  // the others may still have to be served
    const Reading after = read();
    pass.bytesSent = after.traffic.bytesSent - before.traffic.bytesSent;
    pass.messagesSent = after.traffic.messagesSent - before.traffic.messagesSent;
    pass.requestsSent = after.traffic.callsSent - before.traffic.callsSent;
    pass.processorNs = after.processorNs - before.processorNs;
    pass.faults = after.faults - before.faults;
    for (size_t stage = 0; stage < after.stages.size(); ++stage) {
      pass.stagesNs.push_back((after.stages[stage] - before.stages[stage]).count());
    }
    for (const auto& [name, nanoseconds] : after.threads) {
      const auto earlier = before.threads.find(name);
      pass.threadsNs[name] = nanoseconds - (earlier == before.threads.end() ? 0 : earlier->second);
    }
    return pass;
  }

  Reading read() const {
    Reading reading;
    reading.traffic = agent_->traffic();
    reading.stages = stages_.sums();
    reading.threads = threadTimes();
    reading.processorNs = processorNanoseconds();
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    reading.faults = static_cast<uint64_t>(usage.ru_minflt + usage.ru_majflt);
    return reading;
  }

  const ExchangeOptions& options_;
  const int rank_;
  const int cpu_;
  ProcessChannel& channel_;
  MachineResult result_;

  std::shared_ptr<const PartitionedGraph> whole_;  // for local sampling and for digests
  std::shared_ptr<const PartitionedGraph> graph_;
  std::optional<BatchPlan> plan_;
  sampler::SamplingOptions sampling_;
  Executor idle_{"idle", 1};
  std::unique_ptr<BatchMaker> local_;
  std::unique_ptr<PinnedWorker> worker_;
  std::unique_ptr<ReadLimit> limit_;

  Metrics metricsRegistry_;
  std::shared_ptr<sampler::SamplerMetrics> metrics_ =
      std::make_shared<sampler::SamplerMetrics>(&metricsRegistry_);
  sampler::StageClock stages_;
  std::unique_ptr<rpc::Agent> agent_;
  std::vector<std::unique_ptr<BatchStream>> streams_;  // last: they use the members above
};

nlohmann::json toJson(const ExchangePass& pass) {
  return {{"start", pass.startNs},
          {"end", pass.endNs},
          {"batches", pass.batches},
          {"edges", pass.edges},
          {"remoteEdges", pass.remoteEdges},
          {"payloadBytes", pass.payloadBytes},
          {"bytesSent", pass.bytesSent},
          {"messagesSent", pass.messagesSent},
          {"requestsSent", pass.requestsSent},
          {"processor", pass.processorNs},
          {"faults", pass.faults},
          {"stages", pass.stagesNs},
          {"threads", pass.threadsNs}};
}

ExchangePass passFrom(const nlohmann::json& json) {
  ExchangePass pass;
  json.at("start").get_to(pass.startNs);
  json.at("end").get_to(pass.endNs);
  json.at("batches").get_to(pass.batches);
  json.at("edges").get_to(pass.edges);
  json.at("remoteEdges").get_to(pass.remoteEdges);
  json.at("payloadBytes").get_to(pass.payloadBytes);
  json.at("bytesSent").get_to(pass.bytesSent);
  json.at("messagesSent").get_to(pass.messagesSent);
  json.at("requestsSent").get_to(pass.requestsSent);
  json.at("processor").get_to(pass.processorNs);
  json.at("faults").get_to(pass.faults);
  json.at("stages").get_to(pass.stagesNs);
  json.at("threads").get_to(pass.threadsNs);
  return pass;
}

}  // namespace

std::string encodeMachineResult(const MachineResult& result) {
  nlohmann::json cases = nlohmann::json::array();
  for (const std::vector<ExchangePass>& passes : result.passes) {
    nlohmann::json& list = cases.emplace_back(nlohmann::json::array());
    for (const ExchangePass& pass : passes) list.push_back(toJson(pass));
  }
  return nlohmann::json{{"passes", cases},
                        {"checksum", result.checksum},
                        {"local", result.localEdgesPerSecond},
                        {"localProcessor", result.localEdgesPerProcessorSecond},
                        {"smallPageReads", result.smallPageReads},
                        {"hugePageReads", result.hugePageReads},
                        {"limitChecksum", result.limitChecksum}}
      .dump();
}

absl::StatusOr<MachineResult> decodeMachineResult(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    MachineResult result;
    for (const nlohmann::json& list : json.at("passes")) {
      std::vector<ExchangePass>& passes = result.passes.emplace_back();
      for (const nlohmann::json& pass : list) passes.push_back(passFrom(pass));
    }
    json.at("checksum").get_to(result.checksum);
    json.at("local").get_to(result.localEdgesPerSecond);
    json.at("localProcessor").get_to(result.localEdgesPerProcessorSecond);
    json.at("smallPageReads").get_to(result.smallPageReads);
    json.at("hugePageReads").get_to(result.hugePageReads);
    json.at("limitChecksum").get_to(result.limitChecksum);
    return result;
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(absl::StrCat("a benchmark process gave a malformed result: ", error.what()));
  }
}

absl::StatusOr<MachineResult> runExchangeMachine(const ExchangeOptions& options, int rank, int cpu,
                                                 ProcessChannel& channel) {
  return ExchangeMachine(options, rank, cpu, channel).run();
}

}  // namespace farhop::benchmarks
