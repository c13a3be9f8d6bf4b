// farhop export: writes a graph store back as a data set directory.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

// As addPartitionCommand().
void addExportCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
