// Writes the copies of hot remote rows that each partition keeps, as the last arrays of a store.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "partition/array_sink.h"
#include "partition/cache_options.h"
#include "partition/dataset.h"
#include "partition/manifest.h"

namespace farhop::partition {

// All other arrays have been written into the sink. Adds to the manifest what the caches hold; nothing where
// options.fraction is 0 or no node type has a feature to keep. `progress` as in StoreWriterOptions.
absl::Status writeCaches(const Dataset& dataset, const CacheOptions& options,
                         const std::function<void(const std::string&)>& progress, Manifest* manifest, ArraySink* sink);

}  // namespace farhop::partition
