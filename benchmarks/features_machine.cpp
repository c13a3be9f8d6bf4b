#include "benchmarks/features_machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/metrics.h"
#include "base/random.h"
#include "benchmarks/machine.h"
#include "partition/store_writer.h"
#include "sampler/bulk_feature_service.h"
#include "sampler/bulk_puller.h"
#include "sampler/bulk_wire.h"
#include "sampler/feature_puller.h"
#include "sampler/row_stream.h"
#include "sampler/table_keys.h"

namespace farhop::benchmarks {
namespace {

using SteadyClock = std::chrono::steady_clock;
using sampler::FeaturePuller;
using sampler::PartitionedGraph;

constexpr std::chrono::milliseconds kTimeout{60'000};
constexpr uint16_t kLimitMethod = 200;
// Shorter rows take too many reads to wait for.
constexpr uint64_t kReadRowBytes = 4096;
constexpr size_t kLimitBlockBytes = size_t{1} << 20;

Deadline soon() { return Deadline::after(kTimeout); }

// Two partitions of `rows` nodes each with one feature of that width.
absl::Status writeFeatureStore(uint64_t floats, uint64_t rows, const std::string& directory) {
  partition::Dataset dataset;
  dataset.schema.nodeTypes = {{"node", 2 * rows, {{"x", DType::kFloat32, {floats}}}}};
  dataset.schema.relations = {{"edge", 0, 0, 1, -1, {}}};
  dataset.edges = {{partition::IdColumn(std::vector<uint64_t>{0}), partition::IdColumn(std::vector<uint64_t>{1}), "edges"}};
  auto values = std::make_shared<std::vector<float>>(2 * rows * floats);
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i % 16'000'003);
  dataset.nodeFeatures = {{{reinterpret_cast<const std::byte*>(values->data()), 2 * rows, values, "x"}}};
  dataset.edgeFeatures.resize(1);
  partition::PartitionAssignment halves{2, {std::vector<int32_t>(2 * rows, 0)}};
  for (uint64_t i = rows; i < 2 * rows; ++i) halves.partitionOf[0][i] = 1;
  partition::StoreWriterOptions writer;
  writer.directory = directory;
  return partition::writeStore(dataset, halves, writer);
}

class FeaturesMachine {
 public:
  FeaturesMachine(const FeaturesOptions& options, int rank, ProcessChannel& channel)
      : options_(options), rank_(rank), channel_(channel), metrics_(std::make_shared<sampler::SamplerMetrics>(&registry_)) {}
  ~FeaturesMachine() {
    pullers_.clear();
    if (agent_) agent_->close(absl::CancelledError("the benchmark is over"));
    if (bulk_) bulk_->close(absl::CancelledError("the benchmark is over"));
  }

  absl::StatusOr<std::vector<WidthResult>> run() {
    FARHOP_RETURN_IF_ERROR(connect());
    std::vector<WidthResult> results;
    for (uint64_t floats : options_.floats) {
      FARHOP_RETURN_IF_ERROR(open(floats));
      if (rank_ == 0) {
        FARHOP_ASSIGN_OR_RETURN(WidthResult result, measure(floats));
        results.push_back(std::move(result));
      }
      FARHOP_RETURN_IF_ERROR(meet());
    }
    return results;
  }

 private:
  absl::Status meet() { return channel_.gather("").status(); }

  absl::Status connect() {
    rpc::AgentOptions agent;
    agent.rank = rank_;
    agent.size = 2;
    peers_ = {{0, 0, ""}, {1, 0, ""}};
    agent.peers = peers_;
    rpc::BulkOptions bulk;
    bulk.rank = rank_;
    bulk.size = 2;
    bulk.peers = peers_;
    FARHOP_ASSIGN_OR_RETURN(bulk_, rpc::makeFabricTransport(std::move(bulk), {.choice = options_.provider}));
    bulk_->onArrival([slots = slots_](uint32_t data) { slots->arrived(data); });
    FARHOP_ASSIGN_OR_RETURN(agent_, rpc::Agent::create(std::move(agent)));
    FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, channel_.gather(agent_->address()));
    // The channel carries text.
    FARHOP_ASSIGN_OR_RETURN(std::vector<std::string> endpoints, channel_.gather(absl::BytesToHexString(bulk_->address())));
    for (std::string& endpoint : endpoints) endpoint = absl::HexStringToBytes(endpoint);
    FARHOP_RETURN_IF_ERROR(bulk_->connect(endpoints));
    return agent_->connect(addresses, soon());
  }

