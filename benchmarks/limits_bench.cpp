#include "benchmarks/limits_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "benchmarks/memory_limits.h"

namespace farhop::benchmarks {
namespace {

constexpr uint64_t kReads = 20'000'000;
constexpr uint64_t kSmallReads = 200'000;
constexpr double kBytesPerGigabyte = 1e9;

struct LimitsOptions {
  RmatOptions graph;  // only its size
  uint64_t bytes = 0;
  int repetitions = 7;
  bool small = false;
  std::string json;
};

absl::Status runLimits(LimitsOptions options) {
  if (options.small) options.bytes = uint64_t{1} << 20;
  if (options.bytes == 0) options.bytes = options.graph.bytes();
  const std::vector<int> cores = usableCores();
  if (cores.empty()) return absl::InternalError("the kernel does not say which CPUs this process may use");
  FARHOP_ASSIGN_OR_RETURN(const std::unique_ptr<PinnedWorker> worker, PinnedWorker::start(cores[0]));
  FARHOP_ASSIGN_OR_RETURN(
      const std::unique_ptr<ReadLimit> reads,
      ReadLimit::create(worker.get(), options.bytes, options.small ? kSmallReads : kReads));
  std::unique_ptr<TouchedMemory> memory;
  worker->run([&] { memory = std::make_unique<TouchedMemory>(options.bytes, TouchedMemory::Pages::kHuge); });
  if (memory->empty())
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", options.bytes, " bytes"));
  Series copies;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    reads->measure();
    worker->run([&] { copies.add(copyRate(memory->bytes()) / kBytesPerGigabyte); });
  }
  Report report("limits", std::nullopt, 0, options.small);
  reads->addRows(&report);
  report.add({"memcpy", copies, "GB/s"});
  report.add({"array", Series({static_cast<double>(options.bytes)}), "bytes"});
  return publish(report, options.json);
}

}  // namespace

ReadLimit::ReadLimit(PinnedWorker* worker, uint64_t bytes, uint64_t reads) : worker_(worker), reads_(reads) {
  const size_t size = std::max<size_t>(bytes, 4096);
  worker_->run([&] {
    smallMemory_ = std::make_unique<TouchedMemory>(size, TouchedMemory::Pages::kSmall);
    hugeMemory_ = std::make_unique<TouchedMemory>(size, TouchedMemory::Pages::kHuge);
  });
}

absl::StatusOr<std::unique_ptr<ReadLimit>> ReadLimit::create(PinnedWorker* worker, uint64_t bytes,
                                                             uint64_t reads) {
  std::unique_ptr<ReadLimit> limit(new ReadLimit(worker, bytes, reads));
  if (limit->smallMemory_->empty() || limit->hugeMemory_->empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for two arrays of ", bytes, " bytes; lower --edges"));
  }
  worker->run([&] {
    limit->smallWindow_ = bestReadWindow(limit->smallMemory_->bytes(), reads / 4);
    limit->hugeWindow_ = bestReadWindow(limit->hugeMemory_->bytes(), reads / 4);
  });
  return limit;
}

void ReadLimit::measure() {
  worker_->run([&] {
    const ReadRate smallRate = randomReads(smallMemory_->bytes(), reads_, smallWindow_);
    const ReadRate hugeRate = randomReads(hugeMemory_->bytes(), reads_, hugeWindow_);
    small_.add(smallRate.readsPerSecond);
    huge_.add(hugeRate.readsPerSecond);
    checksum_ = hugeRate.checksum;
  });
}

double ReadLimit::best() const {
  return std::max(small_.median(), huge_.median());
}

void ReadLimit::addRows(Report* report) const {
  report->add({"random 64-byte reads, 4 KiB pages", small_, "reads/s", 1, best(), checksum_});
  report->add({"random 64-byte reads, huge pages", huge_, "reads/s", 1, best(), checksum_});
}

void addLimitsBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<LimitsOptions>();
  CLI::App* const command = app.add_subcommand("limits", "What this machine's memory can do on one core");
  command
      ->add_option("--nodes-log2", options->graph.nodesLog2,
                   "The array is as large as a graph of 2^N nodes ...")
      ->capture_default_str();
  command->add_option("--edges", options->graph.edges, "... and this many edges")->capture_default_str();
  command->add_option("--bytes", options->bytes, "The array's size, instead");
  command->add_option("--repetitions", options->repetitions, "Medians are over so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--small", options->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runLimits(*options); });
}

}  // namespace farhop::benchmarks
