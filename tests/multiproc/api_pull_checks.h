// Checks of pulls at the public API: parts, dtypes, destinations, prefetch. A check that fails ends the process.
#pragma once

#include <farhop/farhop.h>

namespace farhop::testing {

// Collective: pulls from all machines. The graph has the node features "x" (float32 [4]) and "label" (int64), the edge
// feature "w" (float32) and a split "train".
void checkPulls(Runtime& runtime, const Graph& graph);

}  // namespace farhop::testing