  absl::Status open(uint64_t floats) {
    const uint64_t rows = std::max<uint64_t>(64, options_.tableBytes / (floats * sizeof(float)));
    const std::string path = absl::StrCat(options_.directory, "/", floats);
    pullers_.clear();
    if (rank_ == 0) FARHOP_RETURN_IF_ERROR(writeFeatureStore(floats, rows, path));
    FARHOP_RETURN_IF_ERROR(meet());
    FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<const partition::GraphStore> store, partition::GraphStore::open(path));
    FARHOP_ASSIGN_OR_RETURN(graph_, PartitionedGraph::open(std::move(store), rank_, 2));
    sampler::registerFeatureService(agent_.get(), graph_, metrics_, size_t{256} << 20);
    sampler::registerBulkFeatureService(agent_.get(), {.transport = bulk_, .graph = graph_, .metrics = metrics_});
    sampler::registerTableKeys(agent_.get(), bulk_, graph_);
    agent_->handle(kLimitMethod, [this](rpc::Request request, rpc::Responder responder) {
      const absl::Status status = serveLimit(request.arrays);
      status.ok() ? responder.reply({}) : responder.fail(status);
    });
    sampler::BulkPullerOptions bulk;
    bulk.transport = bulk_;
    bulk.slots = slots_;
    bulk.peers = peers_;
    bulk.graph = graph_;
    sampler::BulkPullerOptions reads = bulk;
    reads.reads = sampler::BulkReads::kAlways;
    pullers_.push_back(std::make_unique<FeaturePuller>(graph_, sampler::bulkRowTransport(agent_.get(), std::move(bulk)),
                                                       metrics_, size_t{8} << 20));
    pullers_.push_back(std::make_unique<FeaturePuller>(graph_, agent_.get(), metrics_, size_t{8} << 20));
    pullers_.push_back(std::make_unique<FeaturePuller>(graph_, sampler::bulkRowTransport(agent_.get(), std::move(reads)),
                                                       metrics_, size_t{8} << 20));
    FARHOP_ASSIGN_OR_RETURN(const sampler::OwnTable table, sampler::ownTable(*graph_, 0, 0, rank_));
    uint64_t sum = 0;  // all pages are there before anything is timed
    for (size_t i = 0; i < table.rows * floats * sizeof(float); i += 4096) sum += static_cast<uint64_t>(table.data[i]);
    asm volatile("" : : "r"(sum) : "memory");
    return meet();
  }

  // Gathers rows and writes them in blocks, one after the other, with nothing else.
  absl::Status serveLimit(std::span<const rpc::Bytes> arrays) {
    FARHOP_ASSIGN_OR_RETURN(const sampler::BulkPullRequest request, sampler::decodeBulkPull(arrays, *graph_));
    if (block_ == nullptr) {
      auto memory = std::make_shared<std::vector<std::byte>>(kLimitBlockBytes);
      FARHOP_ASSIGN_OR_RETURN(block_, bulk_->registerMemory(*memory, rpc::BulkAccess::kSource, memory));
    }
    FARHOP_ASSIGN_OR_RETURN(sampler::RowStream stream, sampler::RowStream::make(request, *graph_));
    while (!stream.atEnd()) {
      std::vector<sampler::RowPiece> pieces;
      const size_t bytes = stream.fill(block_->memory(), &pieces);
      std::promise<absl::Status> done;
      rpc::BulkTransfer transfer;
      transfer.peer = 0;
      transfer.local = block_;
      transfer.bytes = bytes;
      transfer.remote = request.targets[0].region();
      transfer.remoteOffset = pieces[0].offset;
      transfer.data = rpc::BulkSlots::dataOf(request.slot, 0);
      transfer.deadline = soon();
      bulk_->write(std::move(transfer), [&](absl::Status status) { done.set_value(std::move(status)); });
      FARHOP_RETURN_IF_ERROR(done.get_future().get());
    }
    return absl::OkStatus();
  }

  // Own rows are those at even places.
  std::vector<uint64_t> draw(uint64_t rows, bool own, bool remote) const {
    const uint64_t perPartition = graph_->book().count(0, 0);
    std::vector<uint64_t> gids;
    for (uint64_t i = 0; i < rows; ++i) {
      KeyedRandom random(combineKey(options_.seed, i));
      const bool isOwn = own && (!remote || i % 2 == 0);
      gids.push_back(graph_->book().begin(0, isOwn ? 0 : 1) + random.below(perPartition));
    }
    return gids;
  }

