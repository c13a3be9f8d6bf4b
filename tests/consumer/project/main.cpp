// Compiles every public header as C++17 and runs a single-process job on the store named on the command line.
#include <farhop/farhop.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
    farhop::Graph graph = runtime.openGraph(argv[1]);
    farhop::NeighborLoaderOptions options;
    options.fanouts = {5, 5};
    options.batchSize = 8;
    options.seed = 7;
    farhop::NeighborLoader loader(graph, graph.split("train"), options);
    int64_t batches = 0;
    for (farhop::Batch& batch : loader.epoch(0)) {
      torch::Tensor x = batch.feature("x").pull();
      if (x.size(0) != batch.numNodes() || x.size(0) != batch.block(0).numSrc()) return 1;
      ++batches;
    }
    std::printf("farhop %s: %lld batches\n", farhop::version(), static_cast<long long>(batches));
    return batches == loader.numBatches() ? 0 : 1;
  } catch (const farhop::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
