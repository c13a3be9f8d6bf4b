#include "launcher/export_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "base/memory_info.h"
#include "importers/export.h"
#include "launcher/step_progress.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

absl::Status runExport(importers::ExportOptions options) {
  const auto begin = std::chrono::steady_clock::now();
  StepProgress progress("farhop export");
  options.progress = [&](const std::string& step, uint64_t done, uint64_t total) { progress.report(step, done, total); };
  const auto description = importers::exportStore(options);
  progress.finish();
  FARHOP_RETURN_IF_ERROR(description.status());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << "data set     " << options.directory << "\n"
            << "holds        " << description->nodes.size() << " node types, " << description->edges.size() << " relations, "
            << description->features.size() << " features, " << description->tasks.size() << " tasks\n"
            << "time         " << formatFixed(seconds, 2) << " s\npeak memory  " << formatBytes(peakResidentBytes()) << "\n"
            << std::flush;
  return absl::OkStatus();
}

}  // namespace

void addExportCommand(CLI::App& app, int* exitCode) {
  auto options = std::make_shared<importers::ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write a graph store back as a data set directory, by original ids");
  command->add_option("STORE", options->store, "Directory of the store")->required();
  command->add_option("--out", options->directory, "Directory of the data set to write")->required();
  command->add_flag("--force", options->force, "Replace a data set that farhop import or export has written");
  command->callback([options, exitCode] {
    const absl::Status status = runExport(*options);
    *exitCode = status.ok() ? 0 : 1;
    if (!status.ok()) std::cerr << "farhop: " << status.message() << std::endl;
  });
}

}  // namespace farhop::launcher
