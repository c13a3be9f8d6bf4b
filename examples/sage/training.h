// A training of GraphSAGE, next to the same model without neighbours, that can be left and gone on with.
#pragma once

#include <farhop/farhop.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.h"
#include "model.h"

// What the command line says.
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

// Accuracy of sage and mlp over all processes, every seed of the split once.
inline std::pair<double, double> evaluate(farhop::Runtime& runtime, farhop::NeighborLoader& loader, Sage& sage, Sage& mlp) {
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
inline std::string hashOf(const std::vector<torch::Tensor>& tensors) {
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

// What the loaders of training and evaluation share.
inline farhop::NeighborLoaderOptions loaderOptions(const Options& options, const farhop::Runtime& runtime) {
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

inline farhop::NeighborLoader evaluationLoader(const Options& options, const farhop::Runtime& runtime, const farhop::Graph& graph,
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

  // What has come of it; evaluates on the test split.
  nlohmann::json summary() {
    const auto [sageAccuracy, mlpAccuracy] = evaluate(runtime_, test_, sage_, mlp_);
    return {{"train_seconds", trainSeconds_},
            {"sampled_edges_per_s", trainEdges_ / std::max(1e-9, trainSeconds_)},
            {"test_accuracy", sageAccuracy},
            {"mlp_test_accuracy", mlpAccuracy},
            {"epochs", epochs_},
            {"parameters_hash", hashOf(parameters_)}};
  }

 private:
  using Clock = std::chrono::steady_clock;
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
      totals_[kSeconds] += std::chrono::duration<double>(Clock::now() - start).count();
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
      if (isFirst_) {
        std::printf("stopped in epoch %lld after step %lld\n", static_cast<long long>(epoch_), static_cast<long long>(batch.step()));
        std::fflush(stdout);  // a launcher may end this process as soon as another has ended with this exit code
      }
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
