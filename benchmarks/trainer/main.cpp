// farhop-bench-trainer: a process of the jobs that `farhop-bench memory` watches, on the public API alone. Started as
// farhop run starts trainers; at each stage it writes a line of JSON and waits for a line on its standard input.
//
//   loaded    libtorch has computed something, the runtime has started: its endpoint is open
//   sampled   every worker has sampled its batches and pulled nothing
//   pulled    every worker has pulled its batches one after the other, and holds the last
//   released  no batch is held any more
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

struct TrainerOptions {
  int workers = 1;
  int64_t rowsPerSeed = 10;  // the seed's own and those of its neighbours
  int64_t seedsPerBatch = 20;
  int batches = 3;
};

void stop(const std::string& stage, const std::string& numbers) {
  std::printf("{\"stage\":\"%s\"%s}\n", stage.c_str(), numbers.c_str());
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) throw std::runtime_error("whoever started this trainer has gone");
}

std::string number(const char* name, int64_t value) { return std::string(",\"") + name + "\":" + std::to_string(value); }

// One thread's loader and what it holds.
class Worker {
 public:
  Worker(const farhop::Graph& graph, const TrainerOptions& options, int index) : options_(options) {
    farhop::NeighborLoaderOptions loading;
    loading.fanouts = {options.rowsPerSeed - 1};
    loading.batchSize = options.seedsPerBatch;
    loading.seed = static_cast<uint64_t>(index);
    loader_.emplace(graph, graph.split("train"), loading);
  }

  // Shapes are known, and nothing is read for them.
  void sample() {
    int left = options_.batches;
    for (farhop::Batch& batch : loader_->epoch(0)) {
      const farhop::FeatureHandle x = batch.feature("x");
      if (x.shape().front() != batch.feature("original_id").shape().front()) throw std::runtime_error("shapes differ");
      held_ = batch;
      if (--left == 0) break;
    }
  }

  void pull() {
    int left = options_.batches;
    for (farhop::Batch& batch : loader_->epoch(1)) {
      release();  // the batch before, and its rows
      rows_ = batch.feature("x").pull();
      const torch::Tensor ids = batch.feature("original_id").pull();
      if (!torch::equal(rows_.select(1, 0), ids.to(torch::kFloat32))) throw std::runtime_error("these are not the batch's rows");
      largestBytes_ = std::max<int64_t>(largestBytes_, static_cast<int64_t>(rows_.nbytes()));
      held_ = batch;
      if (--left == 0) break;
    }
  }

  void release() {
    held_.reset();
    rows_ = torch::Tensor();
  }

  int64_t heldBytes() const { return rows_.defined() ? static_cast<int64_t>(rows_.nbytes()) : 0; }
  int64_t largestBytes() const { return largestBytes_; }

 private:
  const TrainerOptions options_;
  std::optional<farhop::NeighborLoader> loader_;
  std::optional<farhop::Batch> held_;
  torch::Tensor rows_;
  int64_t largestBytes_ = 0;
};

// Runs it on a thread for each worker; throws what the first that failed has thrown.
void onAll(std::vector<std::unique_ptr<Worker>>& workers, const std::function<void(Worker&)>& work) {
  std::vector<std::exception_ptr> failures(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        work(*workers[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void train(const TrainerOptions& options) {
  farhop::RuntimeOptions starting = farhop::RuntimeOptions::fromEnvironment();
  starting.storeCheck = farhop::StoreCheck::kStructure;
  farhop::Runtime runtime = farhop::Runtime::start(starting);
  torch::ones({256, 256}).mm(torch::ones({256, 256}));
  stop("loaded", "");

  const farhop::Graph graph = runtime.openGraph();
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < options.workers; ++i) workers.push_back(std::make_unique<Worker>(graph, options, i));
  onAll(workers, [](Worker& worker) { worker.sample(); });
  runtime.barrier();
  stop("sampled", number("feature_bytes_read", runtime.stats().featureBytesRead));

  onAll(workers, [](Worker& worker) { worker.pull(); });
  runtime.barrier();
  int64_t held = 0, largest = 0;
  for (const std::unique_ptr<Worker>& worker : workers) {
    held += worker->heldBytes();
    largest += worker->largestBytes();
  }
  stop("pulled", number("held_bytes", held) + number("largest_bytes", largest));

  for (const std::unique_ptr<Worker>& worker : workers) worker->release();
  stop("released", number("remote_rows", runtime.stats().remoteFeatureRows));
  workers.clear();
  runtime.leave();
}

}  // namespace

int main(int argc, char** argv) {
  TrainerOptions options;
  CLI::App app("A trainer whose memory farhop-bench watches", "farhop-bench-trainer");
  app.add_option("--workers", options.workers, "Threads, each with a loader of its own")->check(CLI::Range(1, 256));
  app.add_option("--rows", options.rowsPerSeed, "Rows of a batch per seed")->check(CLI::Range(1, 1'000'000));
  app.add_option("--seeds", options.seedsPerBatch, "Seeds of a batch")->check(CLI::PositiveNumber);
  app.add_option("--batches", options.batches, "Batches of each worker and stage")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    train(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farhop-bench-trainer: %s\n", error.what());
    return 1;
  }
}
