#include "rpc/bulk_transport.h"

#include <algorithm>
#include <utility>

#include "rpc/bulk_engine.h"

namespace farhop::rpc {

BulkEngine::BulkEngine(BulkOptions options, std::unique_ptr<BulkDevice> device)
    : options_(std::move(options)),
      device_(std::move(device)),
      address_(device_->address()),
      peers_(static_cast<size_t>(options_.size)),
      regions_(std::make_shared<BulkRegions>(
          device_.get(), BulkRegions::Limits{options_.maxRegisteredBytes, options_.maxRegions, options_.maxIdleBytes,
                                             options_.maxIdleRegions})) {
  const size_t others = static_cast<size_t>(std::max(1, options_.size - 1));
  maxPerPeer_ = std::clamp<size_t>(device_->maxPosted() / others, 1, options_.maxInFlightPerPeer);
  thread_ = std::thread([this] { run(); });
}

absl::Status BulkEngine::connect(const std::vector<std::string>& addresses) {
  if (addresses.size() != peers_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", addresses.size(), " bulk addresses for a group of ", peers_.size()));
  }
  std::lock_guard lock(mutex_);
  if (stopping_) return closeReason_;
  if (connected_) return absl::FailedPreconditionError("the bulk transport is connected already");
  std::vector<PeerName> names = options_.peers;
  names.resize(peers_.size());
  for (int i = 0; i < options_.size; ++i) {
    if (i == options_.rank) continue;
    // Nobody else touches the device's peers before connected_ is set.
    auto text = device_->addPeer(i, addresses[static_cast<size_t>(i)]);
    if (!text.ok()) {
      return withPeer(annotate(text.status(), absl::StrCat("bulk address of ", describePeer(names[static_cast<size_t>(i)]))),
                      names[static_cast<size_t>(i)]);
    }
    names[static_cast<size_t>(i)].address = *text;
  }
  names_ = std::move(names);
  connected_ = true;
  return absl::OkStatus();
}

PeerName BulkEngine::peerName(int peer) const {
  std::lock_guard lock(mutex_);
  if (static_cast<size_t>(peer) < names_.size()) return names_[static_cast<size_t>(peer)];
  return {peer, -1, ""};
}

absl::Status BulkEngine::named(const absl::Status& status, int peer, const Transfer& transfer) const {
  const PeerName name = peerName(peer);
  return withPeer(annotate(status, absl::StrCat(transfer.isRead ? "reading " : "writing ", transfer.what.bytes,
                                                transfer.isRead ? " bytes from " : " bytes to ", describePeer(name))),
                  name);
}

absl::Status BulkEngine::check(const BulkTransfer& transfer) const {
  if (transfer.peer < 0 || transfer.peer >= options_.size || transfer.peer == options_.rank) {
    return absl::InvalidArgumentError(absl::StrCat("no peer ", transfer.peer, " in a group of ", options_.size));
  }
  if (transfer.bytes > options_.maxTransferBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a transfer of ", transfer.bytes, " bytes is longer than the limit of ",
                                                   options_.maxTransferBytes, "; split it"));
  }
  const size_t localBytes = transfer.local == nullptr ? 0 : transfer.local->memory().size();
  if (transfer.localOffset > localBytes || transfer.bytes > localBytes - transfer.localOffset) {
    return absl::InvalidArgumentError(absl::StrCat("bytes ", transfer.localOffset, " to ",
                                                   transfer.localOffset + transfer.bytes,
                                                   " lie outside the own region of ", localBytes));
  }
  if (transfer.remoteOffset > transfer.remote.bytes || transfer.bytes > transfer.remote.bytes - transfer.remoteOffset) {
    return absl::InvalidArgumentError(absl::StrCat("bytes ", transfer.remoteOffset, " to ",
                                                   transfer.remoteOffset + transfer.bytes,
                                                   " lie outside the peer's region of ", transfer.remote.bytes));
  }
  return absl::OkStatus();
}

void BulkEngine::submit(BulkTransfer transfer, bool isRead, Done done) {
  absl::Status status = check(transfer);
  BulkRegions::Registration* registration = nullptr;
  if (status.ok() && transfer.local != nullptr) {
    auto begun = regions_->beginTransfer(transfer.local, isRead ? BulkAccess::kTarget : BulkAccess::kSource);
    if (begun.ok()) {
      registration = *begun;
    } else {
      status = begun.status();
    }
  }
  if (status.ok()) {
    const int number = transfer.peer;
    std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<size_t>(number)];
    if (stopping_) {
      status = closeReason_;
    } else if (!connected_) {
      status = absl::FailedPreconditionError("the bulk transport is not connected");
    } else if (!peer.lost.ok()) {
      status = peer.lost;
    } else if (peer.inLine >= options_.maxQueuedPerPeer) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(peer.inLine, " transfers wait for ", describePeer(names_[static_cast<size_t>(number)])));
    } else {
      ++peer.inLine;
      peer.submitted.push_back({std::move(transfer), isRead, registration, std::move(done)});
    }
  }
  if (status.ok()) {
    wakeThread();
    return;
  }
  if (registration != nullptr) regions_->endTransfer(registration);
  done(status);
}

absl::Status BulkEngine::grant(const std::shared_ptr<BulkRegion>& region, int peer) {
  {
    std::lock_guard lock(mutex_);
    if (peer < 0 || peer >= options_.size) return absl::InvalidArgumentError(absl::StrCat("no peer ", peer));
    const absl::Status& lost = peers_[static_cast<size_t>(peer)].lost;
    if (!lost.ok()) return lost;
  }
  return regions_->grant(region, peer);
}

void BulkEngine::failPeer(int peer, absl::Status reason) {
  if (reason.ok()) reason = absl::UnavailableError("the peer was given up");
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || peer < 0 || peer >= options_.size || peer == options_.rank) return;
    Peer& one = peers_[static_cast<size_t>(peer)];
    if (!one.lost.ok()) return;
    one.lost = std::move(reason);
    one.dropRequested = connected_;
  }
  wakeThread();
}

void BulkEngine::stopListening(Done done) {
  absl::Status closed;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) {
      closed = closeReason_;
    } else {
      listeningEnds_.push_back(std::move(done));
    }
  }
  if (closed.ok()) {
    wakeThread();
  } else {
    done(closed);
  }
}

void BulkEngine::close(absl::Status reason) {
  if (reason.ok()) reason = absl::CancelledError("the bulk transport was closed");
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) closeReason_ = std::move(reason);
    stopping_ = true;
  }
  device_->wake();
  std::lock_guard lock(closeMutex_);
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::unique_ptr<BulkTransport>> makeBulkTransport(BulkOptions options,
                                                                 std::unique_ptr<BulkDevice> device) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size ||
      options.peers.size() != static_cast<size_t>(options.size)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of ", options.size, " with ",
                                                   options.peers.size(), " peers is no group"));
  }
  return std::make_unique<BulkEngine>(std::move(options), std::move(device));
}

}  // namespace farhop::rpc
