// A trainer for tests of full-graph inference and of deferred edge features, on the public API. Its first argument says
// what it does:
//
//   infer DIR    three layers over all nodes, each layer's outputs a node feature of the job; every process writes the
//                rows that it gets for its nodes to DIR/rows-TYPE-RANK: int64 original id, four float64
//   check DIR    checks edge features against edge ids, and that mistakes with node features are errors at the call
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace {

constexpr int64_t kColumns = 4;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(7);
}

template <typename Call>
void expectError(const char* what, farhop::ErrorCode code, const std::string& text, Call call) {
  try {
    call();
  } catch (const farhop::Error& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos) return;
    std::fprintf(stderr, "%s: unexpected error: %s\n", what, error.what());
    std::exit(7);
  }
  std::fprintf(stderr, "%s: no error\n", what);
  std::exit(7);
}

farhop::NeighborLoader inferenceLoader(const farhop::Graph& graph, const std::string& type) {
  farhop::NeighborLoaderOptions options;
  options.fanouts = {-1};
  options.batchSize = 19;
  options.shuffle = false;
  options.tail = farhop::EpochTail::kUneven;
  return farhop::NeighborLoader(graph, graph.nodes(type), options);
}

std::string sourceOf(const std::string& relation) { return relation.substr(0, relation.find(':')); }
std::string destinationOf(const std::string& relation) { return relation.substr(relation.rfind(':') + 1); }

// Half a node's own row, and for each relation a share of the mean of its neighbours', in row order: tests/multiproc/
// inference_test.cpp does the same sums over the whole graph.
torch::Tensor layer(const farhop::Graph& graph, const farhop::Batch& batch, const std::string& type, const std::string& input) {
  const farhop::Block block = batch.block(0);
  const auto inputs = [&](const std::string& ofType) { return batch.feature(input, ofType).pull().to(torch::kFloat64); };
  torch::Tensor out = inputs(type).narrow(0, 0, block.numDst(type)) * 0.5;
  const std::vector<std::string> relations = graph.relations();
  for (size_t r = 0; r < relations.size(); ++r) {
    if (destinationOf(relations[r]) != type) continue;
    const torch::Tensor sources = inputs(sourceOf(relations[r])), indptr = block.indptr(relations[r]), indices = block.indices(relations[r]);
    const double* const from = sources.data_ptr<double>();
    for (int64_t row = 0; row < block.numDst(type); ++row) {
      const int32_t begin = indptr.data_ptr<int32_t>()[row], end = indptr.data_ptr<int32_t>()[row + 1];
      for (int64_t c = 0; c < kColumns && begin < end; ++c) {
        double sum = 0;
        for (int32_t e = begin; e < end; ++e) sum += from[indices.data_ptr<int32_t>()[e] * kColumns + c];
        out.data_ptr<double>()[row * kColumns + c] += sum / (end - begin) / (2.0 + static_cast<double>(r));
      }
    }
  }
  return out.index_select(0, batch.seedIndex());
}

void runInference(farhop::Runtime& runtime, const farhop::Graph& graph, const std::string& directory) {
  std::string input = "x";
  std::vector<farhop::NodeFeature> inputs;
  for (int depth = 1; depth <= 3; ++depth) {
    std::string output("h");
    output += std::to_string(depth);
    std::vector<farhop::NodeFeature> outputs;
    for (const std::string& type : graph.nodeTypes()) {
      farhop::NodeFeatureWriter writer = graph.makeNodeFeature(output, torch::kFloat64, {kColumns}, type);
      farhop::NeighborLoader loader = inferenceLoader(graph, type);
      for (farhop::Batch& batch : loader.epoch(0)) writer.put(batch, layer(graph, batch, type, input));
      outputs.push_back(writer.finish());
    }
    inputs = std::move(outputs);  // frees the layer before: all have pulled what they wanted of it
    input = output;
  }
  const std::vector<std::string> types = graph.nodeTypes();
  require(graph.features(types[0]).back() == "h3", "features() lists the job's own");
  require(graph.featureType("h3", types[0]) == torch::kFloat64, "and knows their type");
  for (size_t t = 0; t < types.size(); ++t) {
    std::ofstream out(directory + "/rows-" + std::to_string(t) + "-" + std::to_string(runtime.worldRank()), std::ios::binary);
    farhop::NeighborLoader loader = inferenceLoader(graph, types[t]);
    for (farhop::Batch& batch : loader.epoch(0)) {
      // As features of all nodes of the batch, other machines' too, and as those of the seeds.
      const torch::Tensor rows = batch.seedFeature("h3").pull(), ids = batch.seedFeature("original_id").pull();
      const std::vector<torch::Tensor> both = batch.pull({"h3", "original_id"}, types[t]);
      require(torch::equal(both[0].index_select(0, batch.seedIndex()), rows), "seeds' rows are their nodes'");
      for (int64_t i = 0; i < batch.numSeeds(); ++i) {
        out.write(reinterpret_cast<const char*>(ids.data_ptr<int64_t>() + i), sizeof(int64_t));
        out.write(reinterpret_cast<const char*>(rows.data_ptr<double>() + i * kColumns), kColumns * sizeof(double));
      }
    }
  }
}

