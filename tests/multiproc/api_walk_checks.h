// Random walks, importance neighbours and induced subgraphs through the public API.
#pragma once

#include <farhop/farhop.h>

#include <iosfwd>

namespace farhop::testing {

// One line per batch of a globally dealt epoch of each: a name, the batch number, a digest.
void writeWalkDigests(const Graph& graph, std::ostream& out);

// On a homogeneous graph with edge weights "w". Ends the process when something is wrong.
void checkWalks(const Graph& graph);

}  // namespace farhop::testing
