// Simple graph convolution (Wu et al.: "Simplifying graph convolutional networks", ICML 2019; here with means over
// in-neighbours): smooths the node feature "x" over the whole graph, layer by layer, and trains a linear model on the
// result. Each layer visits every node once with all its neighbours, and its outputs are a node feature of the running
// job, which the next layer pulls: the way in which any model infers over a whole graph. Needs one node type with "x"
// (float32) and "label" (int64), and splits "train" and "test".
//
//   farhop run --graph STORE --machines 2 --procs 2 -- farhop-sgc --layers 2
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>

namespace {

struct Options {
  int64_t layers = 2, epochs = 20, batchSize = 1024;
  double learningRate = 0.05;
};

// A node's own row and the means of its neighbours', in equal shares.
torch::Tensor smooth(const farhop::Graph& graph, const farhop::Batch& batch, const std::string& input) {
  const farhop::Block block = batch.block(0);
  const torch::Tensor x = batch.feature(input).pull();
  torch::Tensor out = x.narrow(0, 0, block.numDst()).clone();
  const std::vector<std::string> relations = graph.relations();
  for (const std::string& relation : relations) {
    out += std::get<0>(torch::embedding_bag(x, block.indices(relation), block.indptr(relation), false, 1, false, {},
                                            /*include_last_offset=*/true));
  }
  return (out / static_cast<double>(relations.size() + 1)).index_select(0, batch.seedIndex());
}

// Makes the node features "h1", "h2", ... and returns the last; those before are freed on the way.
farhop::NodeFeature smoothAll(const farhop::Graph& graph, const Options& options) {
  farhop::NeighborLoaderOptions everything;
  everything.fanouts = {-1};
  everything.batchSize = options.batchSize;
  everything.shuffle = false;
  everything.tail = farhop::EpochTail::kUneven;
  farhop::NeighborLoader loader(graph, graph.nodes(), everything);
  const torch::NoGradGuard noGrad;
  std::vector<farhop::NodeFeature> last;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string input = layer == 0 ? "x" : last[0].name();
    farhop::NodeFeatureWriter writer =
        graph.makeNodeFeature("h" + std::to_string(layer + 1), torch::kFloat32, graph.featureShape("x"));
    for (farhop::Batch& batch : loader.epoch(0)) writer.put(batch, smooth(graph, batch, input));
    last = {writer.finish()};
  }
  return last.at(0);
}

int run(const Options& options) {
  farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
  const farhop::Graph graph = runtime.openGraph();
  const farhop::NodeFeature smoothed = smoothAll(graph, options);

  torch::manual_seed(0);
  torch::nn::Linear model(graph.featureShape("x").at(0), graph.numClasses());
  const std::vector<torch::Tensor> parameters = model->parameters();
  runtime.broadcast(parameters);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(options.learningRate));
  farhop::NeighborLoaderOptions alone;
  alone.fanouts = {0};  // the neighbourhood is in the features
  alone.batchSize = options.batchSize;
  farhop::NeighborLoader train(graph, graph.split("train"), alone);
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (farhop::Batch& batch : train.epoch(epoch)) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model->forward(batch.seedFeature(smoothed.name()).pull()), batch.seedFeature("label").pull())
          .backward();
      runtime.averageGradients(parameters);
      optimizer.step();
    }
  }
  alone.tail = farhop::EpochTail::kUneven;
  farhop::NeighborLoader test(graph, graph.split("test"), alone);
  std::vector<double> counts(2, 0.0);  // right, all
  const torch::NoGradGuard noGrad;
  for (farhop::Batch& batch : test.epoch(0)) {
    const torch::Tensor guess = model->forward(batch.seedFeature(smoothed.name()).pull()).argmax(1);
    counts[0] += guess.eq(batch.seedFeature("label").pull()).sum().item<double>();
    counts[1] += static_cast<double>(batch.numSeeds());
  }
  counts = runtime.sum(counts);
  if (runtime.worldRank() == 0) std::printf("test accuracy %.4f\n", counts[0] / std::max(1.0, counts[1]));
  runtime.leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a linear model on smoothed node features; start it with farhop run");
  app.add_option("--layers", options.layers, "Rounds of smoothing")->check(CLI::Range(1, 100))->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the training seeds")->capture_default_str();
  app.add_option("--batch-size", options.batchSize, "Seeds per batch and process")->capture_default_str();
  app.add_option("--learning-rate", options.learningRate, "Adam's learning rate")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farhop-sgc: %s\n", error.what());
    return 1;
  }
}
