// A trainer for tests of whole jobs, on the public API: what it does is its first argument.
//
//   epoch DIR          writes one digest per batch of a globally dealt epoch to DIR/batches-RANK
//   links DIR          likewise, of batches of seed edges; checks what they say of themselves
//   train DIR          trains a small model, some ranks with fewer batches; writes the parameters' bytes to
//                      DIR/parameters-RANK
//   loop DIR           iterates epochs until DIR/stop exists (seen by all at once) or an error comes; writes
//                      DIR/ready-RANK after the first epoch
//   throw DIR          rank 1 throws in the middle of an epoch, the others iterate as in loop
//   leave DIR          restores loaders at every step; leaves an epoch and writes its position and its rest
//   continue DIR       goes on with that epoch: the same batches; or "another DIR", on another number of processes
//   misuse DIR         checks that mistakes are errors at the call
//   pulls DIR          checks what pulls bring: parts, dtypes, prefetched ones
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/multiproc/api_checks.h"
#include "tests/multiproc/api_position_checks.h"
#include "tests/multiproc/api_pull_checks.h"
#include "tests/multiproc/api_walk_checks.h"

namespace {

using farhop::testing::digest;
using farhop::testing::expectError;
using farhop::testing::expectUnsentError;

farhop::NeighborLoaderOptions loaderOptions() {
  farhop::NeighborLoaderOptions options;
  options.fanouts = {4, 3};
  options.batchSize = 16;
  options.seed = 11;
  options.edgeIds = true;
  return options;
}

void runEpoch(farhop::Runtime& runtime, const farhop::Graph& graph, const std::string& directory) {
  farhop::NeighborLoaderOptions options = loaderOptions();
  options.deal = farhop::SeedDeal::kGlobal;
  farhop::NeighborLoader loader(graph, graph.split("train"), options);
  std::ofstream out(directory + "/batches-" + std::to_string(runtime.worldRank()));
  for (int epoch : {0, 1}) {
    for (farhop::Batch& batch : loader.epoch(epoch)) {
      uint64_t hash = 0xCBF29CE484222325ULL;
      const std::vector<torch::Tensor> pulled = batch.pull({"original_id", "x", "label"});
      for (const torch::Tensor& tensor : pulled) hash = digest(hash, tensor);
      hash = digest(hash, batch.seedIndex());
      hash = digest(hash, batch.seedFeature("label").pull());
      for (int layer = 0; layer < batch.numBlocks(); ++layer) {
        const farhop::Block block = batch.block(layer);
        for (const std::string& relation : graph.relations()) {
          for (const torch::Tensor& tensor : {block.indptr(relation), block.indices(relation), block.edgeIndex(relation),
                                              block.edgeIds(relation)}) {
            hash = digest(hash, tensor);
          }
        }
      }
      out << epoch << " " << batch.number() << " " << std::hex << std::setw(16) << std::setfill('0') << hash << std::dec
          << "\n";
    }
  }
  farhop::testing::writeWalkDigests(graph, out);
}

[[noreturn]] void giveUp(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(14);
}

farhop::LinkLoaderOptions linkOptions() {
  farhop::LinkLoaderOptions options;
  options.fanouts = {4, 3};
  options.edgeIds = true;
  options.batchSize = 16;
  options.seed = 11;
  options.deal = farhop::SeedDeal::kGlobal;
  options.strictNegatives = true;
  options.excludeSeedEdges = farhop::ExcludeSeedEdges::kReverse;
  return options;
}

// No sampled edge of the batch is one of its seed edges or the reverse of one.
void checkNoSeedEdge(const farhop::LinkBatch& batch) {
  const auto seeds = batch.seedEdges(), edges = batch.block(0).edgeIndex();
  for (int64_t i = 0; i < seeds.size(1); ++i) {
    const torch::Tensor source = edges[0] == seeds[0][i], destination = edges[1] == seeds[1][i];
    const torch::Tensor backSource = edges[0] == seeds[1][i], backDestination = edges[1] == seeds[0][i];
    if ((source * destination + backSource * backDestination).any().item<bool>()) giveUp("a seed edge was sampled");
  }
}

void runLinks(farhop::Runtime& runtime, const farhop::Graph& graph, const std::string& directory) {
  std::ofstream out(directory + "/batches-" + std::to_string(runtime.worldRank()));
  farhop::LinkLoaderOptions options = linkOptions();
  for (const auto negatives : {farhop::Negatives::kBinary, farhop::Negatives::kTriplet}) {
    const bool triplets = negatives == farhop::Negatives::kTriplet;
    options.negatives = negatives;
    options.negativesPerEdge = triplets ? 3 : 1.5;
    options.negativeNodes = triplets ? farhop::NegativeNodes::kDegree : farhop::NegativeNodes::kUniform;
    options.negativeEnds = triplets ? farhop::NegativeEnds::kDestination : farhop::NegativeEnds::kBoth;
    farhop::LinkLoader loader(graph, graph.edgeSplit("train"), options);
    for (farhop::LinkBatch& batch : loader.epoch(0)) {
      checkNoSeedEdge(batch);
      uint64_t hash = digest(0xCBF29CE484222325ULL, batch.pull({"original_id"})[0]);
      hash = digest(hash, batch.block(0).edgeIds());
      if (triplets) {
        if (batch.dstNegIndex().sizes() != torch::IntArrayRef({16, 3})) giveUp("shape of dstNegIndex");
        if (!torch::equal(torch::stack({batch.srcIndex(), batch.dstPosIndex()}), batch.seedEdges())) giveUp("triplets");
        for (const torch::Tensor& tensor : {batch.srcIndex(), batch.dstPosIndex(), batch.dstNegIndex()}) hash = digest(hash, tensor);
      } else {
        const torch::Tensor labels = batch.edgeLabel(), index = batch.edgeLabelIndex();
        if (batch.numNegatives() != 24 || labels.size(0) != 40 || labels.sum().item<float>() != 16) giveUp("labels");
        if (!torch::equal(index.narrow(1, 0, 16), batch.seedEdges())) giveUp("edgeLabelIndex");
        if (index.max().item<int64_t>() >= batch.numNodes()) giveUp("edgeLabelIndex beyond the nodes");
        hash = digest(hash, index);
      }
      out << triplets << " " << batch.number() << " " << std::hex << hash << std::dec << "\n";
    }
  }
}

// Labels and positions stay with their pairs; a loader of seed edges resumes as others do.
void checkLabels(const farhop::Graph& graph) {
  farhop::LinkLoaderOptions options = linkOptions();
  options.deal = farhop::SeedDeal::kByOwner;
  options.tail = farhop::EpochTail::kUneven;
  options.negatives = farhop::Negatives::kBinary;
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < 100; ++i) ends.insert(ends.end(), {i, (i * 7) % 100});
  const torch::Tensor pairs = torch::tensor(ends).view({100, 2});
  const torch::Tensor labels = torch::arange(100) + 5;
  farhop::LinkLoader loader(graph, graph.edgePairs(pairs, "", labels), options);
  std::string state;
  std::vector<torch::Tensor> rest;
  for (farhop::LinkBatch& batch : loader.epoch(2)) {
    const int64_t n = batch.numSeedEdges();
    if (!torch::equal(batch.edgeLabel().narrow(0, 0, n), batch.seedPositions() + 5)) giveUp("labels of pairs");
    if (batch.edgeLabel().narrow(0, n, n).any().item<bool>()) giveUp("labels of negatives");
    const torch::Tensor ids = batch.feature("original_id").pull();
    const torch::Tensor own = torch::stack({ids.index_select(0, batch.seedEdges()[0]), ids.index_select(0, batch.seedEdges()[1])}, 1);
    if (!torch::equal(own, pairs.index_select(0, batch.seedPositions()))) giveUp("seed edges of pairs");
    if (batch.step() == 0) state = loader.state();
    if (batch.step() > 0) rest.push_back(batch.edgeLabelIndex());
  }
  farhop::LinkLoader second(graph, graph.edgePairs(pairs, "", labels), options);
  size_t at = 0;
  for (farhop::LinkBatch& batch : second.epoch(second.restore(state))) {
    if (at >= rest.size() || !torch::equal(batch.edgeLabelIndex(), rest[at++])) giveUp("resuming");
  }
  if (at != rest.size() || rest.empty()) giveUp("resuming: number of batches");
  const auto expectOther = [&](const char* what, const torch::Tensor& otherLabels, const auto& change) {
    farhop::LinkLoaderOptions other = options;
    change(&other);
    farhop::LinkLoader loader2(graph, graph.edgePairs(pairs, "", otherLabels), other);
    expectError(what, farhop::ErrorCode::kFailedPrecondition, "another store", [&] { loader2.restore(state); });
  };
  using Options = farhop::LinkLoaderOptions;
  const auto nothing = [](Options*) {};
  expectOther("other labels", labels + 1, nothing);
  expectOther("labels of another type", labels.to(torch::kFloat32), nothing);
  expectOther("negatives per edge", labels, [](Options* o) { o->negativesPerEdge += 1.0 / (1 << 20); });
  expectOther("negative ends", labels, [](Options* o) { o->negativeEnds = farhop::NegativeEnds::kBoth; });
  expectOther("negative nodes", labels, [](Options* o) { o->negativeNodes = farhop::NegativeNodes::kDegree; });
  expectOther("strict negatives", labels, [](Options* o) { o->strictNegatives = !o->strictNegatives; });
  expectOther("excluded seed edges", labels, [](Options* o) {
    o->excludeSeedEdges = o->excludeSeedEdges == farhop::ExcludeSeedEdges::kNone ? farhop::ExcludeSeedEdges::kSelf
                                                                               : farhop::ExcludeSeedEdges::kNone;
  });
  expectOther("no negatives", labels, [](Options* o) { o->negatives = farhop::Negatives::kNone; });
  // The fixture's test split has as many pairs with label 0 as with label 1.
  options.negatives = farhop::Negatives::kNone;
  farhop::LinkLoader labelled(graph, graph.edgeSplit("test"), options);
  int64_t ones = 0, seeds = 0;
  for (farhop::LinkBatch& batch : labelled.epoch(0)) {
    ones += batch.edgeLabel().sum().item<int64_t>();
    seeds += batch.numSeedEdges();
  }
  if (2 * ones < seeds / 2 || 2 * ones > seeds * 3 / 2 || seeds == 0) giveUp("labels of a split");
  options.batchSize = 512;
  farhop::LinkLoader all(graph, graph.edges(), options);
  int64_t edges = 0;
  for (farhop::LinkBatch& batch : all.epoch(0)) edges += batch.numSeedEdges();
  if (edges == 0 || edges > graph.numEdges()) giveUp("all edges");
}

