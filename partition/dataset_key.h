// Tells whether two runs read the same data set.
#pragma once

#include <string>

#include "partition/dataset.h"

namespace farhop::partition {

// Differs when schema, splits or arrays do. Arrays that lie in files are told apart by path, size and time of the last
// change, without reading them; others by their bytes.
std::string datasetKey(const Dataset& dataset);

}  // namespace farhop::partition
