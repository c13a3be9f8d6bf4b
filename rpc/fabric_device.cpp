#include "rpc/fabric_device.h"

#include <poll.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <utility>

#include "base/log.h"
#include "base/socket.h"
#include "rpc/fabric_address.h"
#include "rpc/fabric_listener.h"
#include "rpc/fabric_objects.h"

namespace farhop::rpc {
namespace {

constexpr size_t kMaxPosted = 512;
constexpr size_t kCompletionsPerRead = 32;
// A queue without a descriptor is looked at again after this long, growing while nothing happens.
constexpr int kFirstPauseMicroseconds = 50;
constexpr int kLastPauseMicroseconds = 2000;

class FabricDevice : public BulkDevice {
 public:
  FabricDevice(const FabricLibrary* library, FabricInfo info) : library_(library), info_(std::move(info)) {}
  ~FabricDevice() override { close(); }

  absl::Status open();

  std::string provider() const override { return providerName(*info_); }
  std::string address() const override { return encodeFabricAddress(own_); }
  bool isOneSided() const override { return isOneSidedProvider(provider()); }
  size_t maxPosted() const override { return maxPosted_; }
  absl::StatusOr<std::string> addPeer(int peer, const std::string& address) override;
  absl::StatusOr<DeviceRegion> registerMemory(std::span<std::byte> memory, BulkAccess access) override {
    return registerFabricMemory(*library_, *info_, objects_, memory, access);
  }
  void unregisterMemory(const DeviceRegion& region) override { fi_close(&static_cast<fid_mr*>(region.handle)->fid); }
  absl::StatusOr<bool> post(const DeviceTransfer& transfer) override;
  void poll(std::vector<DeviceCompletion>* completions) override;
  void wait(int timeoutMs) override;
  void wake() override;
  absl::Status stopListening() override;
  bool dropPeer(int peer) override;
  bool unregisteringIsFinal() const override { return !isOverSockets_ && provider() != "shm"; }
  void close() override;

 private:
  // A posted transfer, found again by the context that its completions carry.
  struct Slot {
    fi_context2 context{};  // first: providers that ask for FI_CONTEXT scribble here
    uint64_t id = 0;
    int peer = -1;
    int completionsLeft = 0;  // 0: free
    absl::Status status;
  };
  // The write of no bytes that tells the peer of a transfer whose bytes are on their way.
  struct Notice {
    Slot* slot = nullptr;
    fi_addr_t peer = FI_ADDR_NOTAVAIL;
    uint64_t address = 0;
    uint64_t key = 0;
    uint32_t data = 0;
  };

  ssize_t postWrite(const DeviceTransfer& transfer, fi_addr_t peer, Slot* slot);
  void postNotices();
  void completeSlot(void* context, const absl::Status& status, std::vector<DeviceCompletion>* completions);
  bool readError(std::vector<DeviceCompletion>* completions);

  const FabricLibrary* const library_;
  const FabricInfo info_;
  FabricObjects objects_;

  FabricAddress own_;
  bool isOverSockets_ = false;
  bool splitsNotice_ = false;
  bool closesRemovedPeers_ = false;
  size_t maxPosted_ = kMaxPosted;
  FileDescriptor wakeFd_;
  bool complained_ = false;
  int pauseMicroseconds_ = kFirstPauseMicroseconds;

