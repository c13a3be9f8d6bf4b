// The reading half of PeerLink: messages in, requests to the serving executor, replies to their calls.
#include <algorithm>
#include <new>
#include <utility>

#include "rpc/peer_link.h"

namespace farhop::rpc {

void PeerLink::readNext() {
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    pipe = pipe_;
  }
  if (pipe == nullptr) return;
  pipe->readDescriptor([self = shared_from_this()](absl::StatusOr<MessageDescriptor> descriptor) {
    self->onDescriptor(std::move(descriptor));
  });
}

void PeerLink::onDescriptor(absl::StatusOr<MessageDescriptor> descriptor) {
  if (!descriptor.ok()) return fail(descriptor.status(), true);
  absl::StatusOr<std::vector<Frame>> frames = parseFrames(descriptor->metadata, descriptor->arraySizes, core_->limits);
  if (!frames.ok()) return fail(frames.status(), true);

  size_t messageBytes = 0;
  for (size_t bytes : descriptor->arraySizes) messageBytes += bytes;
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    pipe = pipe_;
    lastHeard_ = Clock::now();
    readingBytes_ = messageBytes;
    traffic_.bytesReceived += messageBytes + descriptor->metadata.size();
  }
  if (pipe == nullptr) return;

  auto incoming = std::make_shared<std::vector<Incoming>>();
  std::vector<void*> into;
  into.reserve(descriptor->arraySizes.size());
  std::span<const size_t> sizes(descriptor->arraySizes);
  absl::Status violation;
  for (Frame& frame : *frames) {
    const size_t arrays = frame.arrays;
    Incoming& next = incoming->emplace_back();
    try {
      violation = prepare(std::move(frame), sizes.first(arrays), &next, &into);
    } catch (const std::bad_alloc&) {
      violation = absl::ResourceExhaustedError(absl::StrCat("out of memory for a message of ", messageBytes, " bytes"));
    }
    if (!violation.ok()) break;
    sizes = sizes.subspan(arrays);
  }
  if (!violation.ok()) {
    // No read was started, so what was prepared for one is free again.
    fail(violation, true);
    return onRead(std::move(*incoming), violation);
  }
  pipe->read(std::move(into), [self = shared_from_this(), incoming](absl::Status status) {
    self->onRead(std::move(*incoming), status);
  });
}

absl::Status PeerLink::prepare(Frame frame, std::span<const size_t> sizes, Incoming* incoming,
                               std::vector<void*>* into) {
  incoming->frame = std::move(frame);
  for (size_t bytes : sizes) incoming->bytes += bytes;
  switch (incoming->frame.kind) {
    case FrameKind::kRequest: return prepareRequest(sizes, incoming, into);
    case FrameKind::kReply: return prepareReply(sizes, incoming, into);
    case FrameKind::kHello: return absl::InvalidArgumentError("malformed message: a second hello");
    case FrameKind::kHeartbeat:
    case FrameKind::kFarewell: break;
  }
  return absl::OkStatus();
}

absl::Status PeerLink::prepareRequest(std::span<const size_t> sizes, Incoming* incoming, std::vector<void*>* into) {
  {
    std::lock_guard lock(mutex_);
    if (peerFarewell_) return absl::InvalidArgumentError("malformed message: a request after the farewell");
    // The sender keeps to the bounds of our hello, so this is a broken or foreign peer.
    const size_t maxBytes = core_->options.maxInflightBytesPerPeer;
    const bool tooMany = requests_ >= core_->options.maxQueuedCallsPerPeer ||
                         (requestsBytes_ > 0 && requestsBytes_ + incoming->bytes > maxBytes);
    if (tooMany) return absl::ResourceExhaustedError("it sent more requests than this process accepts at once");
    requestsBytes_ += incoming->bytes;
    ++requests_;
  }
  for (size_t bytes : sizes) {
    incoming->arrays.push_back(Bytes::allocate(bytes));
    into->push_back(incoming->arrays.back().data());
  }
  return absl::OkStatus();
}

