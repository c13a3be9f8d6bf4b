#include "benchmarks/memory_bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "benchmarks/report.h"
#include "benchmarks/trainer_job.h"
#include "benchmarks/wide_store.h"

namespace farhop::benchmarks {
namespace {

constexpr std::chrono::milliseconds kStageTimeout{300'000};
// What a process may take beyond what it took when libtorch was loaded and its endpoint open, and beyond its rows.
constexpr uint64_t kBytesPerProcess = 30'000'000;

struct MemoryBenchOptions {
  WideStoreOptions store;
  std::vector<int> workers = {2, 4, 8};
  std::vector<int64_t> rows = {10, 100};  // of a batch per seed
  int64_t seeds = 20;
  int batches = 3;
  std::string fabric = "tcp";
  std::string trainer;
  bool small = false;
  std::string json;
};

// How the workers are spread.
struct Layout {
  std::string name;
  int machines = 1, procsPerMachine = 1, threads = 1;
};

Layout threads(int workers) { return {absl::StrCat(workers, " threads"), 1, 1, workers}; }
Layout processes(int workers) { return {absl::StrCat(workers, " processes"), 1, workers, 1}; }
// Half of the rows come from the other machine.
Layout machines(int workers) { return {absl::StrCat(workers, " processes, 2 machines"), 2, workers / 2, 1}; }

// What one job did.
struct JobFigures {
  JobMemory loaded, sampled, pulled, released;
  uint64_t sharedFilesystemGrowth = 0;  // at most, of /dev/shm
  int sharedFiles = 0;                  // of the job's in /dev/shm, at most
  uint64_t peakPrivateBytes = 0;
  uint64_t heldBytes = 0, largestBytes = 0;
  uint64_t bytesReadUnpulled = 0;
  uint64_t remoteRows = 0;
};

// Runs one job and looks at it at each stage.
class JobWatch {
 public:
  explicit JobWatch(TrainerJob* job) : job_(job) {}

  absl::StatusOr<JobFigures> run() {
    FARHOP_ASSIGN_OR_RETURN(startBytes_, sharedFilesystemBytes());
    FARHOP_RETURN_IF_ERROR(reach("loaded", &figures_.loaded).status());
    FARHOP_ASSIGN_OR_RETURN(const auto sampled, reach("sampled", &figures_.sampled));
    figures_.bytesReadUnpulled = sum(sampled, "feature_bytes_read");
    FARHOP_ASSIGN_OR_RETURN(const auto pulled, reach("pulled", &figures_.pulled));
    figures_.heldBytes = sum(pulled, "held_bytes");
    figures_.largestBytes = sum(pulled, "largest_bytes");
    FARHOP_ASSIGN_OR_RETURN(const auto released, reach("released", &figures_.released));
    figures_.remoteRows = sum(released, "remote_rows");
    FARHOP_RETURN_IF_ERROR(job_->end(Deadline::after(kStageTimeout)));
    return figures_;
  }

 private:
  using Numbers = std::vector<std::map<std::string, uint64_t>>;

  static uint64_t sum(const Numbers& numbers, const std::string& name) {
    uint64_t total = 0;
    for (const auto& process : numbers) {
      const auto found = process.find(name);
      total += found == process.end() ? 0 : found->second;
    }
    return total;
  }

  absl::StatusOr<Numbers> reach(const std::string& stage, JobMemory* memory) {
    FARHOP_ASSIGN_OR_RETURN(Numbers numbers, job_->await(stage, Deadline::after(kStageTimeout), [this] { look(); }));
    look();
    figures_.sharedFiles = std::max(figures_.sharedFiles, job_->sharedFiles());
    FARHOP_ASSIGN_OR_RETURN(*memory, job_->memory());
    FARHOP_RETURN_IF_ERROR(job_->release());
    return numbers;
  }

  void look() {
    const absl::StatusOr<uint64_t> used = sharedFilesystemBytes();
    if (used.ok() && *used > startBytes_) {
      figures_.sharedFilesystemGrowth = std::max(figures_.sharedFilesystemGrowth, *used - startBytes_);
    }
    figures_.peakPrivateBytes = std::max(figures_.peakPrivateBytes, job_->privateBytes());
  }

  TrainerJob* const job_;
  uint64_t startBytes_ = 0;
  JobFigures figures_;
};

class MemoryReport {
 public:
  explicit MemoryReport(const MemoryBenchOptions& options)
      : small_(options.small), report_("memory", std::nullopt, 1, options.small) {}

  void add(const Layout& layout, int64_t rows, const JobFigures& figures) {
    case_ = absl::StrCat(layout.name, ", ", rows, " rows");
    threads_ = layout.machines * layout.procsPerMachine * layout.threads;
    const uint64_t slack = kBytesPerProcess * static_cast<uint64_t>(layout.machines * layout.procsPerMachine);
    const uint64_t started = figures.loaded.anonymousBytes;
    const auto grown = [started](uint64_t bytes) { return bytes > started ? bytes - started : 0; };
    bytes("/dev/shm, growth", figures.sharedFilesystemGrowth);
    // In tests others use /dev/shm at the same time.
    check("/dev/shm does not grow", figures.sharedFiles == 0 && (small_ || figures.sharedFilesystemGrowth == 0));
    bytes("anonymous, started", started);
    bytes("anonymous, growth by sampling", grown(figures.sampled.anonymousBytes), slack);
    bytes("pulled rows held", figures.heldBytes);
    bytes("anonymous, growth by pulling", grown(figures.pulled.anonymousBytes), figures.heldBytes + slack);
    bytes("anonymous, growth at peak", figures.peakPrivateBytes - std::min(figures.peakPrivateBytes, started + figures.loaded.sharedBytes),
          figures.largestBytes + slack);
    bytes("anonymous, growth left", grown(figures.released.anonymousBytes), slack);
    bytes("proportional (PSS)", figures.pulled.proportionalBytes);
    bytes("shared memory (shm, memfd)", figures.pulled.sharedBytes);
    bytes("page cache shared", figures.pulled.cacheBytes);
    bytes("page cache, by each", figures.pulled.mappedCacheBytes);
    bytes("features read, never pulled", figures.bytesReadUnpulled);
    check("sampling reads no features", figures.bytesReadUnpulled == 0);
    report_.add({absl::StrCat(case_, ": rows of other machines"), Series({static_cast<double>(figures.remoteRows)}), "rows", threads_});
    if (layout.machines > 1) check("rows come from the other machine", figures.remoteRows > 0);
  }

  // What was not held, empty when all was; adds the row that says so.
  std::string finish() {
    report_.add({"all", Series({broken_.empty() ? 1.0 : 0.0}), "held"});
    return broken_;
  }
  const Report& report() const { return report_; }

 private:
  void bytes(const std::string& what, uint64_t value, std::optional<uint64_t> limit = std::nullopt) {
    Row row{absl::StrCat(case_, ": ", what), Series({static_cast<double>(value)}), "bytes", threads_};
    if (limit) row.limit = static_cast<double>(*limit);
    report_.add(std::move(row));
    if (limit) check(absl::StrCat(what, " within its limit"), value <= *limit);
  }
  void check(const std::string& what, bool held) {
    const std::string name = absl::StrCat(case_, ": ", what);
    report_.add({name, Series({held ? 1.0 : 0.0}), "held", threads_});
    if (!held) absl::StrAppend(&broken_, broken_.empty() ? "" : "; ", name);
  }

  const bool small_;
  Report report_;
  std::string case_, broken_;
  int threads_ = 1;
};

// Beside this program.
absl::StatusOr<std::string> trainerProgram(const std::string& named) {
  std::error_code ignored;
  const std::string program =
      named.empty() ? (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "farhop-bench-trainer").string() : named;
  if (pathExists(program)) return program;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no ", program, "; build it (the target farhop-bench-trainer, which needs libtorch) or name it with --trainer"));
}

absl::Status runJobs(const MemoryBenchOptions& options, const std::string& program, const std::string& store, MemoryReport* report) {
  for (int64_t rows : options.rows) {
    for (int workers : options.workers) {
      std::vector<Layout> layouts = {threads(workers), processes(workers)};
      if (workers % 2 == 0 && !options.fabric.empty()) layouts.push_back(machines(workers));
      for (const Layout& layout : layouts) {
        TrainerJobOptions trainers;
        trainers.program = program;
        trainers.arguments = {"--workers", absl::StrCat(layout.threads), "--rows",    absl::StrCat(rows),
                              "--seeds",   absl::StrCat(options.seeds),  "--batches", absl::StrCat(options.batches)};
        trainers.graph = store;
        trainers.machines = layout.machines;
        trainers.procsPerMachine = layout.procsPerMachine;
        trainers.fabric = options.fabric;
        std::fprintf(stderr, "%s, %d rows per seed\n", layout.name.c_str(), static_cast<int>(rows));
        FARHOP_ASSIGN_OR_RETURN(TrainerJob job, TrainerJob::start(trainers));
        absl::StatusOr<JobFigures> figures = JobWatch(&job).run();
        if (!figures.ok()) return annotate(figures.status(), layout.name);
        report->add(layout, rows, *figures);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status runMemory(MemoryBenchOptions options) {
  if (options.small) {
    options.store.nodes = 400;
    options.store.floats = 500;
    options.store.degree = 20;
    options.workers = {2};
    options.rows = {10};
    options.batches = 2;
  }
  if (options.store.degree + 1 < static_cast<uint64_t>(*std::max_element(options.rows.begin(), options.rows.end()))) {
    return absl::InvalidArgumentError(absl::StrCat("--degree ", options.store.degree, " is too few for a batch of so many --rows per seed"));
  }
  FARHOP_ASSIGN_OR_RETURN(const std::string program, trainerProgram(options.trainer));
  FARHOP_ASSIGN_OR_RETURN(const std::string store, wideStore(options.store));
  MemoryReport report(options);
  FARHOP_RETURN_IF_ERROR(runJobs(options, program, store, &report));
  const std::string broken = report.finish();
  FARHOP_RETURN_IF_ERROR(publish(report.report(), options.json));
  return broken.empty() ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrCat("not held: ", broken));
}

}  // namespace

void addMemoryBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<MemoryBenchOptions>();
  WideStoreOptions* const store = &options->store;
  CLI::App* const command = app.add_subcommand("memory", "Memory of trainers that pull very wide features, by number of workers");
  command->add_option("--nodes", store->nodes, "Nodes of the graph")->capture_default_str();
  command->add_option("--floats", store->floats, "Width of the feature")->capture_default_str();
  command->add_option("--degree", store->degree, "In-edges of a node")->capture_default_str();
  command->add_option("--cache", store->cacheDirectory, "Where stores are kept between runs")->capture_default_str();
  command->add_option("--workers", options->workers, "Each as threads of one process and as processes")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--rows", options->rows, "Rows of a batch per seed")->delimiter(',')->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--seeds", options->seeds, "Seeds of a batch")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--batches", options->batches, "Batches of each worker")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--fabric", options->fabric, "FARHOP_FABRIC of the jobs of two machines; empty: no such jobs")->capture_default_str();
  command->add_option("--trainer", options->trainer, "The program of the trainers; by default beside this one");
  command->add_flag("--small", options->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runMemory(*options); });
}

}  // namespace farhop::benchmarks