// Seeds' features plus the mean of their sampled neighbours'.
torch::Tensor neighborhood(const farhop::Graph& graph, const farhop::Batch& batch) {
  const farhop::Block block = batch.block(batch.numBlocks() - 1);
  const torch::Tensor x = batch.feature("x").pull();
  torch::Tensor sum = x.narrow(0, 0, block.numDst());
  for (const std::string& relation : graph.relations()) {
    sum = sum + std::get<0>(torch::embedding_bag(x, block.indices(relation), block.indptr(relation), false, 1, false, {}, true));
  }
  return sum.index_select(0, batch.seedIndex());
}

void runTraining(farhop::Runtime& runtime, const farhop::Graph& graph, const std::string& directory) {
  torch::manual_seed(runtime.worldRank());  // on purpose different: broadcast makes them equal
  torch::nn::Sequential model(torch::nn::Linear(4, 32), torch::nn::ReLU(), torch::nn::Linear(32, 7));
  const std::vector<torch::Tensor> parameters = model->parameters();
  runtime.broadcast(parameters);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(0.01));
  farhop::NeighborLoaderOptions options = loaderOptions();
  for (farhop::EpochTail tail : {farhop::EpochTail::kWrap, farhop::EpochTail::kUneven}) {
    options.tail = tail;
    farhop::NeighborLoader loader(graph, graph.split("train"), options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (farhop::Batch& batch : loader.epoch(epoch)) {
        optimizer.zero_grad();
        torch::cross_entropy_loss(model->forward(neighborhood(graph, batch)), batch.seedFeature("label").pull()).backward();
        runtime.averageGradients(parameters);
        optimizer.step();
      }
      if (tail == farhop::EpochTail::kUneven) runtime.joinUneven(parameters, [&] { optimizer.step(); });
    }
  }
  std::ofstream out(directory + "/parameters-" + std::to_string(runtime.worldRank()), std::ios::binary);
  for (const torch::Tensor& parameter : parameters) {
    out.write(static_cast<const char*>(parameter.data_ptr()), static_cast<std::streamsize>(parameter.nbytes()));
  }
}