absl::Status PeerLink::prepareReply(std::span<const size_t> sizes, Incoming* incoming, std::vector<void*>* into) {
  std::shared_ptr<ReplySink> sink;
  bool wanted = false;
  {
    std::lock_guard lock(mutex_);
    auto found = calls_.find(incoming->frame.id);
    if (found == calls_.end() || !found->second->sent || found->second->reading) {
      // A failed link knows no calls any more; its pipe is closing.
      if (!failure_.ok()) return failure_;
      return absl::InvalidArgumentError(absl::StrCat("malformed message: a reply to no request (", incoming->frame.id, ")"));
    }
    incoming->call = found->second;
    wanted = !incoming->call->outcome.has_value();
    if (wanted) {
      incoming->call->reading = true;  // from here on the completion waits for onRead()
      sink = incoming->call->sink;
    }
  }
  incoming->status = decodeStatus(incoming->frame.code, incoming->frame.tail);
  if (wanted && incoming->status.ok() && !sizes.empty()) {
    absl::StatusOr<std::vector<void*>> addresses =
        sink != nullptr ? sink->allocate(sizes)
                        : absl::InvalidArgumentError(absl::StrCat("the reply carries ", sizes.size(),
                                                                  " arrays, but the call named no sink"));
    if (addresses.ok() && addresses->size() != sizes.size()) {
      addresses = absl::InternalError("the sink gave a wrong number of addresses");
    }
    if (addresses.ok()) {
      into->insert(into->end(), addresses->begin(), addresses->end());
      return absl::OkStatus();
    }
    incoming->status = addresses.status();
  }
  // Nobody wants these bytes; one scratch array takes them all, one after the other.
  if (!sizes.empty()) {
    incoming->arrays.push_back(Bytes::allocate(*std::max_element(sizes.begin(), sizes.end())));
    into->insert(into->end(), sizes.size(), incoming->arrays.back().data());
  }
  return absl::OkStatus();
}

void PeerLink::onRead(std::vector<Incoming> incoming, const absl::Status& status) {
  Finished finished;
  bool alive = false;
  {
    std::lock_guard lock(mutex_);
    lastHeard_ = Clock::now();
    readingBytes_ = 0;
    for (Incoming& item : incoming) {
      if (item.call == nullptr) continue;
      item.call->reading = false;
      if (status.ok()) {
        forget(item.call);
        settle(item.call, item.status, &finished);
      }
      finishIfFree(item.call, &finished);
    }
    for (const Incoming& item : incoming) {
      if (!status.ok() || item.frame.kind != FrameKind::kFarewell) continue;
      if ((item.frame.flags & kFlagAcknowledge) != 0) {
        farewellAcknowledged_ = true;
      } else {
        peerFarewell_ = true;
        enqueueControl(FrameKind::kFarewell, kFlagAcknowledge);
      }
    }
    alive = status.ok() && failure_.ok();
  }
  run(std::move(finished));
  if (!status.ok()) return fail(status, true);
  if (!alive) return;
  for (Incoming& item : incoming) {
    if (item.frame.kind == FrameKind::kRequest) serve(std::move(item));
  }
  pump();
  reportProgress();
  readNext();
}

void PeerLink::serve(Incoming incoming) {
  auto held = std::make_shared<HeldRequest>();
  held->id = incoming.frame.id;
  held->bytes = incoming.bytes;
  held->request.peer = rank_;
  held->request.method = incoming.frame.method;
  held->request.arrays = std::move(incoming.arrays);
  held->request.deadline = Deadline::after(std::chrono::milliseconds(incoming.frame.deadlineMs));
  core_->serving.post([self = shared_from_this(), held] { self->runRequest(std::move(*held)); });
}

void PeerLink::runRequest(HeldRequest held) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    // Replies that the peer does not take yet hold back further ones; reading goes on, so nothing deadlocks.
    if (replyBytes_ >= core_->options.maxInflightBytesPerPeer) {
      held_.push_back(std::move(held));
      return;
    }
  }
  auto impl = std::make_shared<Responder::Impl>();
  impl->link = weak_from_this();
  impl->id = held.id;
  impl->requestBytes = held.bytes;
  if (held.request.deadline.expired()) {
    return impl->answer(absl::DeadlineExceededError("the request's deadline passed before it was served"));
  }
  const std::shared_ptr<const Handler> handler = core_->handler(held.request.method);
  if (handler == nullptr) {
    return impl->answer(absl::UnimplementedError(absl::StrCat("method ", held.request.method, " is not served by this process")));
  }
  (*handler)(std::move(held.request), Responder(std::move(impl)));
}

}  // namespace farhop::rpc
