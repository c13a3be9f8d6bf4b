// `farhop-bench features`: bytes of feature rows pulled per second, own and of another process, beside what the
// machine can do.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

// Adds the subcommand; what it returns is stored in `status`.
void addFeaturesBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
