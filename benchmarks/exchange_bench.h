// `farhop-bench exchange`: sampled edges per second of several processes that hold a partition each and draw
// for each other.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what it returns is stored in `status`.
void addExchangeBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
