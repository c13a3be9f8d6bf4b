#include "tests/multiproc/api_walk_checks.h"

#include <ostream>

#include "tests/multiproc/api_checks.h"

namespace farhop::testing {
namespace {

RandomWalkLoaderOptions walkOptions() {
  RandomWalkLoaderOptions options;
  options.length = 6;
  options.walksPerSeed = 2;
  options.p = 0.5;
  options.q = 2;
  options.restart = 0.1;
  options.batchSize = 16;
  options.seed = 11;
  return options;
}

NeighborLoaderOptions importanceOptions() {
  NeighborLoaderOptions options;
  options.fanouts = {4, 3};
  options.importance.emplace();
  options.importance->numWalks = 8;
  options.importance->walkLength = 3;
  options.batchSize = 16;
  options.seed = 11;
  return options;
}

NeighborLoaderOptions inducedOptions() {
  NeighborLoaderOptions options;
  options.fanouts = {4, 3};
  options.subgraph = Subgraph::kInduced;
  options.edgeIds = true;
  options.batchSize = 16;
  options.seed = 11;
  return options;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s does not hold\n", what);
  std::exit(14);
}

void write(const char* name, const Batch& batch, std::initializer_list<torch::Tensor> tensors, std::ostream& out) {
  uint64_t hash = digest(0xCBF29CE484222325ULL, batch.feature("original_id").pull());
  for (const torch::Tensor& tensor : tensors) hash = digest(hash, tensor);
  out << name << " " << batch.number() << " " << hash << "\n";
}

// Such batches have one numbering for all seeds, and no times.
void expectNeitherTreesNorTimes(const Batch& batch) {
  expectError("no trees", ErrorCode::kFailedPrecondition, "not disjoint", [&] { batch.tree(); });
  expectError("no times", ErrorCode::kFailedPrecondition, "no times", [&] { batch.seedTimes(); });
}

// The subgraph of all nodes of a batch: one block whose rows are its nodes.
void checkInduced(const Graph& graph) {
  NeighborLoaderOptions options = inducedOptions();
  options.fanouts = {};
  options.batchSize = 100;
  NeighborLoader loader(graph, graph.split("train"), options);
  for (Batch& batch : loader.epoch(0)) {
    require(batch.numBlocks() == 1, "one block");
    expectNeitherTreesNorTimes(batch);
    const Block block = batch.block(0);
    require(block.numSrc() == batch.numNodes() && block.numDst() == batch.numNodes(), "all nodes are both");
    require(block.edgeIndex().size(1) == batch.numEdges() && batch.numEdges() > 0, "all edges are in the block");
    // The fixture's weights are the edge ids.
    require(torch::equal(block.edgeFeature("w").pull().to(torch::kInt64), block.edgeIds()), "induced edges have features");
    require(block.edgeIds().numel() == batch.numEdges(), "every edge has an id");
  }
}

// Rows of the visited nodes come early, and are the same.
void checkPrefetchOfWalks(const Graph& graph) {
  RandomWalkLoaderOptions ahead = walkOptions();
  ahead.prefetch = {"x", "original_id"};
  ahead.prefetchOfSeeds = {"label"};
  RandomWalkLoader plain(graph, graph.split("train"), walkOptions()), early(graph, graph.split("train"), ahead);
  std::vector<torch::Tensor> expected;
  for (Batch& batch : plain.epoch(2)) {
    for (const char* name : {"x", "original_id"}) expected.push_back(batch.feature(name).pull());
    expected.push_back(batch.seedFeature("label").pull());
  }
  size_t at = 0;
  for (Batch& batch : early.epoch(2)) {
    for (const char* name : {"x", "original_id"}) require(torch::equal(batch.feature(name).pull(), expected.at(at++)), "prefetched rows of walks");
    require(torch::equal(batch.seedFeature("label").pull(), expected.at(at++)), "prefetched labels of walks' seeds");
  }
  require(at == expected.size() && at > 0, "as many batches of walks with prefetch");
  ahead.prefetch = {"y"};
  expectError("prefetch of walks", ErrorCode::kNotFound, "'x', 'label'", [&] { RandomWalkLoader(graph, graph.split("train"), ahead); });
}

void checkMistakes(const Graph& graph) {
  const Seeds train = graph.split("train");
  const auto walks = [&](auto&& spoil) {
    RandomWalkLoaderOptions options = walkOptions();
    spoil(options);
    RandomWalkLoader loader(graph, train, options);
  };
  const auto importance = [&](auto&& spoil) {
    NeighborLoaderOptions options = importanceOptions();
    spoil(options);
    NeighborLoader loader(graph, train, options);
  };
  const ErrorCode invalid = ErrorCode::kInvalidArgument;
  expectError("length", invalid, "length is 0", [&] { walks([](auto& o) { o.length = 0; }); });
  expectError("p", invalid, "p is 0", [&] { walks([](auto& o) { o.p = 0; }); });
  expectError("q", invalid, "q is -1", [&] { walks([](auto& o) { o.q = -1; }); });
  expectError("restart", invalid, "[0, 1)", [&] { walks([](auto& o) { o.restart = 1; }); });
  expectError("relation", ErrorCode::kNotFound, "nothing", [&] { walks([](auto& o) { o.metapath = {"nothing"}; }); });
  expectError("weight", ErrorCode::kNotFound, "it has: w", [&] { walks([](auto& o) { o.weight = "v"; }); });
  const auto names = [&](auto& o) { o.weightByRelation = {{"_E", "w"}, {graph.relations()[0], "w"}}; };
  expectError("two names", invalid, "name it once", [&] { walks(names); });
  expectError("times", invalid, "random walks do not heed", [&] {
    const torch::Tensor ids = torch::arange(8);
    RandomWalkLoader loader(graph, graph.seeds(ids, "", ids), walkOptions());
  });
  expectError("walks", invalid, "walks", [&] { walks([](auto& o) { o.walksPerSeed = 1 << 20; }); });
  expectError("walk batch size", invalid, "batchSize is 0", [&] { walks([](auto& o) { o.batchSize = 0; }); });
  expectError("walk threads", invalid, "samplerThreads", [&] { walks([](auto& o) { o.samplerThreads = 0; }); });
  expectError("numWalks", invalid, "numWalks is 0", [&] { importance([](auto& o) { o.importance->numWalks = 0; }); });
  expectError("walkLength", invalid, "walkLength is -1", [&] { importance([](auto& o) { o.importance->walkLength = -1; }); });
  expectError("importance restart", invalid, "[0, 1)", [&] { importance([](auto& o) { o.importance->restart = 2; }); });
  expectError("importance ids", invalid, "edgeIds", [&] { importance([](auto& o) { o.edgeIds = true; }); });
  expectError("importance of edges", invalid, "choose one", [&] { importance([](auto& o) { o.subgraph = Subgraph::kInduced; }); });
  expectError("importance weight", invalid, "only `fanouts`", [&] { importance([](auto& o) { o.weight = "w"; }); });
}

}  // namespace

void writeWalkDigests(const Graph& graph, std::ostream& out) {
  RandomWalkLoaderOptions options = walkOptions();
  options.deal = SeedDeal::kGlobal;
  RandomWalkLoader walks(graph, graph.split("train"), options);
  for (Batch& batch : walks.epoch(1)) write("walks", batch, {batch.walks(), batch.restarted(), batch.seedIndex()}, out);
  NeighborLoaderOptions visited = importanceOptions();
  visited.deal = SeedDeal::kGlobal;
  NeighborLoader importance(graph, graph.split("train"), visited);
  for (Batch& batch : importance.epoch(1)) {
    for (int layer = 0; layer < batch.numBlocks(); ++layer) {
      const Block block = batch.block(layer);
      write(layer == 0 ? "importance-0" : "importance-1", batch, {block.indptr(), block.indices(), block.visits()}, out);
    }
  }
  NeighborLoaderOptions all = inducedOptions();
  all.deal = SeedDeal::kGlobal;
  NeighborLoader induced(graph, graph.split("train"), all);
  for (Batch& batch : induced.epoch(1)) {
    const Block block = batch.block(0);
    write("induced", batch, {block.indptr(), block.indices(), block.edgeIds()}, out);
  }
}

void checkWalks(const Graph& graph) {
  RandomWalkLoader loader(graph, graph.split("train"), walkOptions());
  int64_t batches = 0;
  std::string state;
  std::vector<torch::Tensor> expected;
  for (Batch& batch : loader.epoch(0)) {
    ++batches;
    const torch::Tensor walks = batch.walks();
    require(walks.size(0) == 2 * batch.numSeeds() && walks.size(1) == 7, "two walks of six steps per seed");
    require(torch::equal(walks.select(1, 0).view({-1, 2}).select(1, 1), batch.seedIndex()), "walks start at their seeds");
    require(walks.min().item<int64_t>() >= -1 && walks.max().item<int64_t>() < batch.numNodes(), "walks have nodes of the batch");
    require(batch.restarted().sizes() == torch::IntArrayRef({walks.size(0), 6}), "a mark per step");
    require(batch.numBlocks() == 0, "walks have no blocks");
    expectNeitherTreesNorTimes(batch);
    if (batches == 1) state = loader.state();
    expected.push_back(batch.feature("original_id").pull().index_select(0, walks.clamp_min(0).flatten()));
  }
  require(batches == loader.numBatches() && batches > 1, "every batch comes");
  RandomWalkLoader second(graph, graph.split("train"), walkOptions());
  size_t at = 1;
  for (Batch& batch : second.epoch(second.restore(state))) {
    const torch::Tensor ids = batch.feature("original_id").pull().index_select(0, batch.walks().clamp_min(0).flatten());
    require(torch::equal(ids, expected.at(at++)), "a restored loader goes on");
  }
  require(at == expected.size(), "a restored loader goes on to the end");
  RandomWalkLoaderOptions longer = walkOptions();
  longer.length = 7;
  RandomWalkLoader other(graph, graph.split("train"), longer);
  expectError("other walks", ErrorCode::kFailedPrecondition, "another store", [&] { other.restore(state); });

  NeighborLoader visited(graph, graph.split("train"), importanceOptions());
  for (Batch& batch : visited.epoch(0)) {
    const Block block = batch.block(1);
    require(block.visits().numel() == block.numEdges() && block.visits().min().item<int>() > 0, "every edge has visits");
    expectError("named relation", ErrorCode::kInvalidArgument, "no relation", [&] { block.indptr(graph.relations()[0]); });
    expectError("no edges", ErrorCode::kFailedPrecondition, "not the graph's", [&] { block.edgeFeature("w"); });
    expectError("no walks", ErrorCode::kFailedPrecondition, "RandomWalkLoader", [&] { batch.walks(); });
    expectNeitherTreesNorTimes(batch);
  }
  checkPrefetchOfWalks(graph);
  checkInduced(graph);
  checkMistakes(graph);
}

}  // namespace farhop::testing
