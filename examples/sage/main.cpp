// Trains GraphSAGE (Hamilton, Ying, Leskovec: "Inductive representation learning on large graphs", NIPS 2017;
// mean aggregator) on a partitioned graph, on any number of machines and processes, next to the same model
// without neighbours. Needs a node feature "x" (float32) and "label" (int64) and splits "train", "validation"
// and "test".
//
//   farhop run --graph STORE --machines 2 --procs 2 -- farhop-sage --epochs 10 --summary summary.json
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int64_t> fanouts{15, 10};
  int64_t epochs = 10, batchSize = 1024, hidden = 128, seed = 0;
  double learningRate = 0.01, dropout = 0.0;
  bool prefetch = false;
  std::string summary;
};

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One layer: own features and, per relation, the mean of the sampled neighbours' features.
struct SageLayerImpl : torch::nn::Module {
  SageLayerImpl(int64_t in, int64_t out, const std::vector<std::string>& relationNames) : relations(relationNames) {
    self = register_module("self", torch::nn::Linear(in, out));
    for (size_t i = 0; i < relations.size(); ++i) {
      neighbor.push_back(register_module("neighbor" + std::to_string(i),
                                         torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false))));
    }
  }

  torch::Tensor forward(const farhop::Block& block, const torch::Tensor& x) {
    torch::Tensor out = self->forward(x.narrow(0, 0, block.numDst()));
    for (size_t i = 0; i < relations.size(); ++i) {
      // A block is CSR: the mean over each row's neighbours is embedding_bag's "mean" (mode 1), which never
      // materialises a row per edge.
      const torch::Tensor mean =
          std::get<0>(torch::embedding_bag(x, block.indices(relations[i]), block.indptr(relations[i]), false, 1,
                                           false, {}, /*include_last_offset=*/true));
      out = out + neighbor[i]->forward(mean);
    }
    return out;
  }

  std::vector<std::string> relations;
  torch::nn::Linear self{nullptr};
  std::vector<torch::nn::Linear> neighbor;
};
TORCH_MODULE(SageLayer);

// With no relations it is a multi-layer perceptron on the seeds' own features.
struct SageImpl : torch::nn::Module {
  SageImpl(int64_t in, int64_t hidden, int64_t classes, size_t numLayers, double dropoutRate,
           const std::vector<std::string>& relations)
      : dropout(dropoutRate) {
    for (size_t i = 0; i < numLayers; ++i) {
      const SageLayer layer(i == 0 ? in : hidden, i + 1 < numLayers ? hidden : classes, relations);
      layers.push_back(register_module("layer" + std::to_string(i), layer));
    }
  }

  torch::Tensor activate(torch::Tensor h) { return torch::dropout(torch::relu(h), dropout, is_training()); }

  torch::Tensor forward(const farhop::Batch& batch, const torch::Tensor& x) {
    torch::Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) h = activate(h);
      h = layers[i]->forward(batch.block(static_cast<int>(i)), h);
    }
    return h.index_select(0, batch.seedIndex());
  }

  torch::Tensor forwardWithoutNeighbors(torch::Tensor h) {
    for (size_t i = 0; i < layers.size(); ++i) h = layers[i]->self->forward(i > 0 ? activate(h) : h);
    return h;
  }

  double dropout;
  std::vector<SageLayer> layers;
};
TORCH_MODULE(Sage);

