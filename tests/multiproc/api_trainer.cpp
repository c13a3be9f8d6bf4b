// A trainer for tests of whole jobs, on the public API: what it does is its first argument.
//
//   epoch DIR          writes one digest per batch of a globally dealt epoch to DIR/batches-RANK
//   train DIR          trains a small model, some ranks with fewer batches; writes the parameters' bytes to
//                      DIR/parameters-RANK
//   loop DIR           iterates epochs until DIR/stop exists (seen by all at once) or an error comes; writes
//                      DIR/ready-RANK after the first epoch
//   throw DIR          rank 1 throws in the middle of an epoch, the others iterate as in loop
//   misuse DIR         checks that mistakes are errors at the call
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <string>
#include <thread>

#include "tests/multiproc/api_checks.h"
#include "tests/multiproc/api_walk_checks.h"

namespace {

using farhop::testing::digest;
using farhop::testing::expectError;

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

void checkMisuse(farhop::Runtime& runtime, const farhop::Graph& graph) {
  using farhop::ErrorCode;
  const farhop::Seeds train = graph.split("train");
  const auto make = [&](auto&& spoil) {
    farhop::NeighborLoaderOptions options = loaderOptions();
    spoil(options);
    farhop::NeighborLoader loader(graph, train, options);
  };
  expectError("no fanouts", ErrorCode::kInvalidArgument, "fanouts is empty", [&] { make([](auto& o) { o.fanouts = {}; }); });
  expectError("bad fanout", ErrorCode::kInvalidArgument, "fanout -2", [&] { make([](auto& o) { o.fanouts = {-2}; }); });
  expectError("batch size", ErrorCode::kInvalidArgument, "batchSize is 0", [&] { make([](auto& o) { o.batchSize = 0; }); });
  expectError("unknown relation", ErrorCode::kNotFound, "nothing", [&] { make([](auto& o) { o.fanoutsByRelation["nothing"] = {1, 1}; }); });
  expectError("wrong length", ErrorCode::kInvalidArgument, "hops", [&] { make([&](auto& o) { o.fanoutsByRelation[graph.relations()[0]] = {1}; }); });
  expectError("replacement fanout", ErrorCode::kInvalidArgument, "with replacement", [&] { make([](auto& o) { o.replace = true, o.fanouts = {70'000, 1}; }); });
  expectError("unknown weight", ErrorCode::kNotFound, "it has: w", [&] { make([](auto& o) { o.weight = "wieght"; }); });
  expectError("unknown relation to weigh", ErrorCode::kNotFound, "nothing", [&] { make([](auto& o) { o.weightByRelation["nothing"] = "w"; }); });
  expectError("unknown split", ErrorCode::kNotFound, "'train'", [&] { graph.split("trian"); });
  expectError("seed out of range", ErrorCode::kInvalidArgument, "out of range", [&] { graph.seeds(torch::tensor({int64_t{1} << 40}), graph.nodeTypes()[0]); });
  expectError("seed dtype", ErrorCode::kInvalidArgument, "int64", [&] { graph.seeds(torch::zeros({3}), graph.nodeTypes()[0]); });
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
  checkResume(graph);
  checkExpandAll(graph);
  farhop::testing::checkWalks(graph);
  dropPullUnderWay(graph);
  expectError("second graph", ErrorCode::kFailedPrecondition, "open already", [&] { runtime.openGraph(); });
  runtime.leave();
  runtime.leave();
  expectError("pull after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { late.pull(); });
  expectError("epoch after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { loader.epoch(1); });
  expectError("sum after leave", ErrorCode::kFailedPrecondition, "left the job", [&] { runtime.sum({1}); });
}

int run(const std::string& mode, const std::string& directory) {
  farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
  const farhop::Graph graph = runtime.openGraph();
  if (mode == "epoch") runEpoch(runtime, graph, directory);
  if (mode == "train") runTraining(runtime, graph, directory);
  if (mode == "loop" || mode == "throw") loopUntilStopped(runtime, graph, directory, mode == "throw");
  if (mode == "misuse") checkMisuse(runtime, graph);
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
