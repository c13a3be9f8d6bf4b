// Steps of random walks from CSR rows: plain arrays in, plain arrays out.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "sampler/kernels.h"

namespace farhop::sampler {

// Candidates that one call draws for each walk, at most.
inline constexpr uint32_t kMaxStepTries = 64;

// What one step draws: tries firstTry .. firstTry + tries of every walk.
struct StepDraw {
  uint64_t stepKey = 0;
  uint32_t firstTry = 0;
  uint32_t tries = 1;                   // 1 to kMaxStepTries
  const WeightView* weights = nullptr;  // null: uniformly
};

// Where a row offers no step: no edges, or none with a weight above 0. Above every gid of this width.
template <typename Id>
inline constexpr Id kNoStep = std::numeric_limits<Id>::max();

// For each i, walk walks[i] stands at local row rows[i]: writes a candidate for its next node per try, the source of one
// in-edge, to out[i * tries ..]. Try t of walk w depends on (stepKey, w, t) and on the row alone. Rows must be below
// view.rows. Thread-safe.
template <typename Id>
void proposeSteps(const CsrView<Id>& view, std::span<const uint32_t> rows, std::span<const uint32_t> walks,
                  const StepDraw& draw, Id* out);

extern template void proposeSteps<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>,
                                            std::span<const uint32_t>, const StepDraw&, uint32_t*);
extern template void proposeSteps<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>,
                                            std::span<const uint32_t>, const StepDraw&, uint64_t*);

}  // namespace farhop::sampler