// Accuracy of sage and mlp over all processes, every seed of the split once.
std::pair<double, double> evaluate(farhop::Runtime& runtime, farhop::NeighborLoader& loader, Sage& sage, Sage& mlp) {
  const torch::NoGradGuard noGrad;
  sage->eval();
  mlp->eval();
  std::vector<double> counts(3, 0.0);  // right by sage, right by mlp, seeds
  for (farhop::Batch& batch : loader.epoch(0)) {
    const torch::Tensor x = batch.feature("x").pull();
    const torch::Tensor y = batch.seedFeature("label").pull();
    counts[0] += sage->forward(batch, x).argmax(1).eq(y).sum().item<double>();
    const torch::Tensor ofSeeds = x.index_select(0, batch.seedIndex());
    counts[1] += mlp->forwardWithoutNeighbors(ofSeeds).argmax(1).eq(y).sum().item<double>();
    counts[2] += static_cast<double>(batch.numSeeds());
  }
  sage->train();
  mlp->train();
  counts = runtime.sum(counts);
  return {counts[0] / std::max(1.0, counts[2]), counts[1] / std::max(1.0, counts[2])};
}

nlohmann::json summarize(const farhop::JobStats& job) {
  nlohmann::json summary = {{"remote_edge_share", job.remoteEdgeShare()},
                            {"remote_feature_share", job.remoteFeatureShare()},
                            {"cached_feature_share", job.cachedFeatureShare()},
                            {"neighbor_bytes", job.neighborBytes},
                            {"feature_bytes", job.featureBytes},
                            {"shm_feature_bytes", job.sharedMemoryBytes}};
  for (const auto& process : job.processes) {
    summary["peak_rss_bytes"].push_back(process.peakResidentBytes);
    summary["pull_wait_s"].push_back(process.pullWaitSeconds);
    summary["prefetched_batches"].push_back(process.prefetchedBatches);
  }
  for (size_t p = 0; p < job.groups.size(); ++p) {
    const auto& group = job.groups[p];
    summary["groups"].push_back({{"group", p}, {"start_s", group.startSeconds}, {"ready_s", group.readySeconds}});
  }
  return summary;
}

void printSummary(const nlohmann::json& summary) {
  std::printf("test accuracy           %.4f (without neighbours %.4f)\n",
              summary["test_accuracy"].get<double>(), summary["mlp_test_accuracy"].get<double>());
  std::printf("training                %.1f s, %.0f sampled edges/s by all processes\n",
              summary["train_seconds"].get<double>(), summary["sampled_edges_per_s"].get<double>());
  std::printf("remote share            %.1f %% of sampled edges, %.1f %% of feature rows, %.1f %% from a cache\n",
              100 * summary["remote_edge_share"].get<double>(),
              100 * summary["remote_feature_share"].get<double>(),
              100 * summary["cached_feature_share"].get<double>());
  std::printf("sent between machines   %.1f MB for neighbours, %.1f MB for features\n",
              summary["neighbor_bytes"].get<double>() / 1e6, summary["feature_bytes"].get<double>() / 1e6);
  for (const auto& group : summary["groups"]) {
    std::printf("group %-2d                started after %.2f s, ready after %.2f s\n",
                group["group"].get<int>(), group["start_s"].get<double>(), group["ready_s"].get<double>());
  }
  std::printf("peak memory             ");
  for (const auto& bytes : summary["peak_rss_bytes"]) std::printf("%.0f MB  ", bytes.get<double>() / 1e6);
  std::printf("(resident, per process)\nfeatures in /dev/shm    %lld bytes\n",
              static_cast<long long>(summary["shm_feature_bytes"].get<int64_t>()));
}

