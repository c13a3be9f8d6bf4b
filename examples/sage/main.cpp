// Trains GraphSAGE (Hamilton, Ying, Leskovec: "Inductive representation learning on large graphs", NIPS 2017;
// mean aggregator) on a partitioned graph, on any number of machines and processes, next to the same model
// without neighbours. Needs a node feature "x" (float32) and "label" (int64) and splits "train", "validation"
// and "test".
//
//   farhop run --graph STORE --machines 2 --procs 2 -- farhop-sage --epochs 10 --summary summary.json
//
// With --checkpoint it saves what it has come to, and goes on from there when started again; asked to stop (SIGTERM,
// SIGUSR1, --time-limit), it saves and ends with exit code 75.
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<int64_t> fanouts{15, 10};
  int64_t epochs = 10, batchSize = 1024, hidden = 128, seed = 0;
  double learningRate = 0.01, dropout = 0.0;
  bool prefetch = false;
  std::string summary;
  std::string checkpoint;
  int64_t checkpointEvery = 100, threads = 0;
  double timeLimitSeconds = 0;
  bool resize = false;
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

// FNV-1a of the parameters' bytes: equal for trainings that came to exactly the same.
std::string hashOf(const std::vector<torch::Tensor>& tensors) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor flat = tensor.contiguous();
    const auto* bytes = static_cast<const unsigned char*>(flat.data_ptr());
    for (size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
  }
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
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

// What the loaders of training and evaluation share.
farhop::NeighborLoaderOptions loaderOptions(const Options& options, const farhop::Runtime& runtime) {
  farhop::NeighborLoaderOptions loading;
  loading.fanouts = options.fanouts;
  loading.batchSize = options.batchSize;
  loading.seed = static_cast<uint64_t>(options.seed);
  loading.samplerThreads = runtime.samplerThreads();
  if (options.prefetch) {
    loading.prefetch = {"x"};
    loading.prefetchOfSeeds = {"label"};
  }
  return loading;
}

farhop::NeighborLoader evaluationLoader(const Options& options, const farhop::Runtime& runtime, const farhop::Graph& graph,
                                        const std::string& split) {
  farhop::NeighborLoaderOptions loading = loaderOptions(options, runtime);
  loading.tail = farhop::EpochTail::kUneven;  // every seed once
  loading.shuffle = false;
  return {graph, graph.split(split), loading};
}

class Training {
 public:
  Training(const Options& options, farhop::Runtime& runtime, const farhop::Graph& graph)
      : options_(options), runtime_(runtime), isFirst_(runtime.worldRank() == 0),
        train_(graph, graph.split("train"), loaderOptions(options, runtime)),
        validation_(evaluationLoader(options, runtime, graph, "validation")),
        test_(evaluationLoader(options, runtime, graph, "test")) {
    torch::manual_seed(static_cast<uint64_t>(options.seed));
    const int64_t classes = graph.numClasses(), width = graph.featureShape("x").at(0);
    sage_ = Sage(width, options.hidden, classes, options.fanouts.size(), options.dropout, graph.relations());
    mlp_ = Sage(width, options.hidden, classes, options.fanouts.size(), options.dropout, std::vector<std::string>());
    parameters_ = sage_->parameters();
    for (const torch::Tensor& parameter : mlp_->parameters()) parameters_.push_back(parameter);
    runtime.broadcast(parameters_);
    optimizer_ = std::make_unique<torch::optim::Adam>(parameters_, torch::optim::AdamOptions(options.learningRate));
    if (!options.checkpoint.empty()) goOn();
  }

  // False when it was asked to stop, and has saved.
  bool run() {
    for (; epoch_ < options_.epochs; ++epoch_) {
      if (!trainEpoch()) return false;
      finishEpoch();
    }
    return true;
  }

  nlohmann::json summary() {
    const auto [sageAccuracy, mlpAccuracy] = evaluate(runtime_, test_, sage_, mlp_);
    nlohmann::json summary = summarize(runtime_.gatherStats());
    summary["train_seconds"] = trainSeconds_;
    summary["sampled_edges_per_s"] = trainEdges_ / std::max(1e-9, trainSeconds_);
    summary["test_accuracy"] = sageAccuracy;
    summary["mlp_test_accuracy"] = mlpAccuracy;
    summary["epochs"] = epochs_;
    summary["parameters_hash"] = hashOf(parameters_);
    return summary;
  }

 private:
  enum Total { kLoss, kBatches, kEdges, kSeconds, kNumTotals };  // of this process in the epoch under way

