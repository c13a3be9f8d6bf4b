// Draws of neighbours from CSR rows: plain arrays in, plain arrays out. No graph, no network, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
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
  bool positionsAsIds = false;  // kernels yield an edge's offset in the arrays above in place of its id

  // What kernels append to DrawnNeighbors::edgeIds for the edge at `offset`.
  uint64_t edgeIdAt(uint64_t offset) const { return positionsAsIds ? offset : edgeIds[offset]; }
};

// One slot of a row's alias table: a draw that falls on it takes its own edge when the draw's 32-bit fraction is below
// the threshold, and otherwise the edge at position `alias` of the row.
struct AliasSlot {
  uint32_t threshold = 0;
  uint32_t alias = 0;
};
// The alias in all slots of a row whose weights are all zero.
inline constexpr uint32_t kNoAlias = 0xFFFFFFFF;

// Weights of a CsrView's edges: finite, not negative. Only their ratios within a row matter.
struct WeightView {
  const float* weights = nullptr;    // [edges]
  const AliasSlot* slots = nullptr;  // [edges]
};

// What a draw from alias tables remembers between its stages.
struct SlotDraw {
  uint64_t offset;    // of the slot
  uint32_t fraction;  // to compare with the slot's threshold
};
// An edge and its exponential key.
struct KeyedEdge {
  double key;
  uint64_t offset;
  bool operator<(const KeyedEdge& other) const {
    return key < other.key || (key == other.key && offset < other.offset);
  }
};

// One row's draw where something limits it (sampler/row_ranges.h): the key it depends on, and where the edges lie that
// it may take.
struct RowRange {
  uint64_t from = 0;  // edges from .. to may be drawn
  uint64_t to = 0;
  uint64_t end = 0;  // of the whole row
  uint64_t key = 0;
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
  bool contains(uint64_t position) const;

  // For whoever draws.
  std::vector<uint64_t> positions;
  std::vector<SlotDraw> slotDraws;
  std::vector<KeyedEdge> keyedEdges;
  std::vector<std::pair<uint64_t, uint64_t>> numberedEdges;  // number of the source, offset
  std::vector<RowRange> ranges;
  std::vector<uint64_t> sources, holes;  // of the row at hand, where some edges are excluded

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

// Weighted with replacement: `fanout` independent draws from each row with a weight above zero, each edge with a
// probability in proportion to its weight. fanout < 0 takes all edges with a weight above zero, once, in order.
template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, std::span<const uint32_t> rows,
                                   uint64_t hopKey, int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                                   PositionSet* scratch);

// Weighted without replacement: edge after edge, each in proportion to its weight among those not drawn yet; the
// distribution of the `fanout` smallest of independent exponential keys -log(u) / weight. All edges with a weight
// above zero, in order, where the row has no more edges than the fanout or fanout < 0. view.edgeIds must be there.
template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, std::span<const uint32_t> rows, uint64_t hopKey,
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
extern template void sampleWeighted<uint32_t>(const CsrView<uint32_t>&, const WeightView&, std::span<const uint32_t>,
                                        uint64_t, int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
extern template void sampleWeighted<uint64_t>(const CsrView<uint64_t>&, const WeightView&, std::span<const uint32_t>,
                                        uint64_t, int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);
extern template void sampleWeightedWithReplacement<uint32_t>(const CsrView<uint32_t>&, const WeightView&, std::span<const uint32_t>,
                                        uint64_t, int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
extern template void sampleWeightedWithReplacement<uint64_t>(const CsrView<uint64_t>&, const WeightView&, std::span<const uint32_t>,
                                        uint64_t, int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
