#include "benchmarks/sampler_bench.h"

#include <CLI/CLI.hpp>
#include <absl/strings/str_join.h>
#include <malloc.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_info.h"
#include "benchmarks/limits_bench.h"
#include "benchmarks/link_cases.h"
#include "benchmarks/sampler_cases.h"

namespace farhop::benchmarks {
namespace {

constexpr uint64_t kReads = 5'000'000;
constexpr uint64_t kSmallReads = 100'000;
constexpr size_t kMaxThreads = 2;
constexpr uint32_t kWalkLength = 80;
// More than threads, so that each gets one of its own.
constexpr int kMaxArenas = 256;
// Below this share of a core, something else ran on it and the figures are not to be trusted.
constexpr double kQuietShare = 0.98;

struct SamplerBenchOptions {
  RmatOptions graph;
  std::vector<int64_t> fanouts = {15, 10, 5};
  uint64_t batchSize = 1024;
  uint64_t batches = 40;
  int repetitions = 9;
  uint64_t seed = 1;
  bool small = false;
  bool plain = false;
  std::vector<std::string> only;
  std::string json;
};

// A thread that samples for one case only: with its allocator's memory to itself, a case is as fast whichever
// other cases are run. (A baseline that allocates per node lost a quarter of its speed to the others' heap.)
struct Lane {
  std::unique_ptr<PinnedWorker> worker;
  std::unique_ptr<PerfCounters> counters;
  std::unique_ptr<BatchMaker> maker;
};

// One way to sample, on one or more threads at once.
struct Case {
  std::string name;
  std::vector<Lane> lanes;
  uint64_t checksum = 0;
  std::vector<Pass>
      passes;  // [repetitions], summed over threads; time and share of core are the worst thread's
};

class SamplerBench {
 public:
  explicit SamplerBench(SamplerBenchOptions options) : options_(std::move(options)) {}

  absl::Status run() {
    FARHOP_RETURN_IF_ERROR(prepare());
    FARHOP_RETURN_IF_ERROR(warmUp());
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      limit_->measure();
      // Each time another case comes first, so that none is always measured in the wake of the same one.
      for (size_t i = 0; i < cases_.size(); ++i) {
        FARHOP_RETURN_IF_ERROR(measure(&cases_[(static_cast<size_t>(repetition) + i) % cases_.size()]));
      }
    }
    return publishResults();
  }

 private:
  absl::Status prepare() {
    if (options_.fanouts.empty()) return absl::InvalidArgumentError("--fanouts is empty; give one per hop");
    options_.graph.timesAndWeights = !options_.plain;
    FARHOP_ASSIGN_OR_RETURN(auto store, openRmatGraph(options_.graph, [](const std::string& line) {
                              std::fprintf(stderr, "%s\n", line.c_str());
                            }));
    FARHOP_ASSIGN_OR_RETURN(graph_, sampler::PartitionedGraph::open(std::move(store), 0, 1));
    const std::vector<int> cores = usableCores();
    if (cores.empty()) return absl::InternalError("the kernel does not say which CPUs this process may use");
    cores_.assign(cores.begin(),
                  cores.begin() + static_cast<ptrdiff_t>(std::min<size_t>(kMaxThreads, cores.size())));
    ::mallopt(M_ARENA_MAX, kMaxArenas);
    FARHOP_ASSIGN_OR_RETURN(limitWorker_, PinnedWorker::start(cores_[0]));
    FARHOP_RETURN_IF_ERROR(addCases());
    for (const std::string& name : options_.only) {
      if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("there is no case '", name, "'; there are: ", absl::StrJoin(names_, "; ")));
    }
    FARHOP_ASSIGN_OR_RETURN(const BatchPlan plan, BatchPlan::make(*graph_, options_.seed, options_.batchSize,
                                                                  options_.batches * cores_.size()));
    plan_ = plan;
    return absl::OkStatus();
  }

