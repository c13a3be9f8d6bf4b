#include "runtime/api/prefetch.h"

#include <set>
#include <tuple>

#include "runtime/api/status_error.h"

namespace farhop::api {
namespace {

using sampler::PrefetchFeature;

// Features by name, each once.
class Selection {
 public:
  explicit Selection(const GraphCore& core) : core_(core) {}

  void add(int nodeType, const std::string& name, bool ofSeeds) {
    const uint32_t feature = valueOrThrow(sampler::featureIndex(*core_.graph, nodeType, name));
    torchType(sampler::featureSpec(*core_.graph, nodeType, feature).dtype);  // throws for what libtorch lacks
    if (seen_.emplace(nodeType, feature, ofSeeds).second) features_.push_back({nodeType, feature, ofSeeds});
  }
  // Of every type that has it.
  void addEverywhere(const std::string& name) {
    const int types = static_cast<int>(core_.graph->schema().nodeTypes.size());
    absl::Status missing;
    bool found = false;
    for (int type = 0; type < types; ++type) {
      const auto feature = sampler::featureIndex(*core_.graph, type, name);
      if (feature.ok()) {
        add(type, name, false);
        found = true;
      } else {
        missing = missing.ok() ? feature.status() : annotate(feature.status(), missing.message());
      }
    }
    if (!found) okOrThrow(missing);
  }
  std::vector<PrefetchFeature> take() { return std::move(features_); }

 private:
  const GraphCore& core_;
  std::set<std::tuple<int, uint32_t, bool>> seen_;
  std::vector<PrefetchFeature> features_;
};

}  // namespace

std::unique_ptr<sampler::Prefetcher> makePrefetcher(const std::shared_ptr<GraphCore>& core, const NeighborLoaderOptions& options,
                                                    int seedType) {
  if (options.prefetchBytes < 0) {
    throw Error(ErrorCode::kInvalidArgument, absl::StrCat("prefetchBytes is ", options.prefetchBytes, "; 0 prefetches nothing"));
  }
  Selection selection(*core);
  for (const std::string& name : options.prefetch) selection.addEverywhere(name);
  for (const auto& [type, names] : options.prefetchByType) {
    const int nodeType = core->nodeType(type);
    for (const std::string& name : names) selection.add(nodeType, name, false);
  }
  for (const std::string& name : options.prefetchOfSeeds) selection.add(seedType, name, true);
  sampler::PrefetchOptions prefetch;
  prefetch.features = selection.take();
  if (prefetch.features.empty() || options.prefetchBytes == 0) return nullptr;
  prefetch.maxBytes = static_cast<size_t>(options.prefetchBytes);
  prefetch.timeout = options.requestTimeout;
  prefetch.cache = options.cache;
  prefetch.keepAlive = core;
  prefetch.explain = [core](const absl::Status& status) { return core->explained(status); };
  std::vector<partition::FeatureSpec> specs;
  for (const PrefetchFeature& feature : prefetch.features) {
    specs.push_back(sampler::featureSpec(*core->graph, feature.nodeType, feature.feature));
  }
  prefetch.allocate = [specs = std::move(specs)](size_t index, size_t rows) {
    std::vector<int64_t> shape = {static_cast<int64_t>(rows)};
    shape.insert(shape.end(), specs[index].rowShape.begin(), specs[index].rowShape.end());
    return makePullMemory(shape, torchType(specs[index].dtype));
  };
  return std::make_unique<sampler::Prefetcher>(core->puller.get(), core->graph, std::move(prefetch));
}

void adoptPrefetched(const sampler::Prefetcher& prefetcher, const std::vector<sampler::Prefetched>& pulls, BatchCore* batch) {
  for (const sampler::Prefetched& pull : pulls) {
    const PrefetchFeature& feature = prefetcher.feature(pull.index);
    try {
      const std::string name = sampler::featureSpec(*batch->graph->graph, feature.nodeType, feature.feature).name;
      const std::shared_ptr<FeatureState> state = batch->featureState(feature.nodeType, name, feature.ofSeeds);
      if (state->feature != feature.feature) continue;  // the job has made another of that name since
      batch->prefetched.push_back(FeatureClaim::of(state));
      state->adopt({pull.hold, pull.part, false});
    } catch (const Error&) {
      // A feature of the job's that is gone: whoever asks for it learns so.
    }
  }
  if (!pulls.empty()) batch->graph->metrics->prefetchedBatches.add(1);
}

}  // namespace farhop::api