  absl::StatusOr<double> pullSeconds(size_t puller, std::span<const uint64_t> gids, uint64_t rowBytes) {
    std::promise<absl::Status> done;
    sampler::PullRequest request;
    request.gids = gids;
    request.targets = {{0, output_->data()}};
    request.keepAlive = output_;
    request.deadline = soon();
    const auto start = SteadyClock::now();
    pullers_[puller]->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    FARHOP_RETURN_IF_ERROR(done.get_future().get());
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    lastChecksum_ = checksum(gids.size() * rowBytes);
    return seconds;
  }

  uint64_t checksum(size_t bytes) const {
    uint64_t sum = 0;
    for (size_t i = 0; i + sizeof(uint32_t) <= bytes; i += sizeof(uint32_t)) {
      uint32_t value;
      std::memcpy(&value, output_->data() + i, sizeof(value));
      sum = sum * 31 + value;
    }
    return sum;
  }

  // Rows copied from the own mapping, each asked for eight rows ahead.
  absl::StatusOr<double> copySeconds(std::span<const uint64_t> gids, uint64_t rowBytes) {
    FARHOP_ASSIGN_OR_RETURN(const sampler::OwnTable table, sampler::ownTable(*graph_, 0, 0, 0));
    const std::byte* const data = table.data;
    const auto start = SteadyClock::now();
    for (size_t i = 0; i < gids.size(); ++i) {
      if (i + 8 < gids.size()) __builtin_prefetch(data + gids[i + 8] * rowBytes);
      std::memcpy(output_->data() + i * rowBytes, data + gids[i] * rowBytes, rowBytes);
    }
    asm volatile("" : : "r"(output_->data()) : "memory");
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
  }

