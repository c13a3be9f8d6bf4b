#include "sampler/row_holes.h"

#include "base/random.h"
#include "sampler/kernel_chunks.h"

namespace farhop::sampler {
namespace {

// Up to this many sources are compared with each neighbour; more are looked up in a hash table.
constexpr size_t kComparedSources = 8;
// Bits of the filter before that table: it stays in the first cache.
constexpr int kFilterLog2 = 15;
constexpr uint32_t kFilterBits = 1U << kFilterLog2;
// Neighbours compared at once: a fixed number, so that the compiler makes vector compares of them.
constexpr uint64_t kLanes = 16;
// Tries of a draw by weight before what is left of the row is summed up.
constexpr int kTableTries = 16;

// Edges of the row that are left and have a weight, with the sums of the weights up to each.
void sumWeights(const WeightView& weights, const HoledRow& row, std::vector<KeyedEdge>* sums) {
  sums->clear();
  double sum = 0;
  const uint64_t* hole = row.holes.data();
  const uint64_t* const lastHole = hole + row.holes.size();
  for (uint64_t e = row.from; e < row.to(); ++e) {
    if (hole != lastHole && *hole == e) {
      ++hole;
      continue;
    }
    if (!(weights.weights[e] > 0)) continue;
    sum += static_cast<double>(weights.weights[e]);
    sums->push_back({sum, e});
  }
}

}  // namespace

template <typename Id>
void findHoles(const CsrView<Id>& view, uint64_t from, uint64_t to, std::span<const uint64_t> sources,
               std::vector<uint64_t>* holes, PositionSet* scratch) {
  holes->clear();
  if (sources.size() > kComparedSources) {
    // A neighbour whose bit is not set is none of them; the others, few, are looked up.
    uint64_t bits[kFilterBits / 64] = {};
    const auto bitOf = [](Id id) { return (static_cast<uint32_t>(id) * 0x9E3779B1U) >> (32 - kFilterLog2); };
    scratch->reset(sources.size());
    for (uint64_t source : sources) {
      scratch->insert(source);
      const uint32_t bit = bitOf(static_cast<Id>(source));
      bits[bit / 64] |= uint64_t{1} << (bit % 64);
    }
    for (uint64_t e = from; e < to; ++e) {
      const uint32_t bit = bitOf(view.neighbors[e]);
      if ((bits[bit / 64] >> (bit % 64) & 1) != 0 && scratch->contains(view.neighbors[e])) holes->push_back(e);
    }
    return;
  }
  Id wanted[kComparedSources];
  size_t count = 0;
  for (uint64_t source : sources) {
    if (source == static_cast<Id>(source)) wanted[count++] = static_cast<Id>(source);
  }
  const auto check = [&](uint64_t first, uint64_t last) {
    for (uint64_t e = first; e < last; ++e) {
      if (std::find(wanted, wanted + count, view.neighbors[e]) != wanted + count) holes->push_back(e);
    }
  };
  uint64_t e = from;
  for (; e + kLanes <= to; e += kLanes) {
    Id hits[kLanes] = {};
    for (size_t s = 0; s < count; ++s) {
      for (uint64_t lane = 0; lane < kLanes; ++lane) {
        hits[lane] = static_cast<Id>(hits[lane] | static_cast<Id>(view.neighbors[e + lane] == wanted[s]));
      }
    }
    Id any = 0;
    for (uint64_t lane = 0; lane < kLanes; ++lane) any = static_cast<Id>(any | hits[lane]);
    if (any != 0) check(e, e + kLanes);
  }
  check(e, to);
}

template <typename Id>
void sampleUniform(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds,
                   DrawnNeighbors<Id>* out, PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.clear();
  drawPositions(row.key, row.degree, fanout, &offsets, scratch);
  for (uint64_t& offset : offsets) offset = row.offsetOf(offset);
  out->counts.push_back(static_cast<uint32_t>(offsets.size()));
  appendEdges(view, offsets, wantEdgeIds, out);
}

template <typename Id>
void sampleUniformWithReplacement(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds,
                                  DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return sampleUniform(view, row, fanout, wantEdgeIds, out, scratch);
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.clear();
  KeyedRandom random(row.key);
  for (int64_t i = 0; i < fanout && row.degree > 0; ++i) offsets.push_back(row.offsetOf(random.below(row.degree)));
  out->counts.push_back(static_cast<uint32_t>(offsets.size()));
  appendEdges(view, offsets, wantEdgeIds, out);
}

template <typename Id>
void sampleWeightedWithReplacement(const CsrView<Id>& view, const WeightView& weights, const HoledRow& row,
                                   int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out, PositionSet* scratch) {
  if (fanout <= 0) return sampleWeighted(view, weights, row, fanout, wantEdgeIds, out, scratch);
  std::vector<uint64_t>& offsets = scratch->positions;
  std::vector<KeyedEdge>& sums = scratch->keyedEdges;
  offsets.clear();
  bool summed = false;
  KeyedRandom random(row.key);
  for (int64_t i = 0; i < fanout && row.degree > 0; ++i) {
    // A draw from the whole row's table that falls on an edge that is left is one from what is left, however many fall
    // on holes before. Where nearly all weight is in holes, sums take over.
    uint64_t edge = kNoEdge;
    for (int tries = summed ? 0 : kTableTries; tries > 0 && edge == kNoEdge; --tries) {
      edge = resolve(weights.slots, drawSlot(&random, row.from, row.edges()), row.from);
      if (edge == kNoEdge) break;  // no weight in the whole row
      if (row.isHole(edge)) edge = kNoEdge;
    }
    if (edge == kNoEdge) {
      if (!summed) sumWeights(weights, row, &sums);
      summed = true;
      if (sums.empty()) break;
      const KeyedEdge drawn{random.uniform() * sums.back().key, kNoEdge};
      const auto above = std::upper_bound(sums.begin(), sums.end(), drawn);
      edge = above == sums.end() ? sums.back().offset : above->offset;
    }
    offsets.push_back(edge);
  }
  out->counts.push_back(static_cast<uint32_t>(offsets.size()));
  appendEdges(view, offsets, wantEdgeIds, out);
}

template <typename Id>
void sampleLast(const CsrView<Id>& view, const HoledRow& row, int64_t fanout, bool wantEdgeIds, DrawnNeighbors<Id>* out,
                PositionSet* scratch) {
  std::vector<uint64_t>& offsets = scratch->positions;
  offsets.clear();
  const uint64_t count = fanout < 0 ? row.degree : std::min(row.degree, static_cast<uint64_t>(fanout));
  for (uint64_t position = row.degree - count; position < row.degree; ++position) {
    offsets.push_back(row.offsetOf(position));
  }
  out->counts.push_back(static_cast<uint32_t>(count));
  appendEdges(view, offsets, wantEdgeIds, out);
}

#define FARHOP_FOR_ID(Id)                                                                                              \
  template void findHoles<Id>(const CsrView<Id>&, uint64_t, uint64_t, std::span<const uint64_t>,                       \
                              std::vector<uint64_t>*, PositionSet*);                                                   \
  template void sampleLast<Id>(const CsrView<Id>&, const HoledRow&, int64_t, bool, DrawnNeighbors<Id>*, PositionSet*);  \
  template void sampleUniform<Id>(const CsrView<Id>&, const HoledRow&, int64_t, bool, DrawnNeighbors<Id>*,             \
                                  PositionSet*);                                                                       \
  template void sampleUniformWithReplacement<Id>(const CsrView<Id>&, const HoledRow&, int64_t, bool,                   \
                                                 DrawnNeighbors<Id>*, PositionSet*);                                   \
  template void sampleWeightedWithReplacement<Id>(const CsrView<Id>&, const WeightView&, const HoledRow&, int64_t,     \
                                                  bool, DrawnNeighbors<Id>*, PositionSet*);
FARHOP_FOR_ID(uint32_t)
FARHOP_FOR_ID(uint64_t)
#undef FARHOP_FOR_ID

}  // namespace farhop::sampler
