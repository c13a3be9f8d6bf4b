#include "rpc/bulk_slots.h"

#include <utility>

namespace farhop::rpc {

absl::StatusOr<uint32_t> BulkSlots::open(std::function<void()> complete) {
  std::lock_guard lock(mutex_);
  uint32_t number = 0;
  if (!free_.empty()) {
    number = free_.back();
    free_.pop_back();
  } else if (slots_.size() < kMaxSlots) {
    number = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    return absl::ResourceExhaustedError(absl::StrCat("all ", kMaxSlots, " slots for peers' writes are in use"));
  }
  slots_[number] = {.isOpen = true, .told = false, .expected = 0, .arrivals = 0, .complete = std::move(complete)};
  ++open_;
  return number;
}

std::function<void()> BulkSlots::closeIfComplete(uint32_t slot) {
  Slot& one = slots_[slot];
  if (!one.told || one.arrivals < one.expected) return nullptr;
  one.isOpen = false;
  --open_;
  free_.push_back(slot);
  return std::exchange(one.complete, nullptr);
}

void BulkSlots::expect(uint32_t slot, uint64_t writes) {
  std::function<void()> complete;
  {
    std::lock_guard lock(mutex_);
    if (slot >= slots_.size() || !slots_[slot].isOpen) return;
    slots_[slot].told = true;
    slots_[slot].expected = writes;
    complete = closeIfComplete(slot);
  }
  if (complete) complete();
}

void BulkSlots::retire(uint32_t slot) {
  std::function<void()> dropped;  // ends after the lock
  std::lock_guard lock(mutex_);
  if (slot >= slots_.size() || !slots_[slot].isOpen) return;
  slots_[slot].isOpen = false;
  dropped.swap(slots_[slot].complete);
  --open_;
}

void BulkSlots::arrived(uint32_t data) {
  const uint32_t slot = data >> 16;
  std::function<void()> complete;
  {
    std::lock_guard lock(mutex_);
    if (slot >= slots_.size() || !slots_[slot].isOpen) return;
    ++slots_[slot].arrivals;
    complete = closeIfComplete(slot);
  }
  if (complete) complete();
}

size_t BulkSlots::open() const {
  std::lock_guard lock(mutex_);
  return open_;
}

}  // namespace farhop::rpc