// Rows of block features against carried ids, for both ways of expansion and with and without those ids.
void checkEdgeFeatures(const farhop::Graph& graph) {
  const std::vector<std::string> relations = graph.relations();
  for (farhop::Expand expand : {farhop::Expand::kNew, farhop::Expand::kAll}) {
    farhop::NeighborLoaderOptions options;
    options.fanouts = {4, 3};
    options.batchSize = 16;
    options.expand = expand;
    farhop::NeighborLoaderOptions carrying = options;
    carrying.edgeIds = true;
    farhop::NeighborLoader loader(graph, graph.split("train"), options), truth(graph, graph.split("train"), carrying);
    auto truths = truth.epoch(0);
    auto expected = truths.begin();
    for (farhop::Batch& batch : loader.epoch(0)) {
      require(expected != truths.end(), "as many batches");
      for (size_t r = 0; r < relations.size(); ++r) {
        std::vector<torch::Tensor> byBlock;
        for (int i = batch.numBlocks() - 1; i >= 0; --i) {
          const farhop::Block block = batch.block(i);
          const torch::Tensor ids = expected->block(i).edgeIds(relations[r]);
          const farhop::FeatureHandle handle = block.edgeFeature("edge_id", relations[r]);
          require(handle.dtype() == torch::kInt64 && handle.shape() == std::vector<int64_t>{block.numEdges(relations[r])}, "shape is known");
          require(torch::equal(handle.pull(), ids), "the pulled ids are those drawn");
          // "w" of forward relation f: f / 4 + edge id; a reverse relation follows its forward one.
          const bool reverse = relations[r].find(":rev_") != std::string::npos;
          size_t forward = r;
          const std::string name = relations[r].substr(relations[r].find(':') + 1, relations[r].rfind(':') - relations[r].find(':') - 1);
          for (size_t f = 0; f < relations.size() && reverse; ++f) {
            std::string middle(":");
            middle += name.substr(4);
            middle += ":";
            if (relations[f].find(middle) != std::string::npos) forward = f;
          }
          const torch::Tensor weights = ids.to(torch::kFloat32) + 0.25F * static_cast<float>(forward);
          torch::Tensor into = torch::empty(block.edgeFeature("w", relations[r]).shape());
          block.edgeFeature("w", relations[r]).pullInto(into);
          require(torch::equal(into, weights), "features are those of the ids");
          require(torch::equal(expected->block(i).edgeFeature("w", relations[r]).pullAsync().get(), weights), "also with carried ids");
          byBlock.push_back(into);
        }
        const torch::Tensor whole = expand == farhop::Expand::kAll ? torch::cat(byBlock) : byBlock.back();
        require(torch::equal(batch.edgeFeature("w", relations[r]).pull(), whole), "a batch has its blocks' edges");
      }
      expectError("unknown edge feature", farhop::ErrorCode::kNotFound, "'w', 'edge_id'", [&] { batch.edgeFeature("y", relations[0]); });
      ++expected;
    }
  }
}

