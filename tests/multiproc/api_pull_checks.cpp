#include "tests/multiproc/api_pull_checks.h"

#include <chrono>
#include <utility>
#include <vector>

#include "tests/multiproc/api_checks.h"

namespace farhop::testing {
namespace {

constexpr torch::ScalarType kDTypes[] = {torch::kFloat32, torch::kFloat16, torch::kBFloat16, torch::kFloat64,
                                         torch::kInt8,    torch::kUInt8,   torch::kInt32,    torch::kInt64};

NeighborLoaderOptions options() {
  NeighborLoaderOptions options;
  options.fanouts = {4, 3};
  options.batchSize = 16;
  options.seed = 11;
  return options;
}

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "pulls: %s\n", what.c_str());
  std::exit(15);
}

std::string nameOf(torch::ScalarType dtype) { return std::string("of_") + torch::toString(dtype); }

// What the features that the checks make hold: exact in every dtype.
torch::Tensor rowsOf(const torch::Tensor& ids, torch::ScalarType dtype) {
  const torch::Tensor columns = torch::arange(6, torch::kInt64).view({1, 6});
  return ((ids.view({-1, 1}) * 7 + columns * 5).remainder(120)).to(dtype);
}

// A feature of every dtype, made by the job: it is pulled as a stored one.
std::vector<NodeFeature> makeFeatures(const Graph& graph) {
  std::vector<NodeFeature> features;
  for (torch::ScalarType dtype : kDTypes) {
    NodeFeatureWriter writer = graph.makeNodeFeature(nameOf(dtype), dtype, {6});
    NeighborLoaderOptions all = options();
    all.fanouts = {0};
    all.shuffle = false;
    all.tail = EpochTail::kUneven;
    NeighborLoader loader(graph, graph.nodes(), all);
    for (Batch& batch : loader.epoch(0)) writer.put(batch, rowsOf(batch.seedFeature("original_id").pull(), dtype));
    features.push_back(writer.finish());
  }
  return features;
}

void checkParts(const FeatureHandle& handle, const torch::Tensor& expected, torch::ScalarType wide) {
  const int64_t rows = handle.shape()[0], begin = rows / 3, end = rows - 1;
  const FeatureHandle part = handle.rows(begin, end).columns(1, 4);
  require(part.shape() == std::vector<int64_t>({end - begin, 3}), "shape of a part");
  const torch::Tensor slice = expected.slice(0, begin, end).slice(1, 1, 4);
  require(torch::equal(part.pull(), slice), "rows and columns of " + handle.name());
  require(torch::equal(handle.columns(1, 4).rows(begin, end).rows(1, 3).pull(), slice.slice(0, 1, 3)), "rows of a part of " + handle.name());
  require(handle.rows(2, 2).pull().size(0) == 0 && handle.columns(6, 6).pull().numel() == 0, "empty parts of " + handle.name());
  const FeatureHandle widened = part.as(wide);
  require(widened.dtype() == wide && torch::equal(widened.pull(), slice.to(wide)), "a wider part of " + handle.name());
  torch::Tensor into = torch::empty(widened.shape(), wide);
  handle.columns(1, 4).as(wide).rows(begin, end).pullInto(into);
  require(torch::equal(into, slice.to(wide)), "pullInto of a part of " + handle.name());
}

void checkDTypes(const Graph& graph) {
  NeighborLoader loader(graph, graph.split("train"), options());
  for (Batch& batch : loader.epoch(0)) {
    const torch::Tensor ids = batch.feature("original_id").pull();
    for (torch::ScalarType dtype : kDTypes) {
      const torch::Tensor expected = rowsOf(ids, dtype);
      const FeatureHandle handle = batch.feature(nameOf(dtype));
      require(handle.dtype() == dtype && handle.device().is_cpu(), "dtype of " + handle.name());
      const bool widens = dtype != torch::kFloat64 && dtype != torch::kInt64;
      const torch::ScalarType wide = widens ? (dtype == torch::kInt32 || dtype == torch::kFloat32 ? torch::kFloat64 : torch::kFloat32) : dtype;
      checkParts(handle, expected, wide);  // before the whole is pulled: rows travel
      const torch::Tensor whole = handle.pull();
      require(whole.scalar_type() == dtype && torch::equal(whole, expected), "rows of " + handle.name());
      checkParts(handle, expected, wide);  // and after: they are taken from it
    }
    if (batch.step() == 2) break;
  }
}

