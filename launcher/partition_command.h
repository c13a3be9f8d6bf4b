// farhop partition: reads a data set directory and writes a partitioned store.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

// Adds the subcommand; running it sets *exitCode (0, or 1 with a line on standard error). `exitCode` must
// outlive `app`'s parsing.
void addPartitionCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
