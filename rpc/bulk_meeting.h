// Makes a group's bulk connections before they are needed: each process writes to each other one and is written to.
//
// A transport connects to a peer with the first transfer. A group that has met knows that every path works in both
// directions, and may then close its ports (BulkTransport::stopListening()). Lower ranks write first, so that two
// endpoints do not connect to each other at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "rpc/bulk_slots.h"
#include "rpc/bulk_transport.h"

namespace farhop::rpc {

class BulkMeeting {
 public:
  // `slots` counts the transport's arrivals. Both must outlive it; the transport is not connected yet.
  static absl::StatusOr<std::unique_ptr<BulkMeeting>> make(BulkTransport* transport, BulkSlots* slots, int rank, int size);
  ~BulkMeeting();
  BulkMeeting(const BulkMeeting&) = delete;
  BulkMeeting& operator=(const BulkMeeting&) = delete;

  // What the others must know, the transport's own address included.
  std::string address() const;

  // Connects the transport and waits until all have met. `addresses` in rank order, address() of each. Errors as of
  // BulkTransport::connect() and write(), DeadlineExceeded saying how many have not written, or what `failure` returns,
  // which is asked every now and then. Once.
  absl::Status meet(const std::vector<std::string>& addresses, Deadline deadline, const std::function<absl::Status()>& failure);

 private:
  struct State;
  // Where others write to: nothing but zero bytes.
  struct Door {
    std::string transport;
    RemoteRegion region;
    uint32_t slots[2] = {0, 0};  // for writes of lower ranks, of higher ranks
  };
  static std::string encode(const Door& door);
  static absl::StatusOr<Door> decode(const std::string& bytes);

  BulkMeeting(BulkTransport* transport, BulkSlots* slots, int rank, int size);
  void knock(const std::vector<Door>& doors, int first, int end, Deadline deadline);
  absl::Status await(bool fromHigher, Deadline deadline, const std::function<absl::Status()>& failure);

  BulkTransport* const transport_;
  BulkSlots* const slots_;
  const int rank_;
  const int size_;
  Door own_;
  std::shared_ptr<BulkRegion> region_;
  const std::shared_ptr<State> state_;
};

}  // namespace farhop::rpc
