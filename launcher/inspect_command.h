// farhop inspect: prints what a graph store holds, and checks it.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

// As addPartitionCommand(). With --verify, a store that is not sound sets *exitCode to 1.
void addInspectCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