void checkEdgeParts(const Graph& graph) {
  NeighborLoader loader(graph, graph.split("train"), options());
  for (Batch& batch : loader.epoch(1)) {
    const int64_t edges = batch.edgeFeature("w").shape()[0], begin = edges / 4, end = edges / 2;
    const torch::Tensor part = batch.edgeFeature("w").rows(begin, end).as(torch::kFloat64).pull();
    const torch::Tensor ids = batch.edgeFeature("edge_id").rows(begin, end).pull();
    require(torch::equal(part, batch.edgeFeature("w").pull().slice(0, begin, end).to(torch::kFloat64)), "rows of edges");
    require(torch::equal(ids, batch.edgeFeature("edge_id").pull().slice(0, begin, end)), "ids of edges");
    if (batch.step() == 2) break;
  }
}

void checkMistakes(const Graph& graph) {
  using EC = ErrorCode;
  NeighborLoader loader(graph, graph.split("train"), options());
  for (Batch& batch : loader.epoch(0)) {
    const FeatureHandle x = batch.feature("x");
    const std::vector<int64_t> shape = x.shape();
    const auto into = [&](const char* what, const std::string& text, torch::Tensor tensor) {
      expectError(what, EC::kInvalidArgument, text, [&] { x.pullInto(std::move(tensor)); });
    };
    into("too small", "not [1, 4] Float", torch::empty({1, 4}));
    into("dtype", "dtype Float, not", torch::empty(shape, torch::kFloat64));
    into("strides", "not contiguous", torch::empty({4, shape[0]}).t());
    into("undefined", "an undefined one", {});
    into("device", "on meta", torch::empty(shape, torch::kMeta));
    expectError("GPU", EC::kInvalidArgument, "0 GPUs", [&] { x.pull(torch::Device(torch::kCUDA, 0)); });
    expectError("other device", EC::kInvalidArgument, "cannot be pulled to meta", [&] { x.pull(torch::Device(torch::kMeta)); });
    expectError("rows", EC::kInvalidArgument, "rows 0 to", [&] { x.rows(0, shape[0] + 1); });
    expectError("columns", EC::kInvalidArgument, "it has 4", [&] { x.columns(-1, 2); });
    expectError("rows of rows", EC::kInvalidArgument, "it has 3", [&] { x.rows(1, 4).rows(0, 4); });
    expectError("no columns", EC::kInvalidArgument, "no columns", [&] { batch.feature("label").columns(0, 1); });
    expectError("narrower", EC::kInvalidArgument, "does not hold every value", [&] { x.as(torch::kFloat16); });
    expectError("no dtype", EC::kInvalidArgument, "does not hold every value", [&] { x.as(torch::kComplexFloat); });
    expectError("unknown", EC::kNotFound, "'x', 'label'", [&] { batch.pull({"x", "lable"}); });
    require(torch::equal(x.pull(torch::kCPU), x.pull()), "pull to the CPU");
    break;
  }
  const auto make = [&](auto&& spoil) {
    NeighborLoaderOptions spoiled = options();
    spoil(spoiled);
    NeighborLoader unused(graph, graph.split("train"), spoiled);
  };
  expectError("prefetch", EC::kNotFound, "'x', 'label'", [&] { make([](auto& o) { o.prefetch = {"y"}; }); });
  expectError("prefetch of type", EC::kNotFound, "nothing", [&] { make([](auto& o) { o.prefetchByType["nothing"] = {"x"}; }); });
  expectError("prefetch of seeds", EC::kNotFound, "'x', 'label'", [&] { make([](auto& o) { o.prefetchOfSeeds = {"y"}; }); });
  expectError("prefetchBytes", EC::kInvalidArgument, "prefetchBytes is -1", [&] { make([](auto& o) { o.prefetchBytes = -1; }); });
}