void checkNodeFeatureMistakes(farhop::Runtime& runtime, const farhop::Graph& graph) {
  using farhop::ErrorCode;
  const std::string type = graph.nodeTypes()[0];
  const int64_t before = runtime.stats().sharedMemoryBytes;
  expectError("stored name", ErrorCode::kFailedPrecondition, "the store has a feature 'x'", [&] { graph.makeNodeFeature("x", torch::kFloat32, {1}, type); });
  expectError("empty name", ErrorCode::kInvalidArgument, "name", [&] { graph.makeNodeFeature("", torch::kFloat32, {1}, type); });
  expectError("no size", ErrorCode::kInvalidArgument, "size of 0", [&] { graph.makeNodeFeature("h", torch::kFloat32, {0}, type); });
  expectError("dtype", ErrorCode::kInvalidArgument, "ComplexFloat", [&] { graph.makeNodeFeature("h", torch::kComplexFloat, {1}, type); });
  farhop::NodeFeatureWriter writer = graph.makeNodeFeature("h", torch::kFloat32, {2}, type);
  expectError("twice", ErrorCode::kFailedPrecondition, "already", [&] { graph.makeNodeFeature("h", torch::kFloat32, {2}, type); });
  if (runtime.worldSize() > 1) {
    const std::string other = runtime.worldRank() == 0 ? "a" : "b";
    expectError("different", ErrorCode::kFailedPrecondition, "another feature", [&] { graph.makeNodeFeature(other, torch::kFloat32, {2}, type); });
  }
  farhop::NeighborLoader loader = inferenceLoader(graph, type);
  int64_t nodes = 0;
  for (farhop::Batch& batch : loader.epoch(0)) {
    nodes += batch.numSeeds();
    const int64_t n = batch.numSeeds();
    expectError("unfinished", ErrorCode::kFailedPrecondition, "not finished", [&] { batch.feature("h", type); });
    expectError("shape", ErrorCode::kInvalidArgument, "shape", [&] { writer.put(batch, torch::zeros({n, 3})); });
    expectError("rows", ErrorCode::kInvalidArgument, "shape", [&] { writer.put(batch, torch::zeros({n + 1, 2})); });
    expectError("dtype of rows", ErrorCode::kInvalidArgument, "dtype", [&] { writer.put(batch, torch::zeros({n, 2}, torch::kFloat64)); });
    if (batch.step() > 0) writer.put(batch, torch::ones({2, n}).t());  // rows need not be contiguous
  }
  require(static_cast<int64_t>(runtime.sum({static_cast<double>(nodes)})[0]) == graph.numNodes(type), "every node once");
  expectError("missing", ErrorCode::kFailedPrecondition, "has no rows for", [&] { writer.finish(); });
  expectError("no such node", ErrorCode::kInvalidArgument, "does not exist", [&] {
    writer.put(torch::tensor({graph.numNodes(type)}, torch::kInt64), torch::zeros({1, 2}));
  });
  if (runtime.numMachines() > 1) {
    expectError("foreign rows", ErrorCode::kInvalidArgument, "machine", [&] {
      writer.put(torch::arange(graph.numNodes(type), torch::kInt64), torch::zeros({graph.numNodes(type), 2}));
    });
  }
  torch::Tensor own;
  int64_t shared = 0;
  for (farhop::Batch& batch : loader.epoch(0)) {
    const torch::Tensor ids = batch.seedFeature("original_id").pull();
    writer.put(ids, torch::stack({ids, -ids}, 1).to(torch::kFloat32));
    own = ids;
  }
  {
    const farhop::NodeFeature feature = writer.finish();
    require(feature.name() == "h" && feature.nodeType() == type, "names");
    expectError("put after finish", ErrorCode::kFailedPrecondition, "finished", [&] { writer.put(own, torch::zeros({own.size(0), 2})); });
    expectError("unknown feature", ErrorCode::kNotFound, "'h'", [&] { graph.featureShape("y", type); });
    farhop::NeighborLoaderOptions options;
    options.fanouts = {5};
    options.batchSize = 64;
    farhop::NeighborLoader random(graph, graph.split("train"), options);
    for (farhop::Batch& batch : random.epoch(0)) {
      const torch::Tensor ids = batch.feature("original_id", type).pull().to(torch::kFloat32);
      require(torch::equal(batch.feature("h", type).pull(), torch::stack({ids, -ids}, 1)), "every process pulls what others put");
    }
    shared = runtime.stats().sharedMemoryBytes;
    require(shared > before, "the rows lie in shared memory");
    // One process lets go of the feature while another one pulls: served all the same.
    if (runtime.worldRank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (farhop::Batch& batch : random.epoch(1)) {
      if (runtime.worldRank() == 0) batch.feature("h", type).pull();
      batch.feature("h", type).pullAsync();
      break;
    }
  }
  for (farhop::Batch& batch : loader.epoch(2)) {
    expectError("gone", ErrorCode::kNotFound, "no feature 'h'", [&] { batch.feature("h", type); });
  }
  farhop::NodeFeatureWriter again = graph.makeNodeFeature("h", torch::kInt64, {}, type);
  for (farhop::Batch& batch : loader.epoch(3)) again.put(batch, batch.seedFeature("original_id").pull());
  const farhop::NodeFeature whole = again.finish();
  // As many bytes as those before it, which are freed; a pull under way may hold them for a moment longer.
  for (int i = 0; i < 100 && runtime.stats().sharedMemoryBytes > shared; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  require(runtime.stats().sharedMemoryBytes == shared, "what all have let go of is freed");
  for (farhop::Batch& batch : loader.epoch(4)) {
    require(torch::equal(batch.feature("h", type).pull(), batch.feature("original_id", type).pull()), "one number per node");
  }
}

int run(const std::string& mode, const std::string& directory) {
  farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
  const farhop::Graph graph = runtime.openGraph();
  if (mode == "infer") runInference(runtime, graph, directory);
  if (mode == "check") {
    checkEdgeFeatures(graph);
    checkNodeFeatureMistakes(runtime, graph);
  }
  runtime.leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 4;
  }
}