  absl::Status addCases() {
    sampler::SamplingOptions sampling;
    for (int64_t fanout : options_.fanouts) sampling.fanouts.push_back({fanout});
    sampling.seed = options_.seed;
    sampler::SamplingOptions withIds = sampling;
    withIds.edgeIds = true;
    auto uniform = [&] { return makeBatchSampler(graph_, sampling, &idle_); };
    FARHOP_RETURN_IF_ERROR(addCase("uniform", 1, uniform));
    FARHOP_RETURN_IF_ERROR(
        addCase("unordered_map", 1, [&] { return makeUnorderedMapSampler(graph_, sampling); }));
    FARHOP_RETURN_IF_ERROR(
        addCase("uniform, edge ids", 1, [&] { return makeBatchSampler(graph_, withIds, &idle_); }));
    sampler::SamplingOptions replace = sampling;
    replace.kinds = {{sampler::DrawKind::kUniformWithReplacement}};
    FARHOP_RETURN_IF_ERROR(
        addCase("with replacement", 1, [&] { return makeBatchSampler(graph_, replace, &idle_); }));
    sampler::SamplingOptions all = sampling;
    all.expand = sampler::Expand::kAll;
    FARHOP_RETURN_IF_ERROR(addCase("expand all", 1, [&] { return makeBatchSampler(graph_, all, &idle_); }));
    // What a layer of full-graph inference does: every neighbour of each node, one hop.
    sampler::SamplingOptions inference = sampling;
    inference.fanouts = {{-1}};
    FARHOP_RETURN_IF_ERROR(addCase("inference, 1 layer", 1, [&] { return makeBatchSampler(graph_, inference, &idle_); }));
    FARHOP_RETURN_IF_ERROR(addLimitedCases(sampling));
    FARHOP_RETURN_IF_ERROR(addWalkCases(sampling));
    FARHOP_RETURN_IF_ERROR(addLinkCases(sampling));
    if (cores_.size() < 2) return absl::OkStatus();
    return addCase("uniform, 2 threads", 2, uniform);
  }

  // Kinds that are compared with uniform; those that need times or weights where the graph has them.
  absl::Status addLimitedCases(const sampler::SamplingOptions& sampling) {
    using Kind = sampler::DrawKind;
    const auto add = [&](const char* name, Kind kind, bool disjoint, bool timed) -> absl::Status {
      sampler::SamplingOptions own = sampling;
      own.kinds = {{kind}};
      own.disjoint = disjoint;
      own.temporal = timed;
      if (sampler::drawsByWeight(kind)) {
        FARHOP_ASSIGN_OR_RETURN(own.kinds[0].weight, sampler::weightIndex(*graph_, 0, "w"));
      }
      return addCase(name, 1, [&] { return makeBatchSampler(graph_, own, &idle_, timed); });
    };
    FARHOP_RETURN_IF_ERROR(add("LABOR", Kind::kLabor, false, false));
    FARHOP_RETURN_IF_ERROR(add("LABOR, Poisson", Kind::kLaborPoisson, false, false));
    FARHOP_RETURN_IF_ERROR(add("disjoint", Kind::kUniform, true, false));
    if (options_.plain) return absl::OkStatus();
    FARHOP_RETURN_IF_ERROR(add("weighted", Kind::kWeighted, false, false));
    FARHOP_RETURN_IF_ERROR(add("weighted, with replacement", Kind::kWeightedWithReplacement, false, false));
    FARHOP_RETURN_IF_ERROR(add("temporal", Kind::kUniform, true, true));
    return add("temporal, most recent", Kind::kMostRecent, true, true);
  }

