// Numbering of nodes in first-seen order: gid -> position in the batch's node list of its type.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/pod_vector.h"
#include "base/random.h"

namespace farhop::sampler {

// An open-addressing hash table that is reused from batch to batch: slots are stamped with the batch they
// belong to, so that clearing costs nothing. Not thread-safe.
class NodeNumbering {
 public:
  // Forgets everything; from now on new nodes are appended to `nodes`, which is emptied.
  void reset(PodVector<uint64_t>* nodes) {
    nodes_ = nodes;
    nodes_->clear();
    if (++stamp_ == 0) {  // after 2^32 batches the stamps start again
      slots_.assign(slots_.size(), Slot{});
      stamp_ = 1;
    }
  }

  // The node's number; a new node gets the next one.
  uint32_t number(uint64_t gid) {
    if (nodes_->size() >= limit_) grow(1);
    size_t index = mix64(gid) & mask_;
    while (slots_[index].stamp == stamp_) {
      if (slots_[index].gid == gid) return slots_[index].number;
      index = (index + 1) & mask_;
    }
    const uint32_t next = static_cast<uint32_t>(nodes_->size());
    slots_[index] = {gid, next, stamp_};
    nodes_->push_back(gid);
    return next;
  }

  // number() of gids[0 .. count), in order, into numbers[0 .. count). In chunks: first every gid's slot is found
  // and its memory asked for, then they are numbered; a table larger than the cache would cost a miss per node
  // otherwise.
  template <typename Id>
  void numberAll(const Id* gids, uint64_t count, uint32_t* numbers) {
    constexpr uint64_t kChunk = 256;
    uint32_t slotOf[kChunk];
    for (uint64_t first = 0; first < count; first += kChunk) {
      const uint64_t size = std::min(kChunk, count - first);
      while (nodes_->size() + size > limit_) grow(size);
      Slot* const slots = slots_.data();
      for (uint64_t i = 0; i < size; ++i) {
        slotOf[i] = static_cast<uint32_t>(mix64(gids[first + i]) & mask_);
        __builtin_prefetch(slots + slotOf[i], 1);
      }
      const uint64_t known = nodes_->size();
      uint64_t* const fresh = nodes_->reserveMore(size);
      uint32_t next = static_cast<uint32_t>(known);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t gid = gids[first + i];
        size_t index = slotOf[i];
        while (slots[index].stamp == stamp_ && slots[index].gid != gid) index = (index + 1) & mask_;
        if (slots[index].stamp != stamp_) {
          slots[index] = {gid, next, stamp_};
          fresh[next - known] = gid;
          ++next;
        }
        numbers[first + i] = slots[index].number;
      }
      nodes_->addSize(next - known);
    }
  }

  // All nodes by number: the list given to reset().
  const PodVector<uint64_t>& nodes() const { return *nodes_; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_->size()); }

 private:
  struct Slot {
    uint64_t gid = 0;
    uint32_t number = 0;
    uint32_t stamp = 0;
  };

  // At most half full, so that a search ends soon.
  void grow(size_t more) {
    const size_t size = std::bit_ceil(std::max<size_t>(4 * (nodes_->size() + more), 1024));
    slots_.assign(size, Slot{});
    mask_ = size - 1;
    limit_ = size / 2;
    stamp_ = 1;
    for (size_t i = 0; i < nodes_->size(); ++i) {
      size_t index = mix64((*nodes_)[i]) & mask_;
      while (slots_[index].stamp == stamp_) index = (index + 1) & mask_;
      slots_[index] = {(*nodes_)[i], static_cast<uint32_t>(i), stamp_};
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t limit_ = 0;  // nodes from which on the table has to grow
  uint32_t stamp_ = 1;
  PodVector<uint64_t>* nodes_ = nullptr;
};

}  // namespace farhop::sampler