// One pull for several features, futures, and handles that go away while it is under way.
void checkSharing(Runtime& runtime, const Graph& graph) {
  NeighborLoader loader(graph, graph.split("train"), options());
  for (Batch& batch : loader.epoch(2)) {
    batch.feature("x").pullAsync();  // given up at once
    const FeatureFuture future = batch.feature("x").pullAsync();
    const torch::Tensor x = future.get(std::chrono::milliseconds(20'000));
    require(future.waitFor(std::chrono::milliseconds(0)), "a future that is over");
    const std::vector<torch::Tensor> both = batch.pull({"x", "label", "label"});
    require(both[0].data_ptr() == x.data_ptr() && batch.feature("x").pull().data_ptr() == x.data_ptr(), "the same tensor");
    require(both[1].data_ptr() == batch.feature("label").pull().data_ptr() && torch::equal(both[1], both[2]), "labels");
    require(torch::equal(both[1].index_select(0, batch.seedIndex()), batch.seedFeature("label").pull()), "labels of seeds");
    torch::Tensor into = torch::empty(batch.feature("x").shape());
    batch.feature("x").pullInto(into);
    require(torch::equal(into, x), "pullInto of what is here");
    if (batch.step() == 2) break;
  }
  require(runtime.stats().pullWaitSeconds > 0, "time waited");
}

// A batch that nobody pulls from costs no feature bytes on any machine.
void checkUnpulled(Runtime& runtime, const Graph& graph) {
  runtime.barrier();
  const int64_t before = runtime.stats().featureBytesRead;
  runtime.barrier();
  NeighborLoader loader(graph, graph.split("train"), options());
  for (Batch& batch : loader.epoch(3)) require(batch.feature("x").shape()[0] == batch.numNodes(), "shape before the pull");
  runtime.barrier();
  require(runtime.stats().featureBytesRead == before, "features were read of batches that nobody pulled");
  runtime.barrier();
}

void checkPrefetch(Runtime& runtime, const Graph& graph) {
  std::vector<torch::Tensor> expected;
  NeighborLoader plain(graph, graph.split("train"), options());
  for (Batch& batch : plain.epoch(4)) {
    for (const char* name : {"x", "of_Half", "label"}) expected.push_back(batch.feature(name).pull());
    expected.push_back(batch.seedFeature("label").pull());
  }
  for (int64_t bytes : {int64_t{1} << 30, int64_t{20'000}, int64_t{1}}) {
    NeighborLoaderOptions ahead = options();
    ahead.samplerThreads = 2;
    ahead.prefetch = {"x", "of_Half"};
    ahead.prefetchByType[graph.nodeTypes()[0]] = {"label", "x"};
    ahead.prefetchOfSeeds = {"label"};
    ahead.prefetchBytes = bytes;
    NeighborLoader loader(graph, graph.split("train"), ahead);
    const int64_t before = runtime.stats().prefetchedBatches;
    for (Batch& batch : loader.epoch(4)) {
      if (batch.step() == 1) break;  // leaves pulls behind
    }
    size_t at = 0;
    std::vector<FeatureHandle> kept;
    for (Batch& batch : loader.epoch(4)) {
      const torch::Tensor wide = batch.feature("of_Half").as(torch::kFloat32).columns(2, 5).pull();
      require(torch::equal(batch.feature("x").pull(), expected[at]), "prefetched rows");
      require(torch::equal(wide, expected[at + 1].slice(1, 2, 5).to(torch::kFloat32)), "a part of prefetched rows");
      require(torch::equal(batch.pull({"label"})[0], expected[at + 2]), "prefetched labels");
      require(torch::equal(batch.seedFeature("label").pull(), expected[at + 3]), "prefetched labels of seeds");
      kept.push_back(batch.feature("x"));
      at += 4;
    }
    require(at == expected.size(), "batches with prefetch");
    for (size_t i = 0; i < kept.size(); ++i) require(torch::equal(kept[i].pull(), expected[4 * i]), "handles that outlive their batches");
    const bool prefetched = runtime.stats().prefetchedBatches > before;
    // Whether one has begun when its batch is handed out is a race between sampler and trainer; feature_pull_test holds it.
    require(bytes > 1 || !prefetched, "number of batches prefetched within " + std::to_string(bytes) + " bytes");
  }
}

}  // namespace

void checkPulls(Runtime& runtime, const Graph& graph) {
  const std::vector<NodeFeature> features = makeFeatures(graph);
  checkDTypes(graph);
  checkEdgeParts(graph);
  checkMistakes(graph);
  checkSharing(runtime, graph);
  checkUnpulled(runtime, graph);
  checkPrefetch(runtime, graph);
  runtime.barrier();  // nobody lets go of the features while others pull
}

}  // namespace farhop::testing
