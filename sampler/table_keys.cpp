#include "sampler/table_keys.h"

#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "sampler/feature_service.h"
#include "sampler/wire_parts.h"

namespace farhop::sampler {
namespace {

class Tables {
 public:
  Tables(std::shared_ptr<rpc::BulkTransport> transport, std::shared_ptr<const PartitionedGraph> graph)
      : transport_(std::move(transport)), graph_(std::move(graph)) {}

  absl::StatusOr<std::vector<TableKey>> keysFor(int peer, const TableKeysRequest& request) {
    std::vector<TableKey> keys;
    for (size_t f = 0; f < request.features.size(); ++f) {
      for (int partition : graph_->ownPartitions()) {
        FARHOP_ASSIGN_OR_RETURN(const OwnTable table,
                                ownTable(*graph_, static_cast<int>(request.nodeType), request.features[f], partition));
        const size_t bytes = table.rows * table.spec.rowBytes();
        if (bytes == 0) continue;
        FARHOP_ASSIGN_OR_RETURN(const rpc::RemoteRegion region,
                                expose(peer, {request.nodeType, request.features[f], partition}, table.data, bytes));
        keys.push_back({static_cast<uint32_t>(f), static_cast<uint32_t>(partition), region.key, region.address, region.bytes});
      }
    }
    return keys;
  }

 private:
  using Name = std::tuple<uint32_t, uint32_t, int>;  // node type, feature, partition
  struct Exposed {
    std::shared_ptr<rpc::BulkRegion> region;
    std::set<int> peers;  // that it has been granted to
  };

  // Under one lock, so that a table is registered once: two of the same would pin its memory twice.
  absl::StatusOr<rpc::RemoteRegion> expose(int peer, const Name& name, const std::byte* data, size_t bytes) {
    std::lock_guard lock(mutex_);
    Exposed& exposed = tables_[name];
    if (exposed.region == nullptr) {
      // Only read from: the mapping is of a file that nobody may write to.
      const std::span<std::byte> memory(const_cast<std::byte*>(data), bytes);
      FARHOP_ASSIGN_OR_RETURN(exposed.region, transport_->registerMemory(memory, rpc::BulkAccess::kRemoteRead, graph_));
    }
    if (!exposed.peers.contains(peer)) {
      FARHOP_RETURN_IF_ERROR(transport_->grant(exposed.region, peer));
      exposed.peers.insert(peer);
    }
    return exposed.region->remote();
  }

  const std::shared_ptr<rpc::BulkTransport> transport_;
  const std::shared_ptr<const PartitionedGraph> graph_;
  std::mutex mutex_;
  std::map<Name, Exposed> tables_;  // guarded by mutex_
};

}  // namespace

rpc::OutArray encodeTableKeysRequest(const TableKeysRequest& request) {
  const TableKeysHeader header{request.nodeType, static_cast<uint32_t>(request.features.size())};
  WireWriter writer(sizeof(header) + request.features.size() * sizeof(uint32_t));
  writer.put(&header, 1);
  writer.putAll(request.features);
  return rpc::OutArray::fromBytes(writer.finish());
}

absl::StatusOr<TableKeysRequest> decodeTableKeysRequest(std::span<const rpc::Bytes> arrays, const PartitionedGraph& graph) {
  if (arrays.size() != 1) return absl::InvalidArgumentError("malformed request for tables: not one array");
  WireReader reader(arrays[0], "request for tables");
  TableKeysHeader header;
  TableKeysRequest request;
  FARHOP_RETURN_IF_ERROR(reader.take(1, "header", &header));
  FARHOP_RETURN_IF_ERROR(reader.takeAll(header.features, "features", &request.features));
  FARHOP_RETURN_IF_ERROR(reader.finish());
  request.nodeType = header.nodeType;
  if (header.nodeType >= graph.schema().nodeTypes.size()) return reader.malformed("node type");
  for (uint32_t feature : request.features) {
    if (feature == kOriginalIdFeature || feature < graph.schema().nodeTypes[header.nodeType].features.size()) continue;
    if (graph.jobFeatures().known(static_cast<int>(header.nodeType), feature)) {
      return absl::FailedPreconditionError("rows of features that the job makes are not read by others");
    }
    return reader.malformed("feature index");
  }
  return request;
}

rpc::OutArray encodeTableKeys(const std::vector<TableKey>& keys) {
  WireWriter writer(keys.size() * sizeof(TableKey));
  writer.putAll(keys);
  return rpc::OutArray::fromBytes(writer.finish());
}

absl::StatusOr<std::vector<std::vector<rpc::RemoteRegion>>> decodeTableKeys(std::span<const rpc::Bytes> arrays,
                                                                            const TableKeysRequest& request, int machine,
                                                                            const PartitionedGraph& graph) {
  if (arrays.size() != 1) return absl::InternalError("malformed reply about tables: not one array");
  WireReader reader(arrays[0], "reply about tables");
  std::vector<TableKey> keys;
  FARHOP_RETURN_IF_ERROR(reader.takeAll(reader.left() / sizeof(TableKey), "keys", &keys));
  FARHOP_RETURN_IF_ERROR(reader.finish());
  const auto partitions = static_cast<size_t>(graph.book().numPartitions());
  std::vector<std::vector<rpc::RemoteRegion>> regions(request.features.size(), std::vector<rpc::RemoteRegion>(partitions));
  for (const TableKey& key : keys) {
    if (key.feature >= regions.size() || key.partition >= partitions) return reader.malformed("feature or partition");
    regions[key.feature][key.partition] = key.region();
  }
  for (size_t f = 0; f < regions.size(); ++f) {
    const int type = static_cast<int>(request.nodeType);
    const uint64_t rowBytes = featureSpec(graph, type, request.features[f]).rowBytes();
    for (size_t k = 0; k < partitions; ++k) {
      if (graph.owner(static_cast<int>(k)) != machine) continue;
      const uint64_t expected = rowBytes * graph.book().count(type, static_cast<int>(k));
      if (regions[f][k].bytes == expected) continue;
      return reader.malformed(absl::StrCat("a table of ", regions[f][k].bytes, " bytes, not ", expected));
    }
  }
  return regions;
}

void registerTableKeys(rpc::Agent* agent, std::shared_ptr<rpc::BulkTransport> transport,
                       std::shared_ptr<const PartitionedGraph> graph) {
  auto tables = std::make_shared<Tables>(std::move(transport), graph);
  agent->handle(kTableKeysMethod, [tables = std::move(tables), graph = std::move(graph)](rpc::Request request,
                                                                                         rpc::Responder responder) {
    const absl::StatusOr<TableKeysRequest> decoded = decodeTableKeysRequest(request.arrays, *graph);
    const auto keys = decoded.ok() ? tables->keysFor(request.peer, *decoded) : decoded.status();
    if (keys.ok()) {
      responder.reply({encodeTableKeys(*keys)});
    } else {
      responder.fail(keys.status());
    }
  });
}

}  // namespace farhop::sampler
