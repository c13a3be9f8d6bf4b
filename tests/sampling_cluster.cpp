#include "tests/sampling_cluster.h"

#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>

#include "sampler/edge_lookup.h"
#include "sampler/feature_service.h"
#include "sampler/neighbor_service.h"
#include "sampler/subgraph_wire.h"
#include "sampler/table_keys.h"
#include "sampler/walk_service.h"

namespace farhop::testing {
namespace {

using std::chrono::milliseconds;

template <typename T>
T must(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(std::string(result.status().message()));
  return std::move(result).value();
}
void must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

}  // namespace

bool CanonicalBatch::operator==(const CanonicalBatch& other) const {
  if (seeds != other.seeds || seedIndex != other.seedIndex || nodes != other.nodes || trees != other.trees ||
      treeTimes != other.treeTimes || nodesByHop != other.nodesByHop || x != other.x || walks != other.walks ||
      restarted != other.restarted || relations.size() != other.relations.size()) {
    return false;
  }
  for (size_t r = 0; r < relations.size(); ++r) {
    if (relations[r].indptr != other.relations[r].indptr || relations[r].indices != other.relations[r].indices ||
        relations[r].edgeIds != other.relations[r].edgeIds || relations[r].visits != other.relations[r].visits ||
        relations[r].indices.size() != other.relations[r].indices.size()) {
      return false;
    }
  }
  return true;
}

SamplingCluster::SamplingCluster(const std::string& storeDirectory, int machines, rpc::TransportKind transport,
                                 size_t chunkBytes)
    : SamplingCluster(storeDirectory, machines, transport, chunkBytes, nullptr) {}

SamplingCluster::SamplingCluster(const std::string& storeDirectory, int machines, const BulkCluster& bulk)
    : SamplingCluster(storeDirectory, machines, bulk.agents, size_t{1} << 20, &bulk) {}

SamplingCluster::SamplingCluster(const std::string& storeDirectory, int machines, rpc::TransportKind transport,
                                 size_t chunkBytes, const BulkCluster* bulk)
    : store_(must(partition::GraphStore::open(storeDirectory))), machines_(static_cast<size_t>(machines)) {
  for (size_t type = 0; type < store_->schema().nodeTypes.size(); ++type) {
    const auto gids = must(store_->gidsByOriginalId(static_cast<int>(type)));
    originalIds_.emplace_back(gids.size());
    for (uint64_t id = 0; id < gids.size(); ++id) originalIds_.back()[gids[id]] = id;
  }
  std::vector<std::string> addresses(machines_.size());
  std::vector<std::shared_ptr<const sampler::EdgeReader>> edgeReaders;
  for (int m = 0; m < machines; ++m) {
    TestMachine& self = machines_[m];
    self.graph = must(sampler::PartitionedGraph::open(store_, m, machines));
    self.metricsRegistry = std::make_unique<Metrics>();
    self.metrics = std::make_shared<sampler::SamplerMetrics>(self.metricsRegistry.get());
    edgeReaders.push_back(std::make_shared<sampler::EdgeReader>(self.graph));
    if (machines == 1) continue;
    rpc::AgentOptions options;
    options.transport = transport;
    options.rank = m;
    options.size = machines;
    for (int peer = 0; peer < machines; ++peer) options.peers.push_back({peer, 0, ""});
    options.jobId = "test";
    options.token = "token";
    self.agent = must(rpc::Agent::create(options));
    sampler::registerNeighborService(self.agent.get(), self.graph);
    sampler::registerWalkService(self.agent.get(), self.graph);
    sampler::registerSubgraphService(self.agent.get(), self.graph);
    sampler::registerFeatureService(self.agent.get(), self.graph, self.metrics, size_t{64} << 20);
    sampler::registerEdgeLookup(self.agent.get(), self.graph);
    sampler::registerEdgeService(self.agent.get(), edgeReaders.back(), self.metrics, size_t{64} << 20);
    addresses[m] = self.agent->address();
  }
  if (bulk != nullptr && machines > 1) makeBulk(*bulk);
  std::vector<absl::Status> results(machines_.size());
  std::vector<std::thread> threads;
  for (int m = 0; m < machines && machines > 1; ++m) {
    threads.emplace_back([&, m] { results[m] = machines_[m].agent->connect(addresses, Deadline::after(milliseconds(20'000))); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : results) must(status);
  for (size_t m = 0; m < machines_.size(); ++m) {
    TestMachine& self = machines_[m];
    self.edgePuller = std::make_unique<sampler::EdgePuller>(edgeReaders[m], self.agent.get(), self.metrics, chunkBytes);
    if (self.bulk != nullptr) {
      sampler::BulkPullerOptions options = bulk->puller;
      options.transport = self.bulk;
      options.slots = self.slots;
      options.graph = self.graph;
      for (int peer = 0; peer < machines; ++peer) options.peers.push_back({peer, 0, ""});
      self.puller = std::make_unique<sampler::FeaturePuller>(
          self.graph, sampler::bulkRowTransport(self.agent.get(), std::move(options)), self.metrics, chunkBytes);
      continue;
    }
    self.puller = std::make_unique<sampler::FeaturePuller>(self.graph, self.agent.get(), self.metrics, chunkBytes);
  }
}

// Before the agents are connected, since a lost peer's agent tells the transport.
void SamplingCluster::makeBulk(const BulkCluster& bulk) {
  std::vector<std::string> addresses;
  for (size_t m = 0; m < machines_.size(); ++m) {
    TestMachine& self = machines_[m];
    rpc::BulkOptions options;
    options.rank = static_cast<int>(m);
    options.size = static_cast<int>(machines_.size());
    for (int peer = 0; peer < options.size; ++peer) options.peers.push_back({peer, 0, ""});
    options.maxRegisteredBytes = bulk.maxRegisteredBytes;
    rpc::FabricOptions fabric;
    fabric.choice = bulk.provider;
    self.bulk = bulk.fabric ? must(rpc::makeFabricTransport(std::move(options), fabric))
                            : must(rpc::makeInProcessBulkTransport(std::move(options)));
    self.slots = std::make_shared<rpc::BulkSlots>();
    self.bulk->onArrival([slots = self.slots](uint32_t data) { slots->arrived(data); });
    self.agent->onPeerLost([transport = self.bulk.get()](int peer, absl::Status reason) {
      transport->failPeer(peer, std::move(reason));
    });
    sampler::BulkServiceOptions service = bulk.service;
    service.transport = self.bulk;
    service.graph = self.graph;
    service.metrics = self.metrics;
    sampler::registerBulkFeatureService(self.agent.get(), std::move(service));
    sampler::registerTableKeys(self.agent.get(), self.bulk, self.graph);
    addresses.push_back(self.bulk->address());
  }
  for (TestMachine& self : machines_) must(self.bulk->connect(addresses));
}

SamplingCluster::~SamplingCluster() {
  for (TestMachine& self : machines_) {
    if (self.agent) self.agent->close(absl::CancelledError("test over"));
    if (self.bulk) self.bulk->close(absl::CancelledError("test over"));
  }
}

uint64_t SamplingCluster::gid(int nodeType, uint64_t originalId) const {
  return must(store_->gidsByOriginalId(nodeType))[originalId];
}

uint64_t SamplingCluster::originalId(int nodeType, uint64_t gid) const { return originalIds_[nodeType][gid]; }

std::vector<std::byte> SamplingCluster::pull(int machine, int nodeType, const std::string& feature,
                                             std::span<const uint64_t> gids, bool cache) {
  const sampler::PartitionedGraph& graph = *machines_[machine].graph;
  const uint32_t index = must(sampler::featureIndex(graph, nodeType, feature));
  std::vector<std::byte> rows(gids.size() * sampler::featureSpec(graph, nodeType, index).rowBytes());
  sampler::PullRequest request;
  request.nodeType = nodeType;
  request.gids = gids;
  request.targets = {{index, rows.data()}};
  request.cache = cache;
  request.deadline = Deadline::after(milliseconds(20'000));
  std::promise<absl::Status> done;
  machines_[machine].puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  must(done.get_future().get());
  return rows;
}

CanonicalBatch SamplingCluster::canonical(int machine, const sampler::SampledBatch& batch) {
  CanonicalBatch result;
  for (uint64_t seed : batch.seeds) result.seeds.push_back(originalId(batch.seedType, seed));
  result.seedIndex = batch.seedIndex;
  for (size_t type = 0; type < batch.nodes.size(); ++type) {
    result.nodes.emplace_back();
    for (uint64_t gid : batch.nodes[type]) result.nodes.back().push_back(originalId(static_cast<int>(type), gid));
    const std::vector<std::byte> rows = pull(machine, static_cast<int>(type), "x", batch.nodes[type]);
    result.x.emplace_back(rows.size() / sizeof(float));
    if (!rows.empty()) std::memcpy(result.x.back().data(), rows.data(), rows.size());
  }
  result.nodesByHop = batch.nodesByHop;
  result.relations = batch.relations;
  result.treeTimes = batch.treeTimes;
  for (const auto& trees : batch.trees) result.trees.emplace_back(trees.begin(), trees.end());
  result.walks.assign(batch.walks.begin(), batch.walks.end());
  result.restarted.assign(batch.restarted.begin(), batch.restarted.end());
  return result;
}

std::vector<CanonicalBatch> SamplingCluster::sampleEpoch(int machine, int nodeType, const std::vector<uint64_t>& seeds,
                                                         uint64_t batchSize, uint64_t epoch,
                                                         const sampler::SamplingOptions& sampling,
                                                         const sampler::StreamOptions& stream,
                                                         const std::vector<int64_t>& times) {
  sampler::SeedSet set;
  set.nodeType = nodeType;
  for (uint64_t seed : seeds) set.all.push_back(gid(nodeType, seed));
  set.times = times;
  sampler::DealOptions deal;
  deal.batchSize = batchSize;
  deal.shuffle = false;
  deal.deal = sampler::Deal::kGlobal;
  deal.tail = sampler::Tail::kUneven;
  TestMachine& self = machines_[machine];
  sampler::BatchStream batches(self.graph, self.agent.get(), must(sampler::SeedDealer::make(set, deal)), sampling, stream,
                               self.metrics);
  batches.start(epoch);
  std::vector<CanonicalBatch> result;
  for (;;) {
    std::unique_ptr<sampler::SampledBatch> batch = must(batches.next());
    if (batch == nullptr) return result;
    result.push_back(canonical(machine, *batch));
  }
}

}  // namespace farhop::testing
