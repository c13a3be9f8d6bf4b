// How rows of features come from the machine that owns them: the part of a pull that transports exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/agent.h"
#include "sampler/feature_service.h"

namespace farhop::sampler {

// Rows of one owner, few enough for one reply.
struct RowChunk {
  int machine = 0;
  FeatureRequest request;
  std::vector<size_t> arrayBytes;  // per feature: what its packed rows take
  Deadline deadline;

  // Where the rows go in the end, for transports that can put them there. Per feature: the memory that row slots[i] of
  // its packed length lies in for request row i; empty for rows that must be looked at on the way. Without keepAlive
  // (which holds that memory) nothing may land.
  std::vector<std::span<std::byte>> destinations;
  std::span<const uint32_t> slots;  // borrowed until done
  std::shared_ptr<const void> keepAlive;

  size_t payloadBytes() const;  // of request and reply
};

// The rows of a chunk: packed, one array per feature, or null for those that have landed in their destination. The
// memory is the owner's.
struct FetchedRows {
  std::vector<const std::byte*> arrays;
  std::shared_ptr<const void> owner;
};

// How a pull from one machine is cut into chunks.
struct RowCut {
  size_t chunkBytes = 0;  // a single row may exceed it
  int underWay = 2;
  bool inAddressOrder = false;  // rows of a partition are asked for as they lie there
};

// Thread-safe.
class RowTransport {
 public:
  // The chunk's rows or why there are none. By then nothing writes to arrays and destinations any more.
  using Done = std::function<void(absl::StatusOr<FetchedRows> rows)>;
  virtual ~RowTransport() = default;
  // `done` runs once, at the chunk's deadline at the latest, on any thread, also before this returns; it must only post.
  virtual void fetch(RowChunk chunk, Done done) = 0;
  // For rows of these lengths as they travel, of which those of `mayLand` have a destination. `usualBytes`: the
  // puller's own chunk.
  virtual RowCut cut(std::span<const size_t> rowBytes, const std::vector<bool>& mayLand, size_t usualBytes) const {
    (void)rowBytes, (void)mayLand;
    return {.chunkBytes = usualBytes, .underWay = 2};
  }
};

// By requests of the agent to the feature service. The agent must outlive it.
std::unique_ptr<RowTransport> agentRowTransport(rpc::Agent* agent);

}  // namespace farhop::sampler