void loopUntilStopped(farhop::Runtime& runtime, const farhop::Graph& graph, const std::string& directory, bool rankOneThrows) {
  farhop::NeighborLoader loader(graph, graph.split("train"), loaderOptions());
  for (int epoch = 0;; ++epoch) {
    for (farhop::Batch& batch : loader.epoch(epoch)) {
      batch.feature("x").pull();
      if (rankOneThrows && epoch > 0 && runtime.worldRank() == 1) throw std::runtime_error("a mistake in the trainer");
    }
    std::ofstream(directory + "/ready-" + std::to_string(runtime.worldRank())) << epoch;
    const double stop = std::filesystem::exists(directory + "/stop") ? 1 : 0;
    if (runtime.sum({stop})[0] > 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Leaves an epoch after two batches and continues it with another loader: the same batches as without the break.
void checkResume(const farhop::Graph& graph) {
  const auto ids = [](farhop::Batch& batch) { return batch.feature("original_id").pull(); };
  farhop::NeighborLoader whole(graph, graph.split("train"), loaderOptions()), first(graph, graph.split("train"), loaderOptions());
  std::vector<torch::Tensor> expected;
  for (farhop::Batch& batch : whole.epoch(4)) expected.push_back(ids(batch));
  std::string state;
  for (farhop::Batch& batch : first.epoch(4)) {
    state = first.state();
    if (batch.step() == 1) break;
  }
  farhop::NeighborLoader second(graph, graph.split("train"), loaderOptions());
  size_t at = 2;
  for (farhop::Batch& batch : second.epoch(second.restore(state))) {
    if (at >= expected.size() || !torch::equal(ids(batch), expected[at++])) std::exit(11);
  }
  if (at != expected.size() || expected.size() < 3) std::exit(12);
  expectError("no state", farhop::ErrorCode::kInvalidArgument, "no loader's state", [&] { second.restore("x"); });
  farhop::NeighborLoaderOptions other = loaderOptions();
  other.seed += 1;
  farhop::NeighborLoader different(graph, graph.split("train"), other);
  expectError("other options", farhop::ErrorCode::kFailedPrecondition, "another store", [&] { different.restore(state); });
  // Every option that changes batches or who has them.
  using Options = farhop::NeighborLoaderOptions;
  const std::vector<std::pair<const char*, std::function<void(Options*)>>> changes = {
      {"fanouts", [](Options* o) { o->fanouts.back() += 1; }},
      {"another hop", [](Options* o) { o->fanouts.push_back(1); }},
      {"replace", [](Options* o) { o->replace = true; }},
      {"weight", [](Options* o) { o->weight = "w"; }},
      {"expand", [](Options* o) { o->expand = farhop::Expand::kAll; }},
      {"disjoint", [](Options* o) { o->disjoint = true; }},
      {"labor", [](Options* o) { o->labor = farhop::Labor::kSequential; }},
      {"Poisson labor", [](Options* o) { o->labor = farhop::Labor::kPoisson; }},
      {"layer dependency", [](Options* o) { o->labor = farhop::Labor::kPoisson; o->layerDependency = true; }},
      {"subgraph", [](Options* o) { o->subgraph = farhop::Subgraph::kInduced; }},
      {"edge ids", [](Options* o) { o->edgeIds = !o->edgeIds; }},
      {"batch size", [](Options* o) { o->batchSize += 1; }},
      {"shuffle", [](Options* o) { o->shuffle = !o->shuffle; }},
      {"deal", [](Options* o) { o->deal = o->deal == farhop::SeedDeal::kGlobal ? farhop::SeedDeal::kByOwner : farhop::SeedDeal::kGlobal; }},
      {"tail", [](Options* o) { o->tail = o->tail == farhop::EpochTail::kUneven ? farhop::EpochTail::kDrop : farhop::EpochTail::kUneven; }}};
  std::vector<std::string> states = {state};
  for (const auto& [what, change] : changes) {
    Options changed = loaderOptions();
    change(&changed);
    farhop::NeighborLoader loaderOfChanged(graph, graph.split("train"), changed);
    // No two of them take each other's states either.
    for (const std::string& known : states) {
      expectError(what, farhop::ErrorCode::kFailedPrecondition, "another store", [&] { loaderOfChanged.restore(known); });
    }
    states.push_back(loaderOfChanged.state());
  }
  farhop::NeighborLoader others(graph, graph.split("test"), loaderOptions());
  expectError("other seeds", farhop::ErrorCode::kFailedPrecondition, "another store", [&] { others.restore(state); });
}

// With every hop drawing for all nodes each block is as wide as the nodes known then, and its edges are its own.
void checkExpandAll(const farhop::Graph& graph) {
  farhop::NeighborLoaderOptions options = loaderOptions();
  options.expand = farhop::Expand::kAll;
  options.replace = true;
  options.weight = "w";
  farhop::NeighborLoader loader(graph, graph.split("train"), options);
  for (farhop::Batch& batch : loader.epoch(0)) {
    int64_t edges = 0;
    for (int layer = 0; layer < batch.numBlocks(); ++layer) {
      const farhop::Block block = batch.block(layer);
      for (const std::string& type : graph.nodeTypes()) {
        const int64_t expected = layer == 0 ? batch.numNodes(type) : batch.block(layer - 1).numDst(type);
        if (block.numSrc(type) != expected) std::exit(13);
      }
      for (const std::string& relation : graph.relations()) {
        edges += block.numEdges(relation);
        if (block.edgeIndex(relation).size(1) != block.indptr(relation)[-1].item<int64_t>()) std::exit(13);
      }
    }
    if (edges != batch.numEdges() || edges == 0) std::exit(13);
  }
}

// Trees, times, directions and shared draws: what the batch says of itself, and what is refused. The graph has edge times
// "t", no node times and no reverse relations.
void checkLimitedSampling(const farhop::Runtime& runtime, const farhop::Graph& graph) {
  using farhop::ErrorCode;
  const torch::Tensor ids = torch::arange(40, torch::kInt64), times = torch::full({40}, 50, torch::kInt64);
  const auto make = [&](const farhop::Seeds& seeds, auto&& change) {
    farhop::NeighborLoaderOptions options = loaderOptions();
    options.deal = farhop::SeedDeal::kGlobal;
    change(options);
    return farhop::NeighborLoader(graph, seeds, options);
  };
  const auto temporal = [](auto& o) { o.temporal = farhop::Temporal::kMostRecent; };
  farhop::NeighborLoader loader = make(graph.seeds(ids, "", times), temporal);
  for (farhop::Batch& batch : loader.epoch(0)) {
    if (!torch::equal(batch.seedTimes(), torch::full({batch.numSeeds()}, 50, torch::kInt64))) giveUp("times of seeds");
    const torch::Tensor tree = batch.tree();
    if (!torch::equal(tree.index_select(0, batch.seedIndex()), torch::arange(batch.numSeeds()))) giveUp("trees of seeds");
    const torch::Tensor edges = batch.block(0).edgeIndex();
    if (!torch::equal(tree.index_select(0, edges[0]), tree.index_select(0, edges[1]))) giveUp("an edge between trees");
  }
  farhop::NeighborLoader plain = make(graph.seeds(ids), [](auto& o) { o.labor = farhop::Labor::kSequential; });
  for (farhop::Batch& batch : plain.epoch(0)) {
    expectError("no trees", ErrorCode::kFailedPrecondition, "disjoint", [&] { batch.tree(); });
    expectError("no times", ErrorCode::kFailedPrecondition, "temporal", [&] { batch.seedTimes(); });
  }
  const auto refuses = [&](const char* what, ErrorCode code, const char* text, const farhop::Seeds& seeds, auto&& change) {
    expectUnsentError(runtime, what, code, text, [&] { make(seeds, change); });
  };
  const farhop::Seeds untimed = graph.seeds(ids), timed = graph.seeds(ids, "", times);
  refuses("no node times", ErrorCode::kNotFound, "it has times of: relations _N:_E:_N", untimed, temporal);
  refuses("unused times", ErrorCode::kInvalidArgument, "look ahead", timed, [](auto&) {});
  refuses("recent and weighted", ErrorCode::kInvalidArgument, "without weights", timed, [&](auto& o) { temporal(o), o.weight = "w"; });
  refuses("recent and repeated", ErrorCode::kInvalidArgument, "without replacement", timed, [&](auto& o) { temporal(o), o.replace = true; });
  refuses("recent and labor", ErrorCode::kInvalidArgument, "exclude each other", timed, [&](auto& o) { temporal(o), o.labor = farhop::Labor::kPoisson; });
  refuses("labor and weighted", ErrorCode::kInvalidArgument, "without weights", untimed, [](auto& o) { o.labor = farhop::Labor::kPoisson, o.weight = "w"; });
  refuses("dependency alone", ErrorCode::kInvalidArgument, "needs labor", untimed, [](auto& o) { o.layerDependency = true; });
  refuses("no reverse", ErrorCode::kNotFound, "--add-reverse", untimed, [](auto& o) { o.direction = farhop::Direction::kOut; });
  make(untimed, [](auto& o) { o.direction = farhop::Direction::kIn; });
  expectError("times' length", ErrorCode::kInvalidArgument, "39 times for 40 seeds", [&] { graph.seeds(ids, "", times.slice(0, 1)); });
  expectError("times' dtype", ErrorCode::kInvalidArgument, "int64", [&] { graph.seeds(ids, "", times.to(torch::kFloat32)); });
}

// Everything that belongs to a pull goes away while it is under way.
void dropPullUnderWay(const farhop::Graph& graph) {
  for (int round = 0; round < 20; ++round) {
    farhop::NeighborLoader loader(graph, graph.split("train"), loaderOptions());
    for (farhop::Batch& batch : loader.epoch(round)) {
      batch.feature("x").pullAsync();
      break;
    }
  }
}

void checkLinkMisuse(const farhop::Graph& graph) {
  using farhop::ErrorCode;
  const farhop::EdgeSeeds train = graph.edgeSplit("train"), labelled = graph.edgeSplit("test");
  const auto make = [&](const farhop::EdgeSeeds& seeds, auto&& spoil) {
    farhop::LinkLoaderOptions options = linkOptions();
    options.negatives = farhop::Negatives::kTriplet;
    spoil(options);
    farhop::LinkLoader loader(graph, seeds, options);
  };
  const auto ends = [](std::vector<int64_t> values) { return torch::tensor(values).view({-1, 2}); };
  const auto refusesRatio = [&](double ratio, const std::string& text) {
    expectError("ratio", ErrorCode::kInvalidArgument, text, [&] { make(train, [&](auto& o) { o.negativesPerEdge = ratio; }); });
  };
  refusesRatio(0, "must be above 0");
  refusesRatio(-1, "must be above 0");
  refusesRatio(std::nan(""), "must be above 0");
  refusesRatio(0.5, "whole number");
  refusesRatio(1e9, "too many");
  expectError("ends", ErrorCode::kInvalidArgument, "kBoth", [&] { make(train, [](auto& o) { o.negativeEnds = farhop::NegativeEnds::kBoth; }); });
  expectError("labels", ErrorCode::kInvalidArgument, "have labels", [&] { make(labelled, [](auto&) {}); });
  expectError("reverse", ErrorCode::kNotFound, "nothing", [&] { make(train, [](auto& o) { o.reverseRelation = "nothing"; }); });
  expectError("fanouts", ErrorCode::kInvalidArgument, "fanouts is empty", [&] { make(train, [](auto& o) { o.fanouts = {}; }); });
  expectError("importance", ErrorCode::kInvalidArgument, "seed edges", [&] { make(train, [](auto& o) { o.importance.emplace(); }); });
  expectError("edge split", ErrorCode::kNotFound, "'train' of", [&] { graph.edgeSplit("trian"); });
  expectError("edges of", ErrorCode::kNotFound, "nothing", [&] { graph.edges("nothing"); });
  expectError("range", ErrorCode::kInvalidArgument, "of pair 1", [&] { graph.edgePairs(ends({0, 1, 2, 400})); });
  expectError("negative id", ErrorCode::kInvalidArgument, "source -1", [&] { graph.edgePairs(ends({-1, 1})); });
  expectError("shape", ErrorCode::kInvalidArgument, "[n, 2]", [&] { graph.edgePairs(ends({0, 1, 2, 3}).t().reshape({4})); });
  expectError("dtype", ErrorCode::kInvalidArgument, "int64", [&] { graph.edgePairs(torch::zeros({3, 2})); });
  expectError("label count", ErrorCode::kInvalidArgument, "shape [1]", [&] { graph.edgePairs(ends({0, 1}), "", torch::zeros({2})); });
  expectError("no pairs", ErrorCode::kInvalidArgument, "no seeds", [&] { make(graph.edgePairs(torch::empty({0, 2}, torch::kInt64)), [](auto&) {}); });
  farhop::LinkLoader loader(graph, train, linkOptions());
  for (farhop::LinkBatch& batch : loader.epoch(0)) {
    expectError("triplets of none", ErrorCode::kFailedPrecondition, "no triplets", [&] { batch.srcIndex(); });
    expectError("positions", ErrorCode::kFailedPrecondition, "edgePairs", [&] { batch.seedPositions(); });
    if (batch.edgeLabel().sum().item<float>() != 16) giveUp("labels without negatives");
    break;
  }
}

// What is left of the job after mistakes works; then mistakes with batches, and with what outlives the job.
void checkUse(farhop::Runtime& runtime, const farhop::Graph& graph, const farhop::Seeds& train) {
  using farhop::ErrorCode;
  farhop::NeighborLoader loader(graph, train, loaderOptions());
  farhop::FeatureHandle late = [&] {
    for (farhop::Batch& batch : loader.epoch(0)) {
      expectError("unknown feature", ErrorCode::kNotFound, "'x'", [&] { batch.feature("y"); });
      expectError("block", ErrorCode::kInvalidArgument, "2 blocks", [&] { batch.block(2); });
      const farhop::FeatureHandle x = batch.feature("x");
      torch::Tensor wrong = torch::empty({1, 1});
      expectError("pullInto", ErrorCode::kInvalidArgument, "shape", [&] { x.pullInto(wrong); });
      torch::Tensor into = torch::empty(x.shape());
      x.pullInto(into);
      if (!torch::equal(into, x.pull()) || x.pull().data_ptr() != x.pull().data_ptr()) std::exit(8);
      if (!torch::equal(x.pullAsync().get(), into)) std::exit(8);
      return batch.seedFeature("x");
    }
    std::exit(9);
  }();
  // An epoch left early and started again gives the same batches.
  int64_t batches = 0;
  for ([[maybe_unused]] farhop::Batch& batch : loader.epoch(0)) ++batches;
  if (batches != loader.numBatches()) std::exit(10);
  if (runtime.numMachines() > 1 && runtime.stats().neighborRequests == 0) giveUp("sampling without requests");
  checkResume(graph);
  checkLimitedSampling(runtime, graph);
  checkExpandAll(graph);
  farhop::testing::checkWalks(graph);
  checkLabels(graph);
  checkLinkMisuse(graph);
  dropPullUnderWay(graph);
  expectError("second graph", ErrorCode::kFailedPrecondition, "open already", [&] { runtime.openGraph(); });
  runtime.leave();
  runtime.leave();
  expectError("pull after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { late.pull(); });
  expectError("epoch after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { loader.epoch(1); });
  expectError("sum after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { runtime.sum({1}); });
}

void checkMisuse(farhop::Runtime& runtime, const farhop::Graph& graph) {
  using farhop::ErrorCode;
  const farhop::Seeds train = graph.split("train");
  const auto make = [&](auto&& spoil) {
    farhop::NeighborLoaderOptions options = loaderOptions();
    spoil(options);
    farhop::NeighborLoader loader(graph, train, options);
  };
  const auto refuses = [&](auto&&... check) { expectUnsentError(runtime, check...); };
  refuses("no fanouts", ErrorCode::kInvalidArgument, "fanouts is empty", [&] { make([](auto& o) { o.fanouts = {}; }); });
  refuses("bad fanout", ErrorCode::kInvalidArgument, "fanout -2", [&] { make([](auto& o) { o.fanouts = {-2}; }); });
  refuses("batch size", ErrorCode::kInvalidArgument, "batchSize is 0", [&] { make([](auto& o) { o.batchSize = 0; }); });
  refuses("unknown relation", ErrorCode::kNotFound, "nothing", [&] { make([](auto& o) { o.fanoutsByRelation["nothing"] = {1, 1}; }); });
  refuses("wrong length", ErrorCode::kInvalidArgument, "hops", [&] { make([&](auto& o) { o.fanoutsByRelation[graph.relations()[0]] = {1}; }); });
  refuses("replacement fanout", ErrorCode::kInvalidArgument, "with replacement", [&] { make([](auto& o) { o.replace = true, o.fanouts = {70'000, 1}; }); });
  refuses("unknown weight", ErrorCode::kNotFound, "it has: w", [&] { make([](auto& o) { o.weight = "wieght"; }); });
  refuses("unknown relation to weigh", ErrorCode::kNotFound, "nothing", [&] { make([](auto& o) { o.weightByRelation["nothing"] = "w"; }); });
  refuses("unknown split", ErrorCode::kNotFound, "'train'", [&] { graph.split("trian"); });
  refuses("seed out of range", ErrorCode::kInvalidArgument, "out of range", [&] { graph.seeds(torch::tensor({int64_t{1} << 40}), graph.nodeTypes()[0]); });
  refuses("seed dtype", ErrorCode::kInvalidArgument, "int64", [&] { graph.seeds(torch::zeros({3}), graph.nodeTypes()[0]); });
  checkUse(runtime, graph, train);
}

int run(const std::string& mode, const std::string& directory) {
  farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
  const farhop::Graph graph = runtime.openGraph();
  if (mode == "epoch") runEpoch(runtime, graph, directory);
  if (mode == "links") runLinks(runtime, graph, directory);
  if (mode == "train") runTraining(runtime, graph, directory);
  if (mode == "loop" || mode == "throw") loopUntilStopped(runtime, graph, directory, mode == "throw");
  if (mode == "leave") farhop::testing::leaveEpoch(runtime, graph, directory);
  if (mode == "continue" || mode == "another") farhop::testing::continueEpoch(runtime, graph, directory, mode == "continue");
  if (mode == "misuse") checkMisuse(runtime, graph);
  if (mode == "pulls") farhop::testing::checkPulls(runtime, graph);
  runtime.leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return run(argv[1], argv[2]);
  } catch (const farhop::Error& error) {
    if (error.peer()) {
      std::fprintf(stderr, "lost machine %d process %d at %s\n", error.peer()->machine, error.peer()->proc,
                   error.peer()->address.c_str());
    }
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 4;
  }
}
