// `farhop-bench sampler`: how fast one core samples batches, against the baseline and against the machine.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what it returns is stored in `status`.
void addSamplerBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