int run(const Options& options) {
  farhop::Runtime runtime = farhop::Runtime::start(farhop::RuntimeOptions::fromEnvironment());
  const farhop::Graph graph = runtime.openGraph();
  const bool isFirst = runtime.worldRank() == 0;

  farhop::NeighborLoaderOptions loading;
  loading.fanouts = options.fanouts;
  loading.batchSize = options.batchSize;
  loading.seed = static_cast<uint64_t>(options.seed);
  loading.samplerThreads = runtime.samplerThreads();
  if (options.prefetch) {
    loading.prefetch = {"x"};
    loading.prefetchOfSeeds = {"label"};
  }
  farhop::NeighborLoader train(graph, graph.split("train"), loading);
  loading.tail = farhop::EpochTail::kUneven;  // evaluation: every seed once
  loading.shuffle = false;
  farhop::NeighborLoader validation(graph, graph.split("validation"), loading),
      test(graph, graph.split("test"), loading);

  torch::manual_seed(options.seed);
  const int64_t classes = graph.numClasses(), width = graph.featureShape("x").at(0);
  Sage sage(width, options.hidden, classes, options.fanouts.size(), options.dropout, graph.relations());
  Sage mlp(width, options.hidden, classes, options.fanouts.size(), options.dropout, std::vector<std::string>());
  std::vector<torch::Tensor> parameters = sage->parameters();
  for (const torch::Tensor& parameter : mlp->parameters()) parameters.push_back(parameter);
  runtime.broadcast(parameters);
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(options.learningRate));

  nlohmann::json epochs = nlohmann::json::array();
  double trainSeconds = 0, trainEdges = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const Clock::time_point start = Clock::now();
    std::vector<double> totals(3, 0.0);  // loss, batches, edges
    for (farhop::Batch& batch : train.epoch(epoch)) {
      const torch::Tensor x = batch.feature("x").pull();
      const torch::Tensor y = batch.seedFeature("label").pull();
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(sage->forward(batch, x), y);
      const torch::Tensor mlpLoss =
          torch::cross_entropy_loss(mlp->forwardWithoutNeighbors(x.index_select(0, batch.seedIndex())), y);
      (loss + mlpLoss).backward();
      runtime.averageGradients(parameters);
      optimizer.step();
      totals[0] += loss.item<double>();
      totals[1] += 1;
      totals[2] += static_cast<double>(batch.numEdges());
    }
    totals = runtime.sum(totals);
    const double seconds = secondsSince(start);
    trainSeconds += seconds;
    trainEdges += totals[2];
    const double loss = totals[0] / std::max(1.0, totals[1]);
    const double accuracy = evaluate(runtime, validation, sage, mlp).first;
    epochs.push_back({{"loss", loss}, {"val_accuracy", accuracy}, {"seconds", seconds}});
    if (isFirst) {
      std::printf("epoch %2lld  loss %.4f  validation accuracy %.4f  %.1f s\n", static_cast<long long>(epoch),
                  loss, accuracy, seconds);
      std::fflush(stdout);
    }
  }
  const auto [sageAccuracy, mlpAccuracy] = evaluate(runtime, test, sage, mlp);
  nlohmann::json summary = summarize(runtime.gatherStats());
  summary["train_seconds"] = trainSeconds;
  summary["sampled_edges_per_s"] = trainEdges / std::max(1e-9, trainSeconds);
  summary["test_accuracy"] = sageAccuracy;
  summary["mlp_test_accuracy"] = mlpAccuracy;
  summary["epochs"] = epochs;
  if (isFirst) {
    printSummary(summary);
    if (!options.summary.empty()) std::ofstream(options.summary) << summary.dump(2) << "\n";
  }
  runtime.leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains GraphSAGE on a partitioned graph; start it with farhop run");
  app.add_option("--fanouts", options.fanouts, "Neighbours per hop and relation, next to the seeds first")
      ->delimiter(',')->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the training seeds")->capture_default_str();
  app.add_option("--batch-size", options.batchSize, "Seeds per batch and process")->capture_default_str();
  app.add_option("--hidden", options.hidden, "Width of the hidden layers")->capture_default_str();
  app.add_option("--learning-rate", options.learningRate, "Adam's learning rate")->capture_default_str();
  app.add_option("--dropout", options.dropout, "Share of hidden values dropped")->capture_default_str();
  app.add_option("--seed", options.seed, "Fixes sampling and initialisation")->capture_default_str();
  app.add_flag("--prefetch", options.prefetch, "Pull features as soon as a batch is sampled");
  app.add_option("--summary", options.summary, "Write the summary to this JSON file");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farhop-sage: %s\n", error.what());
    return 1;
  }
}
