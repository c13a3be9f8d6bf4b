#include "sampler/bulk_chunk.h"

#include <algorithm>

namespace farhop::sampler {
namespace {

constexpr size_t kAlignment = 64;  // of arrays in a staging buffer

size_t countRuns(std::span<const uint32_t> slots) {
  size_t runs = slots.empty() ? 0 : 1;
  for (size_t i = 1; i < slots.size(); ++i) runs += slots[i] != slots[i - 1] + 1 ? 1 : 0;
  return runs;
}

BulkTarget targetOf(const rpc::RemoteRegion& region) {
  BulkTarget target;
  target.key = region.key;
  target.address = region.address;
  target.bytes = region.bytes;
  return target;
}

}  // namespace

absl::Status BulkChunkMemory::prepare(const RowChunk& chunk, const Plan& plan, std::shared_ptr<const void> untilUntouched) {
  const bool peerWrites = plan.use == Use::kPeersWrites;
  const size_t features = chunk.arrayBytes.size();
  const size_t runs = countRuns(chunk.slots);
  targets_.resize(features);
  landedAt_.resize(features);
  arrays_.assign(features, nullptr);
  size_t stagedBytes = 0;
  std::vector<size_t> stagedAt(features);
  for (size_t f = 0; f < features; ++f) {
    const size_t bytes = chunk.arrayBytes[f];
    const bool lands = f < chunk.destinations.size() && !chunk.destinations[f].empty() && chunk.keepAlive != nullptr &&
                       runs > 0 && bytes / runs >= plan.landingRunBytes;
    if (!lands) {
      stagedAt[f] = stagedBytes;
      stagedBytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      continue;
    }
    FARHOP_ASSIGN_OR_RETURN(
        std::shared_ptr<rpc::BulkRegion> region,
        transport_->registerMemory(chunk.destinations[f], peerWrites ? rpc::BulkAccess::kRemoteWrite : rpc::BulkAccess::kTarget,
                                   untilUntouched));
    if (peerWrites) FARHOP_RETURN_IF_ERROR(transport_->grant(region, chunk.machine));
    targets_[f] = targetOf(region->remote());
    targets_[f].scattered = 1;
    landedAt_[f] = landed_.size();
    landed_.push_back(std::move(region));
  }
  if (stagedBytes == 0) return absl::OkStatus();
  FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<rpc::BulkRegion> buffer, plan.staging->take(stagedBytes));
  if (peerWrites) FARHOP_RETURN_IF_ERROR(transport_->grant(buffer, chunk.machine));
  staging_ = std::move(buffer);
  const rpc::RemoteRegion remote = staging_->remote();
  for (size_t f = 0; f < features; ++f) {
    if (targets_[f].scattered != 0) continue;
    targets_[f] = targetOf(remote);
    targets_[f].offset = stagedAt[f];
    if (chunk.arrayBytes[f] > 0) arrays_[f] = staging_->memory().data() + stagedAt[f];
  }
  return absl::OkStatus();
}

std::shared_ptr<rpc::BulkRegion> BulkChunkMemory::reclaim(int peer) {
  for (const std::shared_ptr<rpc::BulkRegion>& region : landed_) transport_->revoke(region, peer);
  landed_.clear();
  if (staging_ != nullptr) transport_->revoke(staging_, peer);
  return std::move(staging_);
}

void BulkChunkMemory::leaveToTransport() {
  landed_.clear();
  staging_.reset();
}

}  // namespace farhop::sampler
