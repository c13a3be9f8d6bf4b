#include "sampler/remote_tables.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "sampler/feature_service.h"
#include "sampler/table_keys.h"

namespace farhop::sampler {

bool RemoteTables::known(int machine, uint32_t nodeType, std::span<const uint32_t> features,
                         std::shared_ptr<const Regions>* regions) const {
  auto all = std::make_shared<Regions>();
  bool readable = true;
  for (uint32_t feature : features) {
    auto found = known_.find({machine, nodeType, feature});
    if (found == known_.end()) return false;
    readable = readable && !found->second.empty();
    all->push_back(found->second);
  }
  if (readable) *regions = std::move(all);
  return true;
}

void RemoteTables::find(int machine, uint32_t nodeType, std::span<const uint32_t> features, Deadline deadline, Found found) {
  std::shared_ptr<const Regions> regions;
  // What the job makes is never read.
  bool isKnown = std::any_of(features.begin(), features.end(), [](uint32_t feature) {
    return feature >= JobFeatures::kFirstIndex && feature != kOriginalIdFeature;
  });
  if (!isKnown) {
    std::lock_guard lock(mutex_);
    isKnown = known(machine, nodeType, features, &regions);
  }
  if (isKnown) {
    found(std::move(regions));
    return;
  }
  TableKeysRequest request{nodeType, {features.begin(), features.end()}};
  auto sink = std::make_shared<rpc::BytesSink>();
  rpc::OutArray array = encodeTableKeysRequest(request);
  agent_->call(machine, kTableKeysMethod, {std::move(array)}, deadline, sink,
               [self = shared_from_this(), machine, request = std::move(request), sink,
                found = std::move(found)](absl::Status status) {
                 std::shared_ptr<const Regions> answer;
                 if (status.ok()) {
                   auto decoded = decodeTableKeys(sink->arrays, request, machine, *self->graph_);
                   status = decoded.status();
                   if (decoded.ok()) {
                     std::lock_guard lock(self->mutex_);
                     for (size_t f = 0; f < request.features.size(); ++f) {
                       self->known_[{machine, request.nodeType, request.features[f]}] = (*decoded)[f];
                     }
                     answer = std::make_shared<const Regions>(*std::move(decoded));
                   }
                 }
                 if (!status.ok()) self->refused(machine, request.nodeType, request.features, status);
                 found(std::move(answer));
               });
}

void RemoteTables::refused(int machine, uint32_t nodeType, const std::vector<uint32_t>& features, const absl::Status& reason) {
  // Late, or gone: the pull itself will tell.
  if (absl::IsDeadlineExceeded(reason) || absl::IsUnavailable(reason) || absl::IsCancelled(reason)) return;
  bool isNews = false;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t feature : features) isNews |= known_.try_emplace({machine, nodeType, feature}).second;
  }
  if (isNews) {
    FARHOP_LOG(WARNING) << "rows are not read from machine " << machine << ", but sent by it: " << reason;
  }
}

}  // namespace farhop::sampler
