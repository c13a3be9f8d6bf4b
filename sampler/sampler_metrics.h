// What sampling and pulling count, for the user's summary and for monitoring.
#pragma once

#include "base/metrics.h"

namespace farhop::sampler {

struct SamplerMetrics {
  explicit SamplerMetrics(Metrics* metrics)
      : batches(metrics->counter("farhop_batches_total", "Batches sampled by this process")),
        sampledEdges(metrics->counter("farhop_sampled_edges_total", "Edges in those batches")),
        remoteEdges(metrics->counter("farhop_remote_edges_total", "Edges drawn by other machines")),
        neighborBytes(metrics->counter("farhop_neighbor_bytes_total",
                                       "Payload of neighbour requests sent and replies received")),
        neighborMessages(metrics->counter("farhop_neighbor_requests_total", "Neighbour requests sent")),
        ownRows(metrics->counter("farhop_own_feature_rows_total", "Feature rows gathered from own partitions")),
        cachedRows(metrics->counter("farhop_cached_feature_rows_total",
                                    "Feature rows of other machines' nodes taken from the own partitions' caches")),
        remoteRows(metrics->counter("farhop_remote_feature_rows_total", "Feature rows pulled from other machines")),
        featureBytes(metrics->counter("farhop_feature_bytes_total",
                                      "Payload of feature requests sent and replies received")),
        featureBytesRead(metrics->counter("farhop_feature_bytes_read_total",
                                          "Feature bytes read from the own mapping, for oneself or for others")),
        prefetchedBatches(metrics->counter("farhop_prefetched_batches_total",
                                           "Batches whose prefetch had begun when they were handed out")),
        pullWaitSeconds(metrics->counter("farhop_pull_wait_seconds_total",
                                         "Time that callers spent waiting for features, over all threads")) {}

  Metrics::Counter batches, sampledEdges, remoteEdges, neighborBytes, neighborMessages, ownRows, cachedRows, remoteRows,
      featureBytes, featureBytesRead, prefetchedBatches, pullWaitSeconds;
};

}  // namespace farhop::sampler
