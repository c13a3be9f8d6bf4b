// The check of GraphStore::verify() of the rows that partitions keep of each other's nodes.
#pragma once

#include <string>
#include <vector>

#include "partition/sampling_verify.h"

namespace farhop::partition {

// Every cached row is the owner's, bit for bit. The problems found, one per file, naming it. (That gids are ascending
// and remote is checked when a partition is opened.)
std::vector<std::string> checkCaches(const OpenStore& open);

}  // namespace farhop::partition