  std::vector<fi_addr_t> peers_;
  std::vector<Slot> slots_;
  std::vector<Slot*> freeSlots_;
  std::deque<Notice> notices_;
  std::vector<DeviceCompletion> early_;  // found outside poll()
};

absl::Status FabricDevice::open() {
  const std::string name = provider();
  isOverSockets_ = isSocketProvider(name);
  // libfabric 1.17's ofi_rxm crashes when a connection over tcp is closed while a write with completion data is
  // half received. A write without leaves no trace; one of no bytes is never half received. Both keep their order
  // on a connection.
  splitsNotice_ = name == "tcp;ofi_rxm";
  closesRemovedPeers_ = fabricClosesRemovedPeers() && name.ends_with(";ofi_rxm");
  wakeFd_ = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeFd_.valid()) return errnoStatus("eventfd", errno);
  maxPosted_ = std::clamp<size_t>(info_->tx_attr->size / 2, 1, kMaxPosted);
  slots_.resize(maxPosted_);
  for (Slot& slot : slots_) freeSlots_.push_back(&slot);
  FARHOP_ASSIGN_OR_RETURN(objects_, openFabricObjects(*library_, info_.get(), 2 * maxPosted_));
  FARHOP_ASSIGN_OR_RETURN(own_.name, endpointName(*library_, objects_));
  own_.provider = name;
  const char* bufferSize = std::getenv("FI_OFI_RXM_BUFFER_SIZE");
  own_.bufferSize = bufferSize == nullptr ? "" : bufferSize;
  own_.format = info_->addr_format;
  return absl::OkStatus();
}

absl::StatusOr<std::string> FabricDevice::addPeer(int peer, const std::string& address) {
  FARHOP_ASSIGN_OR_RETURN(const FabricAddress theirs, decodeFabricAddress(address));
  FARHOP_RETURN_IF_ERROR(checkFabricAddresses(own_, theirs));
  fi_addr_t inserted = FI_ADDR_NOTAVAIL;
  const int result = fi_av_insert(objects_.addresses.get(), theirs.name.data(), 1, &inserted, 0, nullptr);
  if (result != 1) return library_->status("fi_av_insert", result < 0 ? result : -FI_EINVAL);
  if (peers_.size() <= static_cast<size_t>(peer)) peers_.resize(static_cast<size_t>(peer) + 1, FI_ADDR_NOTAVAIL);
  peers_[static_cast<size_t>(peer)] = inserted;
  char text[256];
  size_t bytes = sizeof(text);
  return std::string(fi_av_straddr(objects_.addresses.get(), theirs.name.data(), text, &bytes));
}

ssize_t FabricDevice::postWrite(const DeviceTransfer& transfer, fi_addr_t peer, Slot* slot) {
  void* const descriptor =
      transfer.regionHandle == nullptr ? nullptr : fi_mr_desc(static_cast<fid_mr*>(transfer.regionHandle));
  if (!splitsNotice_ || transfer.bytes == 0) {
    slot->completionsLeft = 1;
    return fi_writedata(objects_.endpoint.get(), transfer.local, transfer.bytes, descriptor, transfer.data, peer,
                        transfer.remoteAddress, transfer.remoteKey, &slot->context);
  }
  slot->completionsLeft = 2;
  const ssize_t result = fi_write(objects_.endpoint.get(), transfer.local, transfer.bytes, descriptor, peer,
                                  transfer.remoteAddress, transfer.remoteKey, &slot->context);
  if (result == 0) {
    notices_.push_back({slot, peer, transfer.remoteAddress, transfer.remoteKey, transfer.data});
    postNotices();
  }
  return result;
}

absl::StatusOr<bool> FabricDevice::post(const DeviceTransfer& transfer) {
  const fi_addr_t peer = peers_[static_cast<size_t>(transfer.peer)];
  if (peer == FI_ADDR_NOTAVAIL) return absl::UnavailableError("the connection has been closed");
  if (freeSlots_.empty()) return false;
  Slot* const slot = freeSlots_.back();
  slot->id = transfer.id;
  slot->peer = transfer.peer;
  slot->status = absl::OkStatus();
  ssize_t result;
  if (transfer.isRead) {
    slot->completionsLeft = 1;
    void* const descriptor =
        transfer.regionHandle == nullptr ? nullptr : fi_mr_desc(static_cast<fid_mr*>(transfer.regionHandle));
    result = fi_read(objects_.endpoint.get(), transfer.local, transfer.bytes, descriptor, peer, transfer.remoteAddress,
                     transfer.remoteKey, &slot->context);
  } else {
    result = postWrite(transfer, peer, slot);
  }
  if (result == 0) {
    freeSlots_.pop_back();
    return true;
  }
  slot->completionsLeft = 0;
  if (result == -FI_EAGAIN) return false;
  return library_->status(transfer.isRead ? "fi_read" : "fi_write", result);
}

void FabricDevice::postNotices() {
  // In order of each peer's transfers; a peer that cannot take one now must not hold up the others.
  std::deque<Notice> left;
  for (const Notice& notice : notices_) {
    const bool isBlocked =
        std::any_of(left.begin(), left.end(), [&](const Notice& other) { return other.peer == notice.peer; });
    const ssize_t result = isBlocked ? -FI_EAGAIN
                                     : fi_writedata(objects_.endpoint.get(), nullptr, 0, nullptr, notice.data, notice.peer,
                                                    notice.address, notice.key, &notice.slot->context);
    if (result == -FI_EAGAIN) {
      left.push_back(notice);
    } else if (result != 0) {
      completeSlot(&notice.slot->context, library_->status("fi_writedata", result), &early_);
    }
  }
  notices_.swap(left);
}

void FabricDevice::completeSlot(void* context, const absl::Status& status,
                                std::vector<DeviceCompletion>* completions) {
  const auto address = reinterpret_cast<uintptr_t>(context);
  const auto first = reinterpret_cast<uintptr_t>(slots_.data());
  const bool isOurs = address >= first && address < first + slots_.size() * sizeof(Slot) &&
                      (address - first) % sizeof(Slot) == offsetof(Slot, context);
  // Errors that are about no transfer carry no context: a connection broke while a peer was writing.
  if (!isOurs) return;
  Slot& slot = slots_[(address - first) / sizeof(Slot)];
  if (slot.completionsLeft == 0) return;
  if (slot.status.ok()) slot.status = status;
  if (!status.ok()) {
    // Its notice has no use any more, unless it is posted already and has a completion of its own.
    const auto before = notices_.size();
    std::erase_if(notices_, [&](const Notice& notice) { return notice.slot == &slot; });
    slot.completionsLeft -= static_cast<int>(before - notices_.size());
  }
  if (--slot.completionsLeft > 0) return;
  completions->push_back({.isArrival = false, .id = slot.id, .data = 0, .status = slot.status});
  freeSlots_.push_back(&slot);
}

bool FabricDevice::readError(std::vector<DeviceCompletion>* completions) {
  fi_cq_err_entry entry{};
  const ssize_t result = fi_cq_readerr(objects_.queue.get(), &entry, 0);
  if (result != 1) return false;
  std::string text = library_->errorText(entry.err);
  if (entry.prov_errno != 0) {
    const char* detail = fi_cq_strerror(objects_.queue.get(), entry.prov_errno, entry.err_data, nullptr, 0);
    if (detail != nullptr && text != detail) absl::StrAppend(&text, " (", detail, ")");
  }
  completeSlot(entry.op_context, absl::UnavailableError(absl::StrCat(provider(), ": ", text)), completions);
  return true;
}

void FabricDevice::poll(std::vector<DeviceCompletion>* completions) {
  const size_t before = completions->size();
  if (!notices_.empty()) postNotices();
  fi_cq_data_entry entries[kCompletionsPerRead];
  // Bounded, so that a peer that never stops cannot keep the thread from its other work.
  for (int round = 0; round < 8; ++round) {
    const ssize_t count = fi_cq_read(objects_.queue.get(), entries, kCompletionsPerRead);
    if (count == -FI_EAVAIL) {
      if (!readError(completions)) break;
      continue;
    }
    if (count <= 0) {
      if (count != -FI_EAGAIN && !std::exchange(complained_, true)) {
        FARHOP_LOG(WARNING) << library_->status("fi_cq_read", count);
      }
      break;
    }
    for (ssize_t i = 0; i < count; ++i) {
      if ((entries[i].flags & FI_REMOTE_WRITE) != 0) {
        completions->push_back({.isArrival = true, .id = 0, .data = static_cast<uint32_t>(entries[i].data), .status = {}});
      } else {
        completeSlot(entries[i].op_context, absl::OkStatus(), completions);
      }
    }
    if (static_cast<size_t>(count) < kCompletionsPerRead) break;
  }
  for (DeviceCompletion& one : early_) completions->push_back(std::move(one));
  early_.clear();
  if (completions->size() > before) pauseMicroseconds_ = kFirstPauseMicroseconds;
}

void FabricDevice::wait(int timeoutMs) {
  if (!notices_.empty()) timeoutMs = timeoutMs < 0 ? 1 : std::min(timeoutMs, 1);
  pollfd entries[2] = {{wakeFd_.get(), POLLIN, 0}, {objects_.queueFd, POLLIN, 0}};
  if (objects_.queueFd >= 0) {
    // Refuses when something has come in since the queue was read.
    fid* waited = &objects_.queue->fid;
    if (fi_trywait(objects_.fabric.get(), &waited, 1) != FI_SUCCESS) timeoutMs = 0;
    ::poll(entries, 2, timeoutMs);
  } else {
    const int64_t limit = timeoutMs < 0 ? kLastPauseMicroseconds : int64_t{timeoutMs} * 1000;
    const int64_t pause = std::min<int64_t>(pauseMicroseconds_, limit);
    const timespec time{0, static_cast<long>(pause * 1000)};
    ::ppoll(entries, 1, &time, nullptr);
    pauseMicroseconds_ = std::min(2 * pauseMicroseconds_, kLastPauseMicroseconds);
  }
  if (entries[0].revents != 0) {
    uint64_t count;
    while (::read(wakeFd_.get(), &count, sizeof(count)) > 0) pauseMicroseconds_ = kFirstPauseMicroseconds;
  }
}

void FabricDevice::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake.
  [[maybe_unused]] const ssize_t written = ::write(wakeFd_.get(), &one, sizeof(one));
}

