// Draws of neighbours from CSR rows: plain arrays in, plain arrays out. No graph, no network, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/pod_vector.h"

namespace farhop::sampler {

// The in-edges of one relation in one partition.
template <typename Id>
struct CsrView {
  const uint64_t* indptr = nullptr;       // [rows + 1]
  const Id* neighbors = nullptr;          // [edges]
  const uint64_t* edgeIds = nullptr;      // [edges]
  const uint64_t* originalIds = nullptr;  // [rows]: of the destination nodes
  uint64_t rows = 0;
};

// A draw of all rows, in row order.
template <typename Id>
struct DrawnNeighbors {
  PodVector<uint32_t> counts;   // [rows drawn]
  PodVector<Id> neighbors;      // [sum of counts] source gids
  PodVector<uint64_t> edgeIds;  // as long as neighbors when asked for, else empty

  void clear() {
    counts.clear();
    neighbors.clear();
    edgeIds.clear();
  }
};

// Working memory of a draw, reused between calls: the positions already drawn in the row at hand, for draws too
// large for a linear scan.
class PositionSet {
 public:
  // Makes room for `count` positions and forgets the old ones.
  void reset(size_t count);
  // False when it was there already.
  bool insert(uint64_t position);

  std::vector<uint64_t> positions;  // of one row, for whoever draws

 private:
  std::vector<uint64_t> slots_;  // position + 1; 0 is free
  size_t mask_ = 0;
};

// Draws min(fanout, degree) distinct positions of [0, degree) with equal probability for every subset, and
// appends them to `positions`. Floyd's algorithm (Bentley, Floyd: "Programming pearls: a sample of
// brilliance", CACM 30(9), 1987); fanout < 0 takes all, in order. Depends on `key` alone.
void drawPositions(uint64_t key, uint64_t degree, int64_t fanout, std::vector<uint64_t>* positions,
                   PositionSet* scratch);

// Uniform without replacement: for each local row index in `rows` appends its draw to `out`. `hopKey` as in
// base/random.h; each row's key is made from its original id, so the draw is the same wherever the row lies.
// Every index must be < view.rows. Thread-safe given own `out` and `scratch`.
template <typename Id>
void sampleUniform(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey, int64_t fanout,
                   bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

// Uniform with replacement: `fanout` independent draws from each row that has edges, each edge with the same
// probability, also where the degree is smaller; fanout < 0 takes all once, in order. Otherwise as sampleUniform.
template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, std::span<const uint32_t> rows, uint64_t hopKey,
                                  int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch);

extern template void sampleUniform<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>, uint64_t, int64_t,
                                             bool, DrawnNeighbors<uint32_t>*, PositionSet*);
extern template void sampleUniform<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>, uint64_t, int64_t,
                                             bool, DrawnNeighbors<uint64_t>*, PositionSet*);
extern template void sampleUniformWithReplacement<uint32_t>(const CsrView<uint32_t>&, std::span<const uint32_t>,
                                                            uint64_t, int64_t, bool, DrawnNeighbors<uint32_t>*,
                                                            PositionSet*);
extern template void sampleUniformWithReplacement<uint64_t>(const CsrView<uint64_t>&, std::span<const uint32_t>,
                                                            uint64_t, int64_t, bool, DrawnNeighbors<uint64_t>*,
                                                            PositionSet*);

}  // namespace farhop::sampler