  absl::StatusOr<double> limitSeconds(std::span<const uint64_t> gids, uint64_t rowBytes) {
    sampler::BulkPullRequest request;
    request.rows = {.nodeType = 0, .features = {0}, .runs = {{1, static_cast<uint32_t>(gids.size())}}, .rows = {}};
    for (uint64_t gid : gids) request.rows.rows.push_back(static_cast<uint32_t>(gid - graph_->book().begin(0, 1)));
    FARHOP_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::BulkRegion> region,
                            bulk_->registerMemory(*output_, rpc::BulkAccess::kRemoteWrite, output_));
    FARHOP_RETURN_IF_ERROR(bulk_->grant(region, 1));
    const rpc::RemoteRegion remote = region->remote();
    request.targets = {{.key = remote.key, .address = remote.address, .bytes = remote.bytes}};
    std::promise<void> arrived;
    FARHOP_ASSIGN_OR_RETURN(request.slot, slots_->open([&] { arrived.set_value(); }));
    // Whole rows of a block, as RowStream fills it; a row that is longer is cut.
    const uint64_t perBlock = kLimitBlockBytes / rowBytes;
    const uint64_t writes = perBlock > 0 ? (gids.size() + perBlock - 1) / perBlock
                                         : (gids.size() * rowBytes + kLimitBlockBytes - 1) / kLimitBlockBytes;
    std::promise<absl::Status> done;
    const auto start = SteadyClock::now();
    slots_->expect(request.slot, writes);
    agent_->call(1, kLimitMethod, {sampler::encodeBulkPull(request)}, soon(), nullptr,
                 [&](absl::Status status) { done.set_value(std::move(status)); });
    FARHOP_RETURN_IF_ERROR(done.get_future().get());
    arrived.get_future().wait();
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
    bulk_->revoke(region, 1);
    lastChecksum_ = checksum(gids.size() * rowBytes);
    return seconds;
  }

  absl::Status sameAs(uint64_t expected) const {
    return lastChecksum_ == expected ? absl::OkStatus() : absl::DataLossError("pulled rows differ from those copied");
  }

  absl::StatusOr<WidthResult> measure(uint64_t floats) {
    const uint64_t rowBytes = floats * sizeof(float);
    WidthResult result;
    result.floats = floats;
    result.rows = std::max<uint64_t>(4, std::min(options_.batchRows, options_.batchBytes / rowBytes));
    output_ = std::make_shared<std::vector<std::byte>>(result.rows * rowBytes);
    const std::vector<uint64_t> own = draw(result.rows, true, false), remote = draw(result.rows, false, true),
                                mixed = draw(result.rows, true, true);
    std::vector<uint64_t> ownHalf, remoteHalf;
    for (size_t i = 0; i < mixed.size(); ++i) (i % 2 == 0 ? ownHalf : remoteHalf).push_back(mixed[i]);
    const double bytes = static_cast<double>(result.rows * rowBytes);
    for (int i = -1; i < options_.repetitions; ++i) {
      std::vector<double> seconds;
      FARHOP_ASSIGN_OR_RETURN(const double copied, copySeconds(own, rowBytes));
      FARHOP_ASSIGN_OR_RETURN(const double pulledOwn, pullSeconds(0, own, rowBytes));
      FARHOP_ASSIGN_OR_RETURN(const double limit, limitSeconds(remote, rowBytes));
      result.checksum = lastChecksum_;
      FARHOP_ASSIGN_OR_RETURN(const double fabric, pullSeconds(0, remote, rowBytes));
      FARHOP_RETURN_IF_ERROR(sameAs(result.checksum));
      double fabricReads = 0;
      if (rowBytes >= kReadRowBytes) {
        FARHOP_ASSIGN_OR_RETURN(fabricReads, pullSeconds(2, remote, rowBytes));
        FARHOP_RETURN_IF_ERROR(sameAs(result.checksum));
      }
      FARHOP_ASSIGN_OR_RETURN(const double agent, pullSeconds(1, remote, rowBytes));
      FARHOP_RETURN_IF_ERROR(sameAs(result.checksum));
      FARHOP_ASSIGN_OR_RETURN(const double fabricMixed, pullSeconds(0, mixed, rowBytes));
      const uint64_t mixedChecksum = lastChecksum_;
      FARHOP_ASSIGN_OR_RETURN(const double agentMixed, pullSeconds(1, mixed, rowBytes));
      FARHOP_RETURN_IF_ERROR(sameAs(mixedChecksum));
      FARHOP_ASSIGN_OR_RETURN(const double ownAlone, pullSeconds(0, ownHalf, rowBytes));
      FARHOP_ASSIGN_OR_RETURN(const double remoteAlone, pullSeconds(0, remoteHalf, rowBytes));
      if (i < 0) continue;  // the first is to touch everything once
      result.ownLimit.push_back(bytes / copied);
      result.own.push_back(bytes / pulledOwn);
      result.remoteLimit.push_back(bytes / limit);
      result.fabric.push_back(bytes / fabric);
      if (fabricReads > 0) result.fabricReads.push_back(bytes / fabricReads);
      result.agent.push_back(bytes / agent);
      result.fabricMixed.push_back(bytes / fabricMixed);
      result.agentMixed.push_back(bytes / agentMixed);
      result.fabricMixedLimit.push_back(bytes / std::max(ownAlone, remoteAlone));
    }
    return result;
  }

  const FeaturesOptions& options_;
  const int rank_;
  ProcessChannel& channel_;
  Metrics registry_;
  const std::shared_ptr<sampler::SamplerMetrics> metrics_;
  std::vector<PeerName> peers_;
  std::shared_ptr<rpc::BulkTransport> bulk_;
  const std::shared_ptr<rpc::BulkSlots> slots_ = std::make_shared<rpc::BulkSlots>();
  std::unique_ptr<rpc::Agent> agent_;
  std::shared_ptr<const PartitionedGraph> graph_;
  std::vector<std::unique_ptr<FeaturePuller>> pullers_;  // over libfabric, over the agent, reading over libfabric
  std::shared_ptr<rpc::BulkRegion> block_;               // of serveLimit()
  std::shared_ptr<std::vector<std::byte>> output_;
  uint64_t lastChecksum_ = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WidthResult, floats, rows, checksum, own, ownLimit, fabric, fabricReads, agent, remoteLimit,
                                   fabricMixed, agentMixed, fabricMixedLimit)

}  // namespace

std::string encodeWidthResults(const std::vector<WidthResult>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const WidthResult& result : results) {
    nlohmann::json one;
    to_json(one, result);
    list.push_back(std::move(one));
  }
  return list.dump();
}

absl::StatusOr<std::vector<WidthResult>> decodeWidthResults(const std::string& text) {
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (list.is_discarded() || !list.is_array()) return absl::InternalError("malformed result of a process");
  std::vector<WidthResult> results;
  for (const nlohmann::json& one : list) from_json(one, results.emplace_back());
  return results;
}

absl::StatusOr<std::vector<WidthResult>> runFeaturesMachine(const FeaturesOptions& options, int rank, int cpu,
                                                            ProcessChannel& channel) {
  FARHOP_RETURN_IF_ERROR(pinThread(cpu));  // inherited by every thread from here on
  FeaturesMachine machine(options, rank, channel);
  return machine.run();
}

}  // namespace farhop::benchmarks
