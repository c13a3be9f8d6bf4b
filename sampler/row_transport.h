// How rows of features come from the machine that owns them: the part of a pull that transports exchange.
#pragma once

#include <functional>
#include <memory>
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

  size_t payloadBytes() const;  // of request and reply
};

// Thread-safe.
class RowTransport {
 public:
  // The chunk's rows, packed, one array of arrayBytes[i] bytes per feature; or why there are none. By then nothing writes
  // to the arrays any more.
  using Done = std::function<void(absl::StatusOr<std::vector<rpc::Bytes>> arrays)>;
  virtual ~RowTransport() = default;
  // `done` runs once, at the chunk's deadline at the latest, on any thread, also before this returns; it must only post.
  virtual void fetch(RowChunk chunk, Done done) = 0;
};

// By requests of the agent to the feature service. The agent must outlive it.
std::unique_ptr<RowTransport> agentRowTransport(rpc::Agent* agent);

}  // namespace farhop::sampler
