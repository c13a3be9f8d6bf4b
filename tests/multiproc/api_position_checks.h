// Positions of loaders through the public API: saved in one job, restored in the same or another.
#pragma once

#include <farhop/farhop.h>

#include <string>

namespace farhop::testing {

// Restores loaders of every kind at every step of an epoch. Then leaves epoch 3 after two batches: the state goes to
// DIR/state, a line per batch that is left (epoch, number, digest) to DIR/batches-RANK.
void leaveEpoch(Runtime& runtime, const Graph& graph, const std::string& directory);

// Goes on with DIR/state where `same` says that the processes are as many, and writes DIR/batches-RANK; otherwise checks
// that it is refused, and that the next epoch is there on request.
void continueEpoch(Runtime& runtime, const Graph& graph, const std::string& directory, bool same);

}  // namespace farhop::testing
