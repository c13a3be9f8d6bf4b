// One chunk of rows that its owner writes into this process's memory; see bulk_puller.h.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rpc/bulk_buffers.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"
#include "sampler/bulk_wire.h"
#include "sampler/row_transport.h"

namespace farhop::sampler {

// The memory that the owner may write to, or that is read into: a staging buffer, destinations, or both.
class BulkChunkMemory {
 public:
  enum class Use { kPeersWrites, kReads };
  struct Plan {
    Use use = Use::kPeersWrites;
    size_t landingRunBytes = 0;
    rpc::BulkBuffers* staging = nullptr;
  };

  explicit BulkChunkMemory(rpc::BulkTransport* transport) : transport_(transport) {}
  BulkChunkMemory(const BulkChunkMemory&) = delete;
  BulkChunkMemory& operator=(const BulkChunkMemory&) = delete;

  // Decides what lands and what is staged, registers it, and grants it to the owner where that writes. `untilUntouched` is
  // let go of, on any thread, when no destination is touched any more (also after an error); it owns what must live until
  // then.
  absl::Status prepare(const RowChunk& chunk, const Plan& plan, std::shared_ptr<const void> untilUntouched);

  const std::vector<BulkTarget>& targets() const { return targets_; }
  // Where the feature's rows go.
  std::shared_ptr<rpc::BulkRegion> region(size_t feature) const {
    return targets_[feature].scattered != 0 ? landed_[landedAt_[feature]] : staging_;
  }
  bool lands() const { return !landed_.empty(); }
  // Per feature: the packed rows in the staging buffer, null for those that land.
  const std::vector<const std::byte*>& arrays() const { return arrays_; }

  // The owner has made all its writes: ends the grants. The staging buffer may be used again.
  std::shared_ptr<rpc::BulkRegion> reclaim(int peer);
  // The owner may still write: lets go of the handles, and the grants keep the memory.
  void leaveToTransport();

 private:
  rpc::BulkTransport* const transport_;
  std::shared_ptr<rpc::BulkRegion> staging_;
  std::vector<std::shared_ptr<rpc::BulkRegion>> landed_;
  std::vector<size_t> landedAt_;  // by feature: index into landed_, of those that land
  std::vector<BulkTarget> targets_;
  std::vector<const std::byte*> arrays_;
};

}  // namespace farhop::sampler