  void goOn() {
    checkpoint_.emplace(runtime_, options_.checkpoint, parameters_, *optimizer_);
    const std::optional<Progress> progress = checkpoint_->load();
    if (!progress) return;
    epochs_ = progress->history.at("epochs");
    trainSeconds_ = progress->history.at("seconds").get<double>();
    trainEdges_ = progress->history.at("edges").get<double>();
    const bool resize = options_.resize;
    epoch_ = train_.restore(progress->position,
                            resize ? farhop::OtherProcesses::kNextEpoch : farhop::OtherProcesses::kRefuse);
    const auto evaluated = static_cast<int64_t>(epochs_.size());
    if (evaluated <= epoch_) totals_ = progress->totals;
    epoch_ = std::max(epoch_, evaluated);
    if (isFirst_) std::printf("going on from %s in epoch %lld\n", options_.checkpoint.c_str(), static_cast<long long>(epoch_));
  }

  void save() {
    checkpoint_->save(
        {train_.state(), totals_, {{"epochs", epochs_}, {"seconds", trainSeconds_}, {"edges", trainEdges_}}});
  }

  void learn(farhop::Batch& batch) {
    const torch::Tensor x = batch.feature("x").pull();
    const torch::Tensor y = batch.seedFeature("label").pull();
    optimizer_->zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(sage_->forward(batch, x), y);
    const torch::Tensor mlpLoss =
        torch::cross_entropy_loss(mlp_->forwardWithoutNeighbors(x.index_select(0, batch.seedIndex())), y);
    (loss + mlpLoss).backward();
    runtime_.averageGradients(parameters_);
    optimizer_->step();
    totals_[kLoss] += loss.item<double>();
    totals_[kBatches] += 1;
    totals_[kEdges] += static_cast<double>(batch.numEdges());
  }

  // The rest of it, where it was begun before.
  bool trainEpoch() {
    Clock::time_point start = Clock::now();
    const auto count = [&] {
      totals_[kSeconds] += secondsSince(start);
      start = Clock::now();
    };
    for (farhop::Batch& batch : train_.epoch(epoch_)) {
      learn(batch);
      if (!checkpoint_) continue;
      const bool stop = runtime_.stopRequested();
      if (stop || (batch.step() + 1) % options_.checkpointEvery == 0) {
        count();
        save();
      }
      if (!stop) continue;
      if (isFirst_) std::printf("stopped in epoch %lld after step %lld\n", static_cast<long long>(epoch_), static_cast<long long>(batch.step()));
      return false;
    }
    count();
    return true;
  }

  void finishEpoch() {
    const double seconds = totals_[kSeconds];
    const std::vector<double> totals = runtime_.sum(totals_);
    totals_.assign(kNumTotals, 0.0);
    trainSeconds_ += seconds;
    trainEdges_ += totals[kEdges];
    const double loss = totals[kLoss] / std::max(1.0, totals[kBatches]);
    const double accuracy = evaluate(runtime_, validation_, sage_, mlp_).first;
    epochs_.push_back({{"loss", loss}, {"val_accuracy", accuracy}, {"seconds", seconds}});
    if (isFirst_) {
      std::printf("epoch %2lld  loss %.4f  validation accuracy %.4f  %.1f s\n", static_cast<long long>(epoch_), loss,
                  accuracy, seconds);
      std::fflush(stdout);
    }
    if (checkpoint_) save();
  }

  const Options& options_;
  farhop::Runtime& runtime_;
  const bool isFirst_;
  farhop::NeighborLoader train_, validation_, test_;
  Sage sage_{nullptr}, mlp_{nullptr};
  std::vector<torch::Tensor> parameters_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  std::optional<Checkpoint> checkpoint_;
  int64_t epoch_ = 0;
  std::vector<double> totals_ = std::vector<double>(kNumTotals, 0.0);
  nlohmann::json epochs_ = nlohmann::json::array();
  double trainSeconds_ = 0, trainEdges_ = 0;  // of the epochs that are over
};

int run(const Options& options) {
  farhop::RuntimeOptions starting = farhop::RuntimeOptions::fromEnvironment();
  starting.stopSignals = !options.checkpoint.empty();
  starting.stopAfter = std::chrono::milliseconds(static_cast<int64_t>(options.timeLimitSeconds * 1000));
  farhop::Runtime runtime = farhop::Runtime::start(starting);
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  const farhop::Graph graph = runtime.openGraph();
  Training training(options, runtime, graph);
  if (!training.run()) {
    runtime.leave();
    return farhop::kStoppedExitCode;
  }
  const nlohmann::json summary = training.summary();
  if (runtime.worldRank() == 0) {
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
  app.add_option("--checkpoint", options.checkpoint,
                 "Save to this directory, and start from what it holds; when asked to stop, save and end with exit code 75");
  app.add_option("--checkpoint-every", options.checkpointEvery, "Steps between savings within an epoch")
      ->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--resize", options.resize, "Go on from a checkpoint of another number of processes, with the next whole epoch");
  app.add_option("--time-limit", options.timeLimitSeconds, "With --checkpoint: stop after this many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Threads of libtorch; 0: as the cores allow. 1 makes trainings repeatable bit by bit")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farhop-sage: %s\n", error.what());
    return 1;
  }
}
