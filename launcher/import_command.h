// farhop import: brings graphs from other formats to a data set directory.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

// As addPartitionCommand().
void addImportCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
