#include "tests/multiproc/api_position_checks.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "tests/multiproc/api_checks.h"

namespace farhop::testing {
namespace {

constexpr int64_t kEpoch = 3;

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::exit(16);
}

uint64_t digestOf(const Batch& batch) {
  uint64_t hash = digest(0xCBF29CE484222325ULL, batch.feature("original_id").pull());
  if (batch.numBlocks() > 0) return digest(digest(hash, batch.block(0).indptr()), batch.block(0).indices());
  return digest(hash, batch.walks());
}

// `make` makes loaders of the same options.
template <typename Make>
void restoreAtEveryStep(const std::string& what, const Make& make) {
  auto whole = make();
  std::vector<uint64_t> expected;
  require(whole->restore(whole->state()) == 0, what + ": a new loader stands before the first epoch");
  auto epoch = whole->epoch(kEpoch);
  std::vector<std::string> states = {whole->state()};
  for (auto& batch : epoch) {
    expected.push_back(digestOf(batch));
    states.push_back(whole->state());
  }
  require(states.size() == static_cast<size_t>(whole->numBatches()) + 1, what + ": every batch comes");
  for (size_t step = 0; step < states.size(); ++step) {
    auto other = make();
    require(other->restore(states[step]) == kEpoch, what + ": the epoch");
    size_t at = step;
    for (auto& batch : other->epoch(kEpoch)) {
      require(batch.step() == static_cast<int64_t>(at) && digestOf(batch) == expected.at(at), what + ": the same batches");
      require(other->state() == states.at(++at), what + ": the same states");
    }
    require(at == expected.size(), what + ": as many batches as were left");
    // Only the epoch that was left is shortened.
    int64_t next = 0;
    for ([[maybe_unused]] auto& batch : other->epoch(kEpoch + 1)) ++next;
    require(next == other->numBatches(), what + ": the next epoch is whole");
  }
}

NeighborLoaderOptions globalOptions() {
  NeighborLoaderOptions options;
  options.fanouts = {4, 3};
  options.batchSize = 16;
  options.seed = 11;
  options.deal = SeedDeal::kGlobal;
  return options;
}

std::vector<NeighborLoaderOptions> optionsOfEveryDeal() {
  std::vector<NeighborLoaderOptions> all;
  for (SeedDeal deal : {SeedDeal::kByOwner, SeedDeal::kGlobal}) {
    for (EpochTail tail : {EpochTail::kWrap, EpochTail::kDrop, EpochTail::kUneven}) {
      all.push_back(globalOptions());
      all.back().deal = deal;
      all.back().tail = tail;
    }
  }
  return all;
}

void writeRest(NeighborLoader& loader, int64_t epoch, const std::string& directory, int rank) {
  std::ofstream out(directory + "/batches-" + std::to_string(rank));
  for (Batch& batch : loader.epoch(epoch)) out << epoch << " " << batch.number() << " " << digestOf(batch) << "\n";
}

}  // namespace

void leaveEpoch(Runtime& runtime, const Graph& graph, const std::string& directory) {
  for (const NeighborLoaderOptions& options : optionsOfEveryDeal()) {
    restoreAtEveryStep("neighbours", [&] { return std::make_unique<NeighborLoader>(graph, graph.split("train"), options); });
  }
  RandomWalkLoaderOptions walks;
  walks.length = 5;
  walks.batchSize = 16;
  restoreAtEveryStep("walks", [&] { return std::make_unique<RandomWalkLoader>(graph, graph.split("train"), walks); });
  LinkLoaderOptions links;
  static_cast<NeighborLoaderOptions&>(links) = globalOptions();
  links.batchSize = 64;
  links.negatives = Negatives::kBinary;
  restoreAtEveryStep("links", [&] { return std::make_unique<LinkLoader>(graph, graph.edgeSplit("train"), links); });

  NeighborLoader loader(graph, graph.split("train"), globalOptions());
  for (Batch& batch : loader.epoch(kEpoch)) {
    if (batch.step() == 1) break;
  }
  const std::string state = loader.state();
  for (const std::string& other : runtime.gather(state)) require(other == state, "all processes stand alike");
  if (runtime.worldRank() == 0) std::ofstream(directory + "/state", std::ios::binary) << state;
  NeighborLoader next(graph, graph.split("train"), globalOptions());
  writeRest(next, next.restore(state), directory, runtime.worldRank());
}

void continueEpoch(Runtime& runtime, const Graph& graph, const std::string& directory, bool same) {
  std::ifstream in(directory + "/state", std::ios::binary);
  const std::string state{std::istreambuf_iterator<char>(in), {}};
  NeighborLoader loader(graph, graph.split("train"), globalOptions());
  if (same) return writeRest(loader, loader.restore(state), directory, runtime.worldRank());
  expectError("another number of processes", ErrorCode::kFailedPrecondition, "in the middle of epoch 3",
              [&] { loader.restore(state); });
  require(loader.restore(state, OtherProcesses::kNextEpoch) == kEpoch + 1, "the next epoch on request");
  int64_t batches = 0;
  for ([[maybe_unused]] Batch& batch : loader.epoch(kEpoch + 1)) ++batches;
  require(batches == loader.numBatches(), "the next epoch is whole");
}

}  // namespace farhop::testing
