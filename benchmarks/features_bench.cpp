#include "benchmarks/features_bench.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/features_machine.h"
#include "benchmarks/machine.h"
#include "benchmarks/report.h"

namespace farhop::benchmarks {
namespace {

constexpr std::chrono::milliseconds kRoundTimeout{300'000};

struct FeaturesBenchOptions {
  FeaturesOptions features;
  std::vector<std::string> providers = {"tcp", "shm"};
  std::string json;
};

Series gigabytes(const std::vector<double>& bytesPerSecond) {
  Series series;
  for (double value : bytesPerSecond) series.add(value * 1e-9);
  return series;
}

// What does not depend on the bulk transport comes from the first provider's run alone.
void addWidth(const WidthResult& width, const std::string& provider, bool isFirst, Report* report) {
  const auto row = [&](const std::string& what, const std::vector<double>& values, const std::vector<double>* limit) {
    Row one{absl::StrCat(width.floats, " floats, ", what), gigabytes(values), "GB/s", 1, std::nullopt, std::nullopt};
    if (limit != nullptr) one.limit = gigabytes(*limit).median();
    report->add(std::move(one));
  };
  const std::string fabric = provider == "tcp" ? "libfabric" : absl::StrCat("libfabric over ", provider);
  if (isFirst) row("own", width.own, &width.ownLimit);
  row(absl::StrCat("remote, ", fabric), width.fabric, &width.remoteLimit);
  if (!width.fabricReads.empty()) row(absl::StrCat("remote, read, ", fabric), width.fabricReads, &width.remoteLimit);
  if (isFirst) row("remote, TensorPipe", width.agent, &width.remoteLimit);
  row(absl::StrCat("half remote, ", fabric), width.fabricMixed, &width.fabricMixedLimit);
  if (isFirst) row("half remote, TensorPipe", width.agentMixed, nullptr);
  Series gain;
  for (size_t i = 0; i < width.fabric.size(); ++i) gain.add(width.fabric[i] / width.agent[i]);
  report->add({absl::StrCat(width.floats, " floats, remote, ", fabric), std::move(gain), "x TensorPipe", 1, std::nullopt,
               width.checksum});
}

absl::StatusOr<std::vector<WidthResult>> runProvider(FeaturesOptions features, const std::vector<int>& cores) {
  std::error_code ignored;
  std::string directory = (std::filesystem::temp_directory_path(ignored) / "farhop-features-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return errnoStatus(absl::StrCat("cannot make ", directory), errno);
  features.directory = directory;
  const auto body = [&](int rank, ProcessChannel& channel) -> absl::StatusOr<std::string> {
    FARHOP_ASSIGN_OR_RETURN(
        const std::vector<WidthResult> results,
        runFeaturesMachine(features, rank, cores[static_cast<size_t>(rank) % cores.size()], channel));
    return encodeWidthResults(results);
  };
  const absl::StatusOr<std::vector<std::string>> texts = runProcesses(2, kRoundTimeout, body);
  std::filesystem::remove_all(directory, ignored);
  FARHOP_RETURN_IF_ERROR(texts.status());
  return decodeWidthResults((*texts)[0]);
}

absl::Status runFeatures(FeaturesBenchOptions options) {
  FeaturesOptions& features = options.features;
  if (features.small) {
    features.tableBytes = uint64_t{1} << 20;
    features.batchRows = 500;
    features.batchBytes = uint64_t{1} << 20;
    features.repetitions = 2;
  }
  const std::vector<int> cores = usableCores();
  if (cores.empty()) return absl::InternalError("the kernel does not say which CPUs this process may use");
  Report report("features", std::nullopt, features.seed, features.small);
  for (const std::string& provider : options.providers) {
    features.provider = provider;
    FARHOP_ASSIGN_OR_RETURN(const std::vector<WidthResult> widths, runProvider(features, cores));
    for (const WidthResult& width : widths) addWidth(width, provider, provider == options.providers.front(), &report);
  }
  return publish(report, options.json);
}

}  // namespace

void addFeaturesBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<FeaturesBenchOptions>();
  FeaturesOptions* const features = &options->features;
  CLI::App* const command = app.add_subcommand("features", "Rows of features pulled by one process, which another one serves");
  command->add_option("--floats", features->floats, "Widths of rows")->delimiter(',')->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--fabric", options->providers, "Bulk transports, as FARHOP_FABRIC names them")->delimiter(',')->capture_default_str();
  command->add_option("--rows", features->batchRows, "Rows of a pull")->capture_default_str()->check(CLI::PositiveNumber);
  command->add_option("--bytes", features->batchBytes, "Fewer rows where they would be more than this")->capture_default_str();
  command->add_option("--table-bytes", features->tableBytes, "Size of each process's table")->capture_default_str();
  command->add_option("--repetitions", features->repetitions, "Medians are over so many")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", features->seed, "Seed of the rows that are drawn")->capture_default_str();
  command->add_flag("--small", features->small, "A size for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runFeatures(*options); });
}

}  // namespace farhop::benchmarks
