#include "rpc/bulk_meeting.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "rpc/byte_codec.h"

namespace farhop::rpc {
namespace {

constexpr uint8_t kMeetingVersion = 1;
constexpr size_t kMaxAddressBytes = 4096;
// Between two looks at whether the meeting has failed for another reason.
constexpr std::chrono::milliseconds kSlice{100};

}  // namespace

// Shared with the transport's callbacks.
struct BulkMeeting::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool here[2] = {false, false};  // guarded by mutex: all lower, all higher ranks have written
  int writes = 0;                 // guarded by mutex: own ones under way
  absl::Status status;            // guarded by mutex: the first own write that failed
};

BulkMeeting::BulkMeeting(BulkTransport* transport, BulkSlots* slots, int rank, int size)
    : transport_(transport), slots_(slots), rank_(rank), size_(size), state_(std::make_shared<State>()) {}

BulkMeeting::~BulkMeeting() {
  bool awaited[2];
  {
    std::lock_guard lock(state_->mutex);
    for (size_t side : {0, 1}) awaited[side] = !state_->here[side];
  }
  for (size_t side : {0, 1}) {
    if (awaited[side]) slots_->retire(own_.slots[side]);
  }
  for (int peer = 0; peer < size_ && region_ != nullptr; ++peer) transport_->revoke(region_, peer);
}

absl::StatusOr<std::unique_ptr<BulkMeeting>> BulkMeeting::make(BulkTransport* transport, BulkSlots* slots, int rank,
                                                               int size) {
  std::unique_ptr<BulkMeeting> meeting(new BulkMeeting(transport, slots, rank, size));
  meeting->state_->here[0] = meeting->state_->here[1] = true;  // nothing to retire yet
  auto memory = std::make_shared<std::vector<std::byte>>(64);
  FARHOP_ASSIGN_OR_RETURN(meeting->region_, transport->registerMemory(*memory, BulkAccess::kRemoteWrite, memory));
  meeting->own_.transport = transport->address();
  meeting->own_.region = meeting->region_->remote();
  for (size_t side : {0, 1}) {
    const int peers = side == 0 ? rank : size - 1 - rank;
    if (peers == 0) continue;
    const auto here = [state = meeting->state_, side] {
      std::lock_guard lock(state->mutex);
      state->here[side] = true;
      state->changed.notify_all();
    };
    FARHOP_ASSIGN_OR_RETURN(meeting->own_.slots[side], slots->open(here));
    meeting->state_->here[side] = false;
    slots->expect(meeting->own_.slots[side], static_cast<uint64_t>(peers));
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) FARHOP_RETURN_IF_ERROR(transport->grant(meeting->region_, peer));
  }
  return meeting;
}

std::string BulkMeeting::encode(const Door& door) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u8(kMeetingVersion);
  writer.string(door.transport);
  writer.u64(door.region.key);
  writer.u64(door.region.address);
  writer.u64(door.region.bytes);
  for (uint32_t slot : door.slots) writer.u32(slot);
  return bytes;
}

absl::StatusOr<BulkMeeting::Door> BulkMeeting::decode(const std::string& bytes) {
  ByteReader reader(bytes);
  Door door;
  const uint8_t version = reader.u8();
  door.transport = std::string(reader.string(kMaxAddressBytes));
  door.region.key = reader.u64();
  door.region.address = reader.u64();
  door.region.bytes = reader.u64();
  for (uint32_t& slot : door.slots) slot = reader.u32();
  if (!reader.ok() || version != kMeetingVersion || reader.remaining() != 0 ||
      std::any_of(std::begin(door.slots), std::end(door.slots), [](uint32_t slot) { return slot >= BulkSlots::kMaxSlots; })) {
    return absl::InvalidArgumentError("not the bulk address of a process of this version");
  }
  return door;
}

std::string BulkMeeting::address() const { return encode(own_); }

absl::Status BulkMeeting::meet(const std::vector<std::string>& addresses, Deadline deadline,
                               const std::function<absl::Status()>& failure) {
  if (addresses.size() != static_cast<size_t>(size_)) {
    return absl::InvalidArgumentError(absl::StrCat("got ", addresses.size(), " bulk addresses for a group of ", size_));
  }
  std::vector<Door> doors;
  std::vector<std::string> endpoints;
  for (size_t i = 0; i < addresses.size(); ++i) {
    absl::StatusOr<Door> door = decode(addresses[i]);
    if (!door.ok()) return annotate(door.status(), absl::StrCat("bulk address of machine ", i));
    endpoints.push_back(door->transport);
    doors.push_back(*std::move(door));
  }
  FARHOP_RETURN_IF_ERROR(transport_->connect(endpoints));
  knock(doors, rank_ + 1, size_, deadline);
  FARHOP_RETURN_IF_ERROR(await(false, deadline, failure));
  knock(doors, 0, rank_, deadline);
  return await(true, deadline, failure);
}

void BulkMeeting::knock(const std::vector<Door>& doors, int first, int end, Deadline deadline) {
  {
    std::lock_guard lock(state_->mutex);
    state_->writes += std::max(0, end - first);
  }
  for (int peer = first; peer < end; ++peer) {
    const Door& door = doors[static_cast<size_t>(peer)];
    BulkTransfer transfer;
    transfer.peer = peer;
    transfer.remote = door.region;
    transfer.data = BulkSlots::dataOf(door.slots[rank_ < peer ? 0 : 1], static_cast<uint64_t>(rank_));
    transfer.deadline = deadline;
    transport_->write(std::move(transfer), [state = state_](absl::Status status) {
      std::lock_guard lock(state->mutex);
      --state->writes;
      if (state->status.ok()) state->status = std::move(status);
      state->changed.notify_all();
    });
  }
}

// Until all of one side have written, and with the last side, until the own writes are through.
absl::Status BulkMeeting::await(bool fromHigher, Deadline deadline, const std::function<absl::Status()>& failure) {
  const size_t side = fromHigher ? 1 : 0;
  for (;;) {
    {
      std::unique_lock lock(state_->mutex);
      const auto ready = [&] {
        return !state_->status.ok() || (state_->here[side] && (!fromHigher || state_->writes == 0));
      };
      if (state_->changed.wait_until(lock, std::min(Clock::now() + kSlice, deadline.at()), ready)) return state_->status;
    }
    FARHOP_RETURN_IF_ERROR(failure());
    if (deadline.expired()) {
      return absl::DeadlineExceededError(absl::StrCat("not all machines ", fromHigher ? "above " : "below ", rank_,
                                                      " have made a bulk connection in time"));
    }
  }
}

}  // namespace farhop::rpc
