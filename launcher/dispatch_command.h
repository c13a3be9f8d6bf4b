// `farhop dispatch`: every machine's partitions to the machine that serves them; `farhop check`: whether they are there.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

void addDispatchCommand(CLI::App& app, int* exitCode);
void addCheckCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
