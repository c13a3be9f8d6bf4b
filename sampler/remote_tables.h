// What this process knows of other machines' tables of features: where they lie, for reads over the bulk transport.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "base/deadline.h"
#include "rpc/agent.h"
#include "rpc/bulk_transport.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// Thread-safe. The agent must outlive it.
class RemoteTables : public std::enable_shared_from_this<RemoteTables> {
 public:
  // [feature][partition] regions.
  using Regions = std::vector<std::vector<rpc::RemoteRegion>>;
  // Null where the rows cannot be read, for now or at all.
  using Found = std::function<void(std::shared_ptr<const Regions>)>;

  RemoteTables(rpc::Agent* agent, std::shared_ptr<const PartitionedGraph> graph) : agent_(agent), graph_(std::move(graph)) {}

  // The tables of a machine's partitions, asked for at most until `deadline` and kept. `found` runs once, on any thread,
  // also before this returns; it must only post. A machine that refuses is not asked for that feature again; one WARNING
  // says why.
  void find(int machine, uint32_t nodeType, std::span<const uint32_t> features, Deadline deadline, Found found);

 private:
  using Name = std::tuple<int, uint32_t, uint32_t>;  // machine, node type, feature
  // Under the mutex: whether all are known; sets null when one is refused.
  bool known(int machine, uint32_t nodeType, std::span<const uint32_t> features, std::shared_ptr<const Regions>* regions) const;
  void refused(int machine, uint32_t nodeType, const std::vector<uint32_t>& features, const absl::Status& reason);

  rpc::Agent* const agent_;
  const std::shared_ptr<const PartitionedGraph> graph_;
  mutable std::mutex mutex_;
  std::map<Name, std::vector<rpc::RemoteRegion>> known_;  // guarded by mutex_; by partition; empty: refused
};

}  // namespace farhop::sampler