  // An edge of a walk is a step.
  absl::Status addWalkCases(const sampler::SamplingOptions& sampling) {
    sampler::SamplingOptions walks;
    walks.seed = options_.seed;
    walks.walks = {sampler::WalkPlan{{{0}}, kWalkLength}, 1};
    FARHOP_RETURN_IF_ERROR(addCase("random walks", 1, [&] { return makeBatchSampler(graph_, walks, &idle_); }));
    walks.walks->plan.restart = 0.15;
    FARHOP_RETURN_IF_ERROR(addCase("random walks, restart", 1, [&] { return makeBatchSampler(graph_, walks, &idle_); }));
    walks.walks->plan.restart = 0;
    walks.walks->plan.p = 0.25;
    walks.walks->plan.q = 4;
    FARHOP_RETURN_IF_ERROR(addCase("node2vec", 1, [&] { return makeBatchSampler(graph_, walks, &idle_); }));
    sampler::SamplingOptions importance = sampling;
    importance.fanouts.resize(std::min<size_t>(importance.fanouts.size(), 2));
    importance.importance = {sampler::WalkPlan{{{0}}, 3, 0.5}, 10};
    FARHOP_RETURN_IF_ERROR(
        addCase("importance, 2 hops", 1, [&] { return makeBatchSampler(graph_, importance, &idle_); }));
    sampler::SamplingOptions induced = sampling;
    induced.fanouts.resize(std::min<size_t>(induced.fanouts.size(), 2));
    induced.subgraph = sampler::Subgraph::kInduced;
    return addCase("induced, 2 hops", 1, [&] { return makeBatchSampler(graph_, induced, &idle_); });
  }

  // Seed edges as they are; with their edges left out of the rows; and with negatives that are no edges.
  absl::Status addLinkCases(const sampler::SamplingOptions& sampling) {
    sampler::LinkOptions plain, excluding, strict;
    excluding.excludeSeeds = true;
    excluding.reverseRelation = 0;
    strict.negativesPerEdge = 1;
    strict.strict = true;
    strict.nodes = sampler::NegativeNodes::kDegree;
    for (const auto& [name, link] : {std::pair("links", plain), std::pair("links, seed edges excluded", excluding),
                                     std::pair("links, strict negatives", strict)}) {
      FARHOP_ASSIGN_OR_RETURN(const std::unique_ptr<BatchMaker> works, makeLinkSampler(graph_, sampling, link, &idle_));
      FARHOP_RETURN_IF_ERROR(addCase(name, 1, [&] { return *makeLinkSampler(graph_, sampling, link, &idle_); }));
    }
    return absl::OkStatus();
  }

