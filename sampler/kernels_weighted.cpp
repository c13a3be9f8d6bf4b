// Weighted, with and without replacement.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "sampler/kernel_chunks.h"
#include "sampler/kernels.h"
#include "sampler/row_holes.h"

namespace farhop::sampler {
namespace {

// Up to this many positions a scan of those drawn beats a hash table.
constexpr uint64_t kLinearScanTries = 48;
// Rows with more edges than this many times the fanout are tried through the alias table first.
constexpr uint64_t kScanFactor = 4;

// -log(u) for u in (0, 1). Of exactly rounded operations only, so that the same bits come out on every machine: the
// C library's log may differ in the last place from one processor to the next.
double negativeLog(double u) {
  uint64_t bits = std::bit_cast<uint64_t>(u);
  // u = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalfMantissa = 0x6A09E667F3BCDULL;
  const uint64_t mantissa = bits & 0xFFFFFFFFFFFFFULL;
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  const bool halve = mantissa >= kSqrtHalfMantissa;
  exponent += halve ? 1 : 0;
  const double m = std::bit_cast<double>(mantissa | (halve ? uint64_t{1022} << 52 : uint64_t{1023} << 52));
  // log(m) = 2 artanh((m - 1) / (m + 1))
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 19;
  for (int odd = 17; odd >= 1; odd -= 2) series = series * z + 1.0 / odd;
  return -(static_cast<double>(exponent) * 0x1.62e42fefa39efp-1 + 2 * s * series);
}

// Appends to `offsets` the `wanted` edges with the smallest exponential keys among those with a positive weight that
// `isTaken` does not name, in order of their keys. Returns the new end. `best` is a heap, the largest key first.
template <typename Id, typename IsTaken>
uint64_t* drawByKeys(const CsrView<Id>& view, const float* weights, const RowRange& row, uint64_t wanted,
                     const IsTaken& isTaken, std::vector<KeyedEdge>* best, uint64_t* offsets) {
  best->clear();
  for (uint64_t e = row.from; e < row.to; ++e) {
    const double weight = static_cast<double>(weights[e]);
    if (!(weight > 0)) continue;
    const double u = (static_cast<double>(nodeKey(row.key, view.edgeIds[e]) >> 12) + 0.5) * 0x1.0p-52;
    const bool full = best->size() == wanted;
    // -log(u) > 1 - u: most edges of a long row need no logarithm.
    if (full && 1 - u >= best->front().key * weight) continue;
    const KeyedEdge entry{negativeLog(u) / weight, e};
    if ((full && !(entry < best->front())) || isTaken(e)) continue;
    if (full) {
      std::pop_heap(best->begin(), best->end());
      best->back() = entry;
    } else {
      best->push_back(entry);
    }
    std::push_heap(best->begin(), best->end());
  }
  std::sort_heap(best->begin(), best->end());
  for (const KeyedEdge& entry : *best) *offsets++ = entry.offset;
  return offsets;
}

// One row's draw without replacement, from `tries` draws of its alias table (none: by keys alone). Returns the end.
// The next edge that is not drawn yet has the distribution of the next smallest key, however many tries it takes; so
// keys can take over after any number of them. What `isHole` names counts as taken from the start, and so do edges that
// the row does not see, which its table has.
template <typename Id, typename IsHole>
uint64_t* drawDistinct(const CsrView<Id>& view, const WeightView& weights, const RowRange& row, uint64_t wanted,
                       std::span<const SlotDraw> tries, const IsHole& isHole, PositionSet* scratch, uint64_t* offsets) {
  uint64_t* next = offsets;
  const bool hashed = wanted > kLinearScanTries && !tries.empty();
  if (hashed) scratch->reset(wanted);
  for (const SlotDraw& draw : tries) {
    const uint64_t edge = resolve(weights.slots, draw, row.from);
    if (edge == kNoEdge) return next;
    if (edge >= row.to || isHole(edge)) continue;
    const bool isNew = hashed ? scratch->insert(edge) : std::find(offsets, next, edge) == next;
    if (!isNew) continue;
    *next++ = edge;
    if (static_cast<uint64_t>(next - offsets) == wanted) return next;
  }
  const uint64_t* const taken = next;
  const auto isTaken = [&](uint64_t edge) {
    if (isHole(edge)) return true;
    return hashed ? scratch->contains(edge) : std::find<const uint64_t*>(offsets, taken, edge) != taken;
  };
  return drawByKeys(view, weights.weights, row, wanted - static_cast<uint64_t>(next - offsets), isTaken,
                    &scratch->keyedEdges, next);
}

// All edges with a positive weight, in row order; or none.
template <typename Id, typename Rows>
void takeAll(const CsrView<Id>& view, const WeightView& weights, const Rows& rows, bool any, bool wantEdgeIds,
             DrawnNeighbors<Id>* out, PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  for (size_t row = 0; row < rows.size(); ++row) {
    offsets.clear();
    for (uint64_t e = rows.from(row); any && e < rows.to(row); ++e) {
      if (weights.weights[e] > 0) offsets.push_back(e);
    }
    out->counts.push_back(static_cast<uint32_t>(offsets.size()));
    appendEdges(view, offsets, wantEdgeIds, out);
  }
}

// Draws from the edges of a row that sees only a part of them by their running sums: one pass, whatever their share of
// the row's weight. Nothing where they weigh nothing.
uint64_t* drawBySums(const float* weights, const RowRange& row, uint64_t wanted, KeyedRandom* random,
                     std::vector<KeyedEdge>* targets, uint64_t* offsets) {
  double sum = 0;
  for (uint64_t e = row.from; e < row.to; ++e) sum += static_cast<double>(weights[e]);
  if (!(sum > 0)) return offsets;
  targets->clear();
  for (uint64_t i = 0; i < wanted; ++i) targets->push_back({random->uniform() * sum, i});
  std::sort(targets->begin(), targets->end());
  double reached = 0;
  uint64_t e = row.from, heavy = kNoEdge;  // the last edge passed that weighs anything
  for (const KeyedEdge& target : *targets) {
    for (; e < row.to && (heavy == kNoEdge || reached <= target.key); ++e) {
      reached += static_cast<double>(weights[e]);
      if (weights[e] > 0) heavy = e;
    }
    offsets[target.offset] = heavy;
  }
  return offsets + wanted;
}

// Draws of a row from its alias table: as many as are wanted; where the row sees only some of its edges, more, since
// what falls on the others is thrown away; none where a pass over the visible edges is cheaper.
uint64_t triesWithReplacement(uint64_t visible, uint64_t whole, uint64_t wanted) {
  if (visible == whole) return visible == 0 ? 0 : wanted;
  return visible > kScanFactor * wanted ? 2 * wanted : 0;
}

template <typename Id, typename Rows>
void drawWithReplacement(const CsrView<Id>& view, const WeightView& weights, const Rows& rows, int64_t fanout,
                         bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return takeAll(view, weights, rows, fanout != 0, wantEdgeIds, out, scratch);
  const uint64_t wanted = static_cast<uint64_t>(fanout);
  const size_t size = chunkRows(wanted);
  std::vector<SlotDraw>& draws = scratch->slotDraws;
  draws.resize(size * wanted * 2);
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.resize(size * wanted);
  uint32_t* counts = out->counts.reserveMore(rows.size());
  rows.prefetch(0, size);
  for (size_t first = 0; first < rows.size(); first += size) {
    rows.prefetch(first + size, size);
    const size_t last = std::min(first + size, rows.size());
    SlotDraw* draw = draws.data();
    for (size_t row = first; row < last; ++row) {
      const uint64_t from = rows.from(row), whole = rows.end(row) - from;
      const uint64_t tries = triesWithReplacement(rows.to(row) - from, whole, wanted);
      if (tries == 0) continue;
      KeyedRandom random(rows.key(row));
      for (uint64_t i = 0; i < tries; ++i) {
        *draw = drawSlot(&random, from, whole);
        __builtin_prefetch(weights.slots + draw++->offset);
      }
    }
    draw = draws.data();
    uint64_t* next = offsets.data();
    for (size_t row = first; row < last; ++row) {
      const uint64_t from = rows.from(row), to = rows.to(row);
      const uint64_t tries = triesWithReplacement(to - from, rows.end(row) - from, wanted);
      uint64_t* const before = next;
      uint64_t* const full = before + wanted;
      for (const SlotDraw* const end = draw + tries; draw < end; ++draw) {
        if (next == full) continue;
        const uint64_t edge = resolve(weights.slots, *draw, from);
        if (edge < to) *next++ = edge;  // else of a row that weighs nothing, or not visible
      }
      if (next < full && to < rows.end(row)) {
        KeyedRandom random(combineKey(rows.key(row), tries));  // not the draws that were tried
        next = drawBySums(weights.weights, {from, to, to, 0}, static_cast<uint64_t>(full - next), &random,
                          &scratch->keyedEdges, next);
      }
      for (const uint64_t* edge = before; edge < next; ++edge) __builtin_prefetch(view.neighbors + *edge);
      *counts++ = static_cast<uint32_t>(next - before);
    }
    appendEdges(view, {offsets.data(), next}, wantEdgeIds, out);
  }
  out->counts.addSize(rows.size());
}

template <typename Id, typename Rows>
void drawWithoutReplacement(const CsrView<Id>& view, const WeightView& weights, const Rows& rows, int64_t fanout,
                            bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return takeAll(view, weights, rows, fanout != 0, wantEdgeIds, out, scratch);
  const uint64_t wanted = static_cast<uint64_t>(fanout);
  const uint64_t tries = wanted + wanted / 2 + 4;
  const size_t size = chunkRows(wanted);
  const auto triesOf = [&](uint64_t degree) { return degree > kScanFactor * wanted ? tries : 0; };
  std::vector<SlotDraw>& draws = scratch->slotDraws;
  std::vector<uint64_t>& offsets = scratch->positions;
  uint32_t* counts = out->counts.reserveMore(rows.size());
  rows.prefetch(0, size);
  for (size_t first = 0; first < rows.size(); first += size) {
    rows.prefetch(first + size, size);
    const size_t last = std::min(first + size, rows.size());
    draws.clear();
    uint64_t edges = 0;
    for (size_t row = first; row < last; ++row) {
      const uint64_t from = rows.from(row), degree = rows.to(row) - from;
      edges += std::min(degree, wanted);
      if (triesOf(degree) == 0) {
        const uint64_t ahead = std::min<uint64_t>(degree, kChunkEdges);
        for (uint64_t e = from; e < from + ahead; e += 8) __builtin_prefetch(view.edgeIds + e);
        for (uint64_t e = from; e < from + ahead; e += 16) __builtin_prefetch(weights.weights + e);
        continue;
      }
      KeyedRandom random(rows.key(row));
      for (uint64_t i = 0; i < tries; ++i) {
        draws.push_back(drawSlot(&random, from, rows.end(row) - from));
        __builtin_prefetch(weights.slots + draws.back().offset);
      }
    }
    offsets.resize(std::max<size_t>(offsets.size(), edges));
    std::span<const SlotDraw> left = draws;
    uint64_t* next = offsets.data();
    for (size_t row = first; row < last; ++row) {
      const uint64_t from = rows.from(row), to = rows.to(row);
      const uint64_t* const before = next;
      if (to - from <= wanted) {
        for (uint64_t e = from; e < to; ++e) {
          if (weights.weights[e] > 0) *next++ = e;
        }
      } else {
        const size_t used = static_cast<size_t>(triesOf(to - from));
        next = drawDistinct(view, weights, {from, to, to, rows.key(row)}, wanted, left.first(used),
                            [](uint64_t) { return false; }, scratch, next);
        left = left.subspan(used);
      }
      for (const uint64_t* edge = before; edge < next; ++edge) __builtin_prefetch(view.neighbors + *edge);
      *counts++ = static_cast<uint32_t>(next - before);
    }
    appendEdges(view, {offsets.data(), next}, wantEdgeIds, out);
  }
  out->counts.addSize(rows.size());
}

}  // namespace

template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, std::span<const uint32_t> rows,
                                   uint64_t hopKey, int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                                   PositionSet* scratch) {
  drawWithReplacement(view, weights, WholeRows<Id>(view, rows, hopKey), fanout, wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, std::span<const RowRange> rows,
                                   int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  drawWithReplacement(view, weights, LimitedRows(rows), fanout, wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, std::span<const uint32_t> rows, uint64_t hopKey,
                    int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  drawWithoutReplacement(view, weights, WholeRows<Id>(view, rows, hopKey), fanout, wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, std::span<const RowRange> rows, int64_t fanout,
                    bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  drawWithoutReplacement(view, weights, LimitedRows(rows), fanout, wantEdgeIds, out, scratch);
}

template <typename Id>
void sampleWeighted(const CsrView<Id>& view, const WeightView& weights, const HoledRow& row, int64_t fanout,
                    bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  const uint64_t wanted = fanout < 0 ? row.degree : static_cast<uint64_t>(fanout);
  offsets.resize(std::max<size_t>(offsets.size(), std::min(wanted, row.degree)));
  uint64_t* next = offsets.data();
  if (row.degree <= wanted) {
    for (uint64_t position = 0; position < row.degree; ++position) {
      const uint64_t edge = row.offsetOf(position);
      if (weights.weights[edge] > 0) *next++ = edge;
    }
  } else if (wanted > 0) {
    std::vector<SlotDraw>& tries = scratch->slotDraws;
    tries.clear();
    KeyedRandom random(row.key);
    for (uint64_t i = 0; row.degree > kScanFactor * wanted && i < wanted + wanted / 2 + 4; ++i) {
      tries.push_back(drawSlot(&random, row.from, row.edges()));
    }
    next = drawDistinct(view, weights, {row.from, row.to(), row.to(), row.key}, wanted, tries,
                        [&](uint64_t e) { return row.isHole(e); }, scratch, next);
  }
  const std::span<const uint64_t> drawn(offsets.data(), next);
  out->counts.push_back(static_cast<uint32_t>(drawn.size()));
  appendEdges(view, drawn, wantEdgeIds, out);
}

template void sampleWeighted<uint32_t>(const CsrView<uint32_t>&, const WeightView&, const HoledRow&, int64_t, bool,
                                       DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleWeighted<uint64_t>(const CsrView<uint64_t>&, const WeightView&, const HoledRow&, int64_t, bool,
                                       DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleWeighted<uint32_t>(const CsrView<uint32_t>&, const WeightView&, std::span<const uint32_t>, uint64_t,
                                       int64_t, bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleWeighted<uint64_t>(const CsrView<uint64_t>&, const WeightView&, std::span<const uint32_t>, uint64_t,
                                       int64_t, bool, DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleWeightedWithReplacement<uint32_t>(const CsrView<uint32_t>&, const WeightView&,
                                                      std::span<const uint32_t>, uint64_t, int64_t, bool,
                                                      DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleWeightedWithReplacement<uint64_t>(const CsrView<uint64_t>&, const WeightView&,
                                                      std::span<const uint32_t>, uint64_t, int64_t, bool,
                                                      DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleWeighted<uint32_t>(const CsrView<uint32_t>&, const WeightView&, std::span<const RowRange>, int64_t,
                                       bool, DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleWeighted<uint64_t>(const CsrView<uint64_t>&, const WeightView&, std::span<const RowRange>, int64_t,
                                       bool, DrawnNeighbors<uint64_t>*, PositionSet*);
template void sampleWeightedWithReplacement<uint32_t>(const CsrView<uint32_t>&, const WeightView&,
                                                      std::span<const RowRange>, int64_t, bool,
                                                      DrawnNeighbors<uint32_t>*, PositionSet*);
template void sampleWeightedWithReplacement<uint64_t>(const CsrView<uint64_t>&, const WeightView&,
                                                      std::span<const RowRange>, int64_t, bool,
                                                      DrawnNeighbors<uint64_t>*, PositionSet*);

}  // namespace farhop::sampler
