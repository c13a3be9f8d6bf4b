// Chunks that are read from their owner's mapping, without a thread of the owner's.
#include <algorithm>
#include <utility>

#include "sampler/bulk_fetches.h"
#include "sampler/feature_service.h"

namespace farhop::sampler {

using std::chrono::milliseconds;

namespace {

// Rows of one feature of a chunk, as they lie at both ends.
struct ReadPlan {
  size_t rowBytes = 0;  // of the stored row
  RowPart part;
  const std::vector<rpc::RemoteRegion>* regions = nullptr;  // by partition
  std::shared_ptr<rpc::BulkRegion> local;
  const BulkTarget* target = nullptr;
  std::span<const uint32_t> slots;
};

// Appends one read per stretch that is consecutive at both ends. Rows come in the order of their addresses.
void planReads(const FeatureRequest& request, const ReadPlan& plan, std::vector<rpc::BulkTransfer>* reads) {
  if (plan.part.bytes == 0) return;
  size_t row = 0;
  for (const FeatureRun& run : request.runs) {
    const rpc::RemoteRegion& region = (*plan.regions)[run.partition];
    for (const size_t end = row + run.count, first = row; row < end; ++row) {
      const uint64_t from = request.rows[row] * plan.rowBytes + plan.part.firstByte;
      const uint64_t place = plan.target->scattered != 0 ? plan.slots[row] : row;
      const auto to = static_cast<size_t>(plan.target->offset + place * plan.part.bytes);
      if (row > first) {
        rpc::BulkTransfer& last = reads->back();
        if (last.remoteOffset + last.bytes == from && last.localOffset + last.bytes == to) {
          last.bytes += plan.part.bytes;
          continue;
        }
      }
      rpc::BulkTransfer read;
      read.local = plan.local;
      read.localOffset = to;
      read.bytes = static_cast<size_t>(plan.part.bytes);
      read.remote = region;
      read.remoteOffset = from;
      reads->push_back(std::move(read));
    }
  }
}

}  // namespace

bool BulkFetches::reads(std::span<const size_t> rowBytes) const {
  if (tables_ == nullptr || rowBytes.empty()) return false;
  if (options_.reads == BulkReads::kAlways) return true;
  size_t total = 0;
  for (size_t bytes : rowBytes) total += bytes;
  return options_.reads == BulkReads::kAutomatic && options_.transport->isOneSided() &&
         total / rowBytes.size() >= options_.readRowBytes;
}

bool BulkFetches::reads(const RowChunk& chunk) const {
  std::vector<size_t> rowBytes;
  for (size_t bytes : chunk.arrayBytes) rowBytes.push_back(bytes / std::max<size_t>(1, chunk.request.rows.size()));
  return reads(rowBytes);
}

void BulkFetches::start(const std::shared_ptr<BulkFetch>& fetch) {
  if (!reads(fetch->chunk)) {
    startGather(fetch);
    return;
  }
  const FeatureRequest& request = fetch->chunk.request;
  tables_->find(fetch->machine, request.nodeType, request.features, fetch->deadline,
                [self = shared_from_this(), fetch](std::shared_ptr<const RemoteTables::Regions> regions) {
                  self->executor_.post([self, fetch, regions = std::move(regions)] {
                    regions != nullptr ? self->startReads(fetch, *regions) : self->startGather(fetch);
                  });
                });
}

absl::StatusOr<std::vector<rpc::BulkTransfer>> BulkFetches::prepareReads(const std::shared_ptr<BulkFetch>& fetch,
                                                                         const RemoteTables::Regions& regions) {
  FARHOP_RETURN_IF_ERROR(prepareMemory(fetch, BulkChunkMemory::Use::kReads));
  const FeatureRequest& request = fetch->chunk.request;
  std::vector<rpc::BulkTransfer> reads;
  for (size_t f = 0; f < request.features.size(); ++f) {
    ReadPlan plan;
    plan.rowBytes = featureSpec(*options_.graph, static_cast<int>(request.nodeType), request.features[f]).rowBytes();
    plan.part = partOf(request.parts, f, plan.rowBytes);
    plan.regions = &regions[f];
    plan.local = fetch->memory.region(f);
    plan.target = &fetch->memory.targets()[f];
    plan.slots = fetch->chunk.slots;
    planReads(request, plan, &reads);
  }
  for (rpc::BulkTransfer& read : reads) {
    read.peer = fetch->machine;
    // One that is late is for nobody, but tells when its memory is free.
    read.deadline = Deadline(fetch->deadline.at() + options_.grace);
  }
  return reads;
}

void BulkFetches::startReads(const std::shared_ptr<BulkFetch>& fetch, const RemoteTables::Regions& regions) {
  absl::StatusOr<std::vector<rpc::BulkTransfer>> reads = prepareReads(fetch, regions);
  if (!reads.ok()) {
    refuse(fetch, reads.status());
    return;
  }
  {
    std::lock_guard lock(mutex_);
    fetch->state = State::kUnderWay;
    fetch->readsLeft = reads->size();
    watch(fetch, fetch->deadline.at());
  }
  schedule();
  if (reads->empty()) arrived(fetch);
  for (rpc::BulkTransfer& read : *reads) {
    options_.transport->read(std::move(read), [self = shared_from_this(), fetch](absl::Status status) {
      self->readEnded(fetch, status);
    });
  }
}

void BulkFetches::readEnded(const std::shared_ptr<BulkFetch>& fetch, const absl::Status& status) {
  absl::Status all;
  {
    std::lock_guard lock(mutex_);
    if (fetch->readStatus.ok()) fetch->readStatus = status;
    if (--fetch->readsLeft > 0) return;
    all = fetch->readStatus;
  }
  if (all.ok()) {
    arrived(fetch);
  } else {
    giveUp(fetch, all);
  }
}

}  // namespace farhop::sampler