bool FabricDevice::dropPeer(int peer) {
  fi_addr_t& address = peers_[static_cast<size_t>(peer)];
  if (address == FI_ADDR_NOTAVAIL) return closesRemovedPeers_;
  std::vector<Slot*> unannounced;
  for (const Notice& notice : notices_) {
    if (notice.peer == address) unannounced.push_back(notice.slot);
  }
  std::erase_if(notices_, [&](const Notice& notice) { return notice.peer == address; });
  for (Slot* slot : unannounced) {
    completeSlot(&slot->context, absl::UnavailableError("the connection has been closed"), &early_);
  }
  const int result = fi_av_remove(objects_.addresses.get(), &address, 1, 0);
  address = FI_ADDR_NOTAVAIL;
  if (result != 0 || !closesRemovedPeers_) return false;
  // The connection is gone and its transfers have failed; slots whose completion got lost are free again.
  std::vector<DeviceCompletion> failed;
  poll(&failed);
  for (DeviceCompletion& one : failed) early_.push_back(std::move(one));
  for (Slot& slot : slots_) {
    if (slot.peer != peer || slot.completionsLeft == 0) continue;
    slot.completionsLeft = 0;
    freeSlots_.push_back(&slot);
  }
  return true;
}

// Others than those over sockets take connections from those alone that speak their protocol.
absl::Status FabricDevice::stopListening() {
  if (!isOverSockets_) return absl::OkStatus();
  FARHOP_ASSIGN_OR_RETURN(const int closed, closeListenersOn(own_.name));
  if (closed == 0) return absl::NotFoundError(absl::StrCat("found no port of the ", provider(), " endpoint to close"));
  return absl::OkStatus();
}

void FabricDevice::close() { objects_.endpoint.reset(); }

}  // namespace

absl::StatusOr<std::unique_ptr<BulkDevice>> makeFabricDevice(const FabricOptions& options) {
  if (options.choice == "none") return absl::UnavailableError("libfabric is switched off by FARHOP_FABRIC=none");
  FARHOP_ASSIGN_OR_RETURN(const FabricLibrary* library, loadFabricLibrary());
  FARHOP_ASSIGN_OR_RETURN(FabricInfo info, chooseFabricProvider(library, options));
  auto device = std::make_unique<FabricDevice>(library, std::move(info));
  const absl::Status opened = device->open();
  if (!opened.ok()) {
    return annotate(opened, absl::StrCat("opening a ", device->provider(), " endpoint on ", options.bindAddress));
  }
  return device;
}

absl::Status loadFabric() { return loadFabricLibrary().status(); }

absl::StatusOr<std::unique_ptr<BulkTransport>> makeFabricTransport(BulkOptions options, const FabricOptions& fabric) {
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<BulkDevice> device, makeFabricDevice(fabric));
  return makeBulkTransport(std::move(options), std::move(device));
}

}  // namespace farhop::rpc
