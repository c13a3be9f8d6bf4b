// `farhop-bench cache`: what a store's caches of remote rows save, and what looking rows up in them costs.
#pragma once

#include "base/status.h"

namespace CLI {
class App;
}

namespace farhop::benchmarks {

void addCacheBench(CLI::App& app, absl::Status* status);

}  // namespace farhop::benchmarks
