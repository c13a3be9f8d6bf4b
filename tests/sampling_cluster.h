// Several machines in one test process: each with its own agent, graph, services and puller, connected by a
// real transport.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "rpc/agent.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"
#include "sampler/batch_stream.h"
#include "sampler/bulk_feature_service.h"
#include "sampler/bulk_puller.h"
#include "sampler/edge_puller.h"
#include "sampler/feature_puller.h"
#include "sampler/partitioned_graph.h"

namespace farhop::testing {

struct TestMachine {
  std::unique_ptr<rpc::Agent> agent;  // null in a cluster of one
  std::shared_ptr<rpc::BulkTransport> bulk;  // null unless asked for
  std::shared_ptr<rpc::BulkSlots> slots;
  std::shared_ptr<const sampler::PartitionedGraph> graph;
  std::unique_ptr<Metrics> metricsRegistry;
  std::shared_ptr<sampler::SamplerMetrics> metrics;
  std::unique_ptr<sampler::FeaturePuller> puller;
  std::unique_ptr<sampler::EdgePuller> edgePuller;
};

// A batch without gids: comparable between partitionings.
struct CanonicalBatch {
  std::vector<uint64_t> seeds;
  std::vector<uint32_t> seedIndex;
  std::vector<std::vector<uint64_t>> nodes;  // [type] original ids
  std::vector<std::vector<uint32_t>> trees;  // [type] as long as nodes where seeds are disjoint, else empty
  std::vector<int64_t> treeTimes;
  std::vector<std::vector<uint32_t>> nodesByHop;
  std::vector<sampler::SampledRelation> relations;
  std::vector<std::vector<float>> x;         // [type] pulled feature "x"
  std::vector<int64_t> walks;
  std::vector<uint8_t> restarted;
  bool operator==(const CanonicalBatch& other) const;
};

// How a cluster's features travel by bulk transports.
struct BulkCluster {
  bool fabric = false;  // libfabric; else within the process
  std::string provider = "tcp";
  rpc::TransportKind agents = rpc::TransportKind::kInProcess;
  size_t maxRegisteredBytes = size_t{1} << 40;
  // For tests of bounds; the transport and peers are filled in.
  sampler::BulkPullerOptions puller;
  sampler::BulkServiceOptions service;
};

class SamplingCluster {
 public:
  // Throws std::runtime_error when something cannot start. `chunkBytes`: size of a feature reply.
  SamplingCluster(const std::string& storeDirectory, int machines, rpc::TransportKind transport,
                  size_t chunkBytes = size_t{1} << 20);
  // With pulls of features over bulk transports.
  SamplingCluster(const std::string& storeDirectory, int machines, const BulkCluster& bulk);
  ~SamplingCluster();

  TestMachine& machine(int index) { return machines_[index]; }
  int size() const { return static_cast<int>(machines_.size()); }
  const partition::GraphStore& store() const { return *store_; }

  uint64_t gid(int nodeType, uint64_t originalId) const;
  uint64_t originalId(int nodeType, uint64_t gid) const;

  // Pulls a feature into packed rows; throws on failure.
  std::vector<std::byte> pull(int machine, int nodeType, const std::string& feature, std::span<const uint64_t> gids,
                              bool cache = true);
  CanonicalBatch canonical(int machine, const sampler::SampledBatch& batch);

  // All batches of one epoch as `machine` samples them, dealt in order from `seeds` (original ids), which have `times`
  // unless that is empty.
  std::vector<CanonicalBatch> sampleEpoch(int machine, int nodeType, const std::vector<uint64_t>& seeds,
                                          uint64_t batchSize, uint64_t epoch, const sampler::SamplingOptions& sampling,
                                          const sampler::StreamOptions& stream,
                                          const std::vector<int64_t>& times = {});

 private:
  SamplingCluster(const std::string& storeDirectory, int machines, rpc::TransportKind transport, size_t chunkBytes,
                  const BulkCluster* bulk);
  void makeBulk(const BulkCluster& options);
  std::shared_ptr<const partition::GraphStore> store_;
  std::vector<std::vector<uint64_t>> originalIds_;  // [type][gid]
  std::vector<TestMachine> machines_;
};

}  // namespace farhop::testing
