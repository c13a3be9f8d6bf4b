// Counts the writes that peers make into this process's memory, by receive slot.
//
// A slot stands for one piece of work of one peer, whose writes carry the slot's number in the upper half of their 32
// bits (the lower half numbers the writes, for those who look at traffic). Writes overtake each other, and the number
// that is to come is known only when the peer tells it, so a slot is complete when both are in: the number, and as many
// arrivals.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace farhop::rpc {

// Thread-safe.
class BulkSlots {
 public:
  static constexpr uint32_t kMaxSlots = 1 << 16;
  static uint32_t dataOf(uint32_t slot, uint64_t write) { return (slot << 16) | static_cast<uint32_t>(write & 0xFFFF); }

  // A free slot. `complete` runs once, on the thread of the last arrival or of expect(), with the slot free again; it
  // may only count and post. ResourceExhausted when all are in use.
  absl::StatusOr<uint32_t> open(std::function<void()> complete);
  // How many writes the peer has made. Once per slot.
  void expect(uint32_t slot, uint64_t writes);
  // Gives up waiting. The slot is not used again: what may still come for it would be counted for somebody else.
  void retire(uint32_t slot);
  // For BulkTransport::onArrival(). Numbers of slots that are not open are ignored.
  void arrived(uint32_t data);

  size_t open() const;

 private:
  struct Slot {
    bool isOpen = false;
    bool told = false;
    uint64_t expected = 0;
    uint64_t arrivals = 0;
    std::function<void()> complete;
  };
  // Under the mutex: what to run after it, when the slot is complete.
  std::function<void()> closeIfComplete(uint32_t slot);

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;      // guarded by mutex_
  std::vector<uint32_t> free_;   // guarded by mutex_
  size_t open_ = 0;              // guarded by mutex_
};

}  // namespace farhop::rpc
