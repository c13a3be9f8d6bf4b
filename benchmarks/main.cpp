// farhop-bench: measures Farhop against the machine it runs on (docs/benchmarks.md).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "benchmarks/cache_bench.h"
#include "benchmarks/exchange_bench.h"
#include "benchmarks/features_bench.h"
#include "benchmarks/limits_bench.h"
#include "benchmarks/loader_bench.h"
#include "benchmarks/memory_bench.h"
#include "benchmarks/partition_bench.h"
#include "benchmarks/sampler_bench.h"
#include "benchmarks/startup_bench.h"

namespace {

constexpr int kUsageExitCode = 2;

int runBench(int argc, char** argv) {
  CLI::App app("Measures Farhop against the machine it runs on", "farhop-bench");
  app.require_subcommand(1);
  absl::Status status;
  farhop::benchmarks::addLimitsBench(app, &status);
  farhop::benchmarks::addSamplerBench(app, &status);
  farhop::benchmarks::addExchangeBench(app, &status);
  farhop::benchmarks::addCacheBench(app, &status);
  farhop::benchmarks::addFeaturesBench(app, &status);
  farhop::benchmarks::addPartitionBench(app, &status);
  farhop::benchmarks::addStartupBench(app, &status);
  farhop::benchmarks::addLoaderBench(app, &status);
  farhop::benchmarks::addMemoryBench(app, &status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "farhop-bench: %s\nRun `farhop-bench --help` for help.\n", error.what());
    return kUsageExitCode;
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "farhop-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return runBench(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a broken option definition
    std::fprintf(stderr, "farhop-bench: %s\n", error.what());
    return 1;
  }
}
