#include "sampler/walk_kernels.h"

#include "base/random.h"
#include "sampler/kernel_chunks.h"

namespace farhop::sampler {
namespace {

// Candidates drawn in one stage.
constexpr size_t kChunk = 1024;
static_assert(kChunk >= kMaxStepTries);

}  // namespace

template <typename Id>
void proposeSteps(const CsrView<Id>& view, std::span<const uint32_t> rows, std::span<const uint32_t> walks,
                  const StepDraw& draw, Id* out) {
  const size_t size = std::min(kPrefetchRows, kChunk / draw.tries);
  SlotDraw slots[kChunk];
  uint64_t offsets[kChunk];
  const AliasSlot* const table = draw.weights == nullptr ? nullptr : draw.weights->slots;
  const auto prefetchBounds = [&](size_t first) {
    for (uint32_t row : chunkOf(rows, first, size)) __builtin_prefetch(view.indptr + row);
  };
  prefetchBounds(0);
  for (size_t first = 0; first < rows.size(); first += size) {
    prefetchBounds(first + size);
    const std::span<const uint32_t> chunk = chunkOf(rows, first, size);
    uint64_t* next = offsets;
    SlotDraw* slot = slots;
    for (size_t i = 0; i < chunk.size(); ++i) {
      const uint64_t from = view.indptr[chunk[i]], degree = view.indptr[chunk[i] + 1] - from;
      for (uint32_t t = 0; t < draw.tries; ++t, ++slot, ++next) {
        *next = kNoEdge;
        if (degree == 0) continue;
        KeyedRandom random(nodeKey(draw.stepKey, walks[first + i], draw.firstTry + t));
        *slot = drawSlot(&random, from, degree);
        *next = slot->offset;
        __builtin_prefetch(table == nullptr ? static_cast<const void*>(view.neighbors + *next) : table + *next);
      }
    }
    const size_t drawn = chunk.size() * draw.tries;
    for (size_t i = 0; table != nullptr && i < drawn; ++i) {
      if (offsets[i] == kNoEdge) continue;
      offsets[i] = resolve(table, slots[i], view.indptr[chunk[i / draw.tries]]);
      if (offsets[i] != kNoEdge) __builtin_prefetch(view.neighbors + offsets[i]);
    }
    for (size_t i = 0; i < drawn; ++i) *out++ = offsets[i] == kNoEdge ? kNoStep<Id> : view.neighbors[offsets[i]];
  }
}

template void proposeSteps<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, std::span<const uint32_t>,
                                     const StepDraw&, uint32_t*);
template void proposeSteps<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, std::span<const uint32_t>,
                                     const StepDraw&, uint64_t*);

}  // namespace farhop::sampler