  template <typename Make>
  absl::Status addCase(const std::string& name, size_t threads, const Make& make) {
    names_.push_back(name);
    const std::vector<std::string>& only = options_.only;
    if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) return absl::OkStatus();
    Case entry;
    entry.name = name;
    for (size_t thread = 0; thread < threads; ++thread) {
      Lane& lane = entry.lanes.emplace_back();
      FARHOP_ASSIGN_OR_RETURN(lane.worker, PinnedWorker::start(cores_[thread]));
      lane.worker->run([&] {
        lane.counters = std::make_unique<PerfCounters>();
        lane.maker = make();
      });
    }
    cases_.push_back(std::move(entry));
    return absl::OkStatus();
  }

  // Thread t samples the t-th share; the first share is the one-thread cases' work.
  BatchRange range(size_t thread) const {
    return {thread * options_.batches, (thread + 1) * options_.batches};
  }

  // Every thread samples all that it will be timed at, so that memory, workspaces and branch predictors are
  // as in the middle of an epoch; and the batches are digested, which would disturb the timing.
  absl::Status warmUp() {
    FARHOP_RETURN_IF_ERROR(touchGraph(*graph_, true));
    for (Case& entry : cases_) {
      for (size_t thread = 0; thread < entry.lanes.size(); ++thread) {
        absl::StatusOr<uint64_t> checksum;
        entry.lanes[thread].worker->run(
            [&] { checksum = checksumPass(*entry.lanes[thread].maker, *graph_, *plan_, range(thread)); });
        if (!checksum.ok()) return checksum.status();
        entry.checksum = thread == 0 ? *checksum : entry.checksum + *checksum;
      }
    }
    FARHOP_RETURN_IF_ERROR(compareChecksums("uniform", "unordered_map"));
    FARHOP_ASSIGN_OR_RETURN(limit_, ReadLimit::create(limitWorker_.get(), options_.graph.bytes(),
                                                      options_.small ? kSmallReads : kReads));
    return absl::OkStatus();
  }

  absl::Status compareChecksums(const std::string& one, const std::string& other) const {
    const Case* const a = find(one);
    const Case* const b = find(other);
    if (a == nullptr || b == nullptr || a->checksum == b->checksum) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("cases '", one, "' and '", other,
                     "' sampled different batches, so that their times cannot be compared"));
  }

  absl::Status measure(Case* entry) {
    const size_t threads = entry->lanes.size();
    std::vector<Pass> passes(threads);
    std::barrier start(static_cast<ptrdiff_t>(threads));
    std::vector<std::future<void>> done;
    for (size_t thread = 0; thread < threads; ++thread) {
      done.push_back(entry->lanes[thread].worker->post([&, thread] {
        start.arrive_and_wait();
        passes[thread] =
            timePass(*entry->lanes[thread].maker, *plan_, range(thread), *entry->lanes[thread].counters);
      }));
    }
    for (std::future<void>& one : done) one.wait();
    Pass sum = passes[0];
    for (size_t thread = 0; thread < threads; ++thread) {
      FARHOP_RETURN_IF_ERROR(passes[thread].status);
      if (thread == 0) continue;
      sum.seconds = std::max(sum.seconds, passes[thread].seconds);
      sum.shareOfCore = std::min(sum.shareOfCore, passes[thread].shareOfCore);
      sum.batches += passes[thread].batches;
      sum.edges += passes[thread].edges;
      sum.nodes += passes[thread].nodes;
      sum.usage += passes[thread].usage;
      for (size_t kind = 0; kind < sum.counters.size(); ++kind) {
        if (sum.counters[kind]) *sum.counters[kind] += passes[thread].counters[kind].value_or(0);
      }
    }
    if (!entry->passes.empty() && entry->passes[0].edges != sum.edges) {
      return absl::InternalError(absl::StrCat("case '", entry->name, "' sampled ", sum.edges,
                                              " edges in one repetition and ", entry->passes[0].edges,
                                              " in another"));
    }
    entry->passes.push_back(std::move(sum));
    return absl::OkStatus();
  }

  const Case* find(const std::string& name) const {
    const auto at =
        std::find_if(cases_.begin(), cases_.end(), [&](const Case& entry) { return entry.name == name; });
    return at == cases_.end() ? nullptr : &*at;
  }

  template <typename Quantity>
  static Series over(const Case& entry, const Quantity& quantity) {
    Series series;
    for (const Pass& pass : entry.passes) series.add(quantity(pass));
    return series;
  }

  static double edgeRate(const Pass& pass) { return static_cast<double>(pass.edges) / pass.seconds; }

  // By the thread's own time: other programs on its core do not count.
  static double coreRate(const Pass& pass) {
    return static_cast<double>(pass.edges) / std::chrono::duration<double>(pass.usage.cpuTime).count();
  }

  // How many times as fast as another case, repetition by repetition.
  template <typename Rate>
  static Series speedup(const Case& entry, const Case& other, const Rate& rate) {
    Series series;
    for (size_t i = 0; i < entry.passes.size(); ++i) {
      series.add(rate(entry.passes[i]) / rate(other.passes[i]));
    }
    return series;
  }

  void addRows(const Case& entry, Report* report) const {
    const int threads = static_cast<int>(entry.lanes.size());
    const double limit = limit_->best() * threads;
    const double edges = static_cast<double>(entry.passes[0].edges),
                 batches = static_cast<double>(entry.passes[0].batches);
    auto row = [&](Series values, const char* unit, std::optional<double> most = std::nullopt) {
      report->add({entry.name, std::move(values), unit, threads, most, entry.checksum});
    };
    row(over(entry, edgeRate), "edges/s", limit);
    row(over(entry, [](const Pass& pass) { return static_cast<double>(pass.batches) / pass.seconds; }),
        "batches/s", limit * batches / edges);
    row(over(entry, [](const Pass& pass) { return 1e9 / edgeRate(pass); }), "ns/edge", 1e9 / limit);
    const Case* const baseline = find("unordered_map");
    if (baseline != nullptr && baseline != &entry && threads == 1)
      row(speedup(entry, *baseline, coreRate), "x unordered_map");
    const Case* const uniform = find("uniform");
    if (uniform != nullptr && uniform != &entry && baseline != &entry && threads == 1)
      row(speedup(entry, *uniform, coreRate), "x uniform");
    if (uniform != nullptr && threads > 1) row(speedup(entry, *uniform, edgeRate), "x one thread", threads);
    row(over(entry,
             [](const Pass& pass) {
               return static_cast<double>(pass.usage.minorFaults + pass.usage.majorFaults) /
                      static_cast<double>(pass.batches);
             }),
        "faults/batch");
    row(over(entry, [](const Pass& pass) { return pass.shareOfCore; }), "share of core");
    const char* const units[PerfCounters::kKinds] = {"cache misses/edge", "TLB misses/edge",
                                                     "instructions/edge"};
    for (size_t kind = 0; kind < PerfCounters::kKinds; ++kind) {
      if (!entry.passes[0].counters[kind]) continue;
      row(over(entry, [&](const Pass& pass) { return pass.counters[kind].value_or(0) / edges; }),
          units[kind]);
    }
  }

  absl::Status publishResults() const {
    Report report("sampler", options_.graph.parameters(), options_.seed, options_.small);
    limit_->addRows(&report);
    bool quiet = true;
    for (const Case& entry : cases_) {
      addRows(entry, &report);
      for (const Pass& pass : entry.passes) quiet = quiet && pass.shareOfCore > kQuietShare;
    }
    if (!cases_.empty()) {
      const Pass& pass = cases_[0].passes[0];
      report.add({"batch", Series({static_cast<double>(pass.edges) / static_cast<double>(pass.batches)}),
                  "edges/batch"});
      report.add({"batch", Series({static_cast<double>(pass.nodes) / static_cast<double>(pass.batches)}),
                  "nodes/batch"});
    }
    report.add({"process", Series({static_cast<double>(peakResidentBytes())}), "bytes at peak"});
    if (!quiet && !options_.small)
      std::fprintf(stderr, "Something else ran on these cores meanwhile: see \"share of core\".\n");
    return publish(report, options_.json);
  }

  SamplerBenchOptions options_;
  std::shared_ptr<const sampler::PartitionedGraph> graph_;
  std::optional<BatchPlan> plan_;
  std::vector<int> cores_;  // [thread]
  Executor idle_{"idle", 1};
  std::unique_ptr<PinnedWorker> limitWorker_;
  std::vector<std::string> names_;  // of all cases that this machine can run
  std::vector<Case> cases_;
  std::unique_ptr<ReadLimit> limit_;
};

absl::Status runSampler(SamplerBenchOptions options) {
  if (options.small) {
    options.graph.nodesLog2 = 12;
    options.graph.edges = 60'000;
    options.batchSize = 128;
    options.batches = 4;
    options.repetitions = 3;
  }
  return SamplerBench(std::move(options)).run();
}

}  // namespace

void addSamplerBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<SamplerBenchOptions>();
  CLI::App* const command = app.add_subcommand("sampler", "Sampled edges per second on one core and on two");
  addRmatOptions(*command, &options->graph);
  command->add_option("--fanouts", options->fanouts, "Per hop, the one next to the seeds first")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch-size", options->batchSize, "Seeds per batch")->capture_default_str();
  command->add_option("--batches", options->batches, "Batches per thread and repetition")
      ->capture_default_str();
  command->add_option("--repetitions", options->repetitions, "Medians are over so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Seed of the order of seeds and of the draws")
      ->capture_default_str();
  command->add_option("--case", options->only, "Only the case of this name; may be repeated");
  command->add_flag("--plain", options->plain, "A graph without times and weights, and no case that needs them");
  command->add_flag("--small", options->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runSampler(*options); });
}

}  // namespace farhop::benchmarks
