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

#include "training.h"

namespace {

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
  const nlohmann::json figures = training.summary();
  nlohmann::json summary = summarize(runtime.gatherStats());
  summary.update(figures);
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
