#include "sampler/feature_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/random.h"

namespace farhop::sampler {
namespace {

constexpr uint32_t kMissing = std::numeric_limits<uint32_t>::max();
// Lookups whose memory is asked for before the first of them is read: first all slots, then all gids.
constexpr size_t kLookupsUnderWay = 32;

}  // namespace

FeatureCache::FeatureCache(const partition::Schema& schema, const partition::PartitionBook& book,
                           std::span<const std::optional<partition::GraphShard>> shards) {
  for (int t = 0; t < static_cast<int>(schema.nodeTypes.size()); ++t) {
    tables_.push_back(makeTable(schema, t, book, shards));
  }
}

FeatureCache::Table FeatureCache::makeTable(const partition::Schema& schema, int nodeType,
                                            const partition::PartitionBook& book,
                                            std::span<const std::optional<partition::GraphShard>> shards) {
  Table table;
  const std::vector<partition::FeatureSpec>& features = schema.nodeTypes[nodeType].features;
  table.numFeatures = features.size();
  uint64_t copies = 0;
  for (const auto& shard : shards) {
    const partition::NodeCache* cache = shard ? shard->cache(nodeType) : nullptr;
    // Positions are 31 bits with room for the tag; what is beyond them is pulled as if it were not cached.
    if (cache == nullptr || copies + cache->gids.size() >= kMissing / 2) continue;
    table.parts.push_back({shard->index(), static_cast<uint32_t>(copies), cache});
    copies += cache->gids.size();
    for (const partition::FeatureSpec& feature : features) {
      const auto found = cache->features.find(feature.name);
      table.features.push_back(found == cache->features.end() ? nullptr : &found->second);
    }
  }
  const auto eachRemote = [&](const auto& visit) {
    for (const Part& part : table.parts) {
      for (uint64_t i = 0; i < part.cache->gids.size(); ++i) {
        const uint64_t gid = part.cache->gids[i];
        if (shards[static_cast<size_t>(book.partitionOf(nodeType, gid))]) continue;  // this machine's own
        visit(gid, part.first + static_cast<uint32_t>(i));
      }
    }
  };
  table.positionBits = std::bit_width(copies);
  const auto fill = [&](uint64_t expectedRows) {
    table.slots = std::vector<uint32_t>(2 * expectedRows, 0);
    table.rows = 0;
    eachRemote([&](uint64_t gid, uint32_t position) { table.insert(gid, position); });
  };
  uint64_t remote = 0;
  eachRemote([&](uint64_t, uint32_t) { ++remote; });
  fill(remote);
  // Once more, in a smaller table, where several partitions keep copies of the same rows.
  if (table.rows < remote) fill(table.rows);
  return table;
}

// Parts are few, and most machines have one.
size_t FeatureCache::Table::partOf(uint32_t position) const {
  size_t part = parts.size() - 1;
  while (position < parts[part].first) --part;
  return part;
}

uint64_t FeatureCache::Table::gidAt(uint32_t position) const {
  const Part& part = parts[partOf(position)];
  return part.cache->gids[position - part.first];
}

uint64_t FeatureCache::Table::slotOf(uint64_t hash) const {
  return static_cast<uint64_t>((static_cast<Uint128>(hash) * slots.size()) >> 64);
}

// The low bits: slotOf() uses the high ones.
uint32_t FeatureCache::Table::tagOf(uint64_t hash) const {
  return static_cast<uint32_t>(hash) << positionBits;
}

void FeatureCache::Table::insert(uint64_t gid, uint32_t position) {
  const uint64_t hash = mix64(gid);
  if (find(gid, hash) != kMissing) return;  // another partition's copy is as good
  uint64_t slot = slotOf(hash);
  while (slots[slot] != 0) slot = slot + 1 == slots.size() ? 0 : slot + 1;
  slots[slot] = tagOf(hash) | (position + 1);
  ++rows;
}

void FeatureCache::Table::prefetchGid(uint64_t hash) const {
  const uint32_t tag = tagOf(hash), positionMask = (uint32_t{1} << positionBits) - 1;
  for (uint64_t slot = slotOf(hash); slots[slot] != 0; slot = slot + 1 == slots.size() ? 0 : slot + 1) {
    if ((slots[slot] & ~positionMask) != tag) continue;
    const uint32_t position = (slots[slot] & positionMask) - 1;
    const Part& part = parts[partOf(position)];
    const partition::IdArray& gids = part.cache->gids;
    const uint32_t index = position - part.first;
    __builtin_prefetch(gids.narrow.empty() ? static_cast<const void*>(&gids.wide[index]) : &gids.narrow[index]);
    return;
  }
}

uint32_t FeatureCache::Table::find(uint64_t gid, uint64_t hash) const {
  const uint32_t tag = tagOf(hash), positionMask = (uint32_t{1} << positionBits) - 1;
  // Half of the slots are empty, so that this ends.
  for (uint64_t slot = slotOf(hash); slots[slot] != 0; slot = slot + 1 == slots.size() ? 0 : slot + 1) {
    const uint32_t entry = slots[slot];
    const uint32_t position = (entry & positionMask) - 1;
    if ((entry & ~positionMask) == tag && gidAt(position) == gid) return position;
  }
  return kMissing;
}

bool FeatureCache::has(int nodeType, uint32_t feature) const {
  if (static_cast<size_t>(nodeType) >= tables_.size()) return false;
  const Table& table = tables_[nodeType];
  if (table.rows == 0 || feature >= table.numFeatures) return false;
  for (size_t part = 0; part < table.parts.size(); ++part) {
    if (table.features[part * table.numFeatures + feature] == nullptr) return false;
  }
  return true;
}

uint64_t FeatureCache::rows(int nodeType) const {
  return static_cast<size_t>(nodeType) < tables_.size() ? tables_[nodeType].rows : 0;
}

size_t FeatureCache::privateBytes() const {
  size_t bytes = 0;
  for (const Table& table : tables_) bytes += table.slots.capacity() * sizeof(uint32_t);
  return bytes;
}

std::vector<FeatureCache::Hits> FeatureCache::noHits(int nodeType) const {
  std::vector<Hits> hits;
  for (const Part& part : tables_[nodeType].parts) hits.push_back({part.partition, {}, {}});
  return hits;
}

void FeatureCache::take(int nodeType, const Bucket& bucket, std::vector<Hits>* hits) const {
  const Table& table = tables_[nodeType];
  if (table.rows == 0) return;
  std::vector<uint32_t>&rows = *bucket.rows, &slots = *bucket.slots;
  std::array<uint64_t, kLookupsUnderWay> hashes;
  size_t left = 0;
  for (size_t begin = 0; begin < rows.size(); begin += kLookupsUnderWay) {
    const size_t count = std::min(kLookupsUnderWay, rows.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = mix64(bucket.firstGid + rows[begin + i]);
      __builtin_prefetch(&table.slots[table.slotOf(hashes[i])]);
    }
    for (size_t i = 0; i < count; ++i) table.prefetchGid(hashes[i]);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t row = rows[begin + i], slot = slots[begin + i];
      const uint32_t position = table.find(bucket.firstGid + row, hashes[i]);
      if (position == kMissing) {
        rows[left] = row;
        slots[left++] = slot;
        continue;
      }
      const size_t part = table.partOf(position);
      (*hits)[part].rows.push_back(position - table.parts[part].first);
      (*hits)[part].slots.push_back(slot);
    }
  }
  rows.resize(left);
  slots.resize(left);
}

const partition::FeatureTable& FeatureCache::table(int nodeType, uint32_t feature, int partition) const {
  const Table& table = tables_[nodeType];
  size_t part = 0;
  while (table.parts[part].partition != partition) ++part;
  return *table.features[part * table.numFeatures + feature];
}

}  // namespace farhop::sampler
