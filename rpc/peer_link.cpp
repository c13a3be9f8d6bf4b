#include "rpc/peer_link.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"

namespace farhop::rpc {
namespace {

// The slowest network for which a long message under way is not taken for silence.
constexpr size_t kSlowestLinkBytesPerMs = 10'000;  // 10 MB/s

size_t totalBytes(const std::vector<OutArray>& arrays) {
  size_t bytes = 0;
  for (const OutArray& array : arrays) bytes += array.bytes;
  return bytes;
}

}  // namespace

PeerLink::PeerLink(std::shared_ptr<AgentCore> core, int rank, PeerName name)
    : core_(std::move(core)), rank_(rank), name_(std::move(name)) {}

void PeerLink::start(std::shared_ptr<Pipe> pipe, const Hello& hello) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    pipe_ = std::move(pipe);
    peerLimits_ = hello;
    lastHeard_ = lastWrite_ = Clock::now();
    heartbeatEvery_ = std::min<std::chrono::milliseconds>(core_->options.peerTimeout,
                                                          std::chrono::milliseconds(hello.peerTimeoutMs)) / 4;
  }
  core_->beatAtLeastEvery(heartbeatEvery_);
  readNext();
  pump();
}

absl::Status PeerLink::admissionError(size_t bytes, size_t arrays) const {
  if (!failure_.ok()) return failure_;
  if (pipe_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(describePeer(name_), " is not connected yet; call connect() first"));
  }
  if (farewellBegun_) return absl::FailedPreconditionError("call after farewell()");
  const size_t maxBytes = std::min<size_t>(core_->options.maxMessageBytes, peerLimits_.maxMessageBytes);
  if (bytes > maxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("request of ", bytes, " bytes to ", describePeer(name_),
                                                   " exceeds maxMessageBytes (", maxBytes, "); split it"));
  }
  const size_t maxArrays = std::min<size_t>(core_->options.maxArraysPerMessage, peerLimits_.maxArrays);
  if (arrays > maxArrays) {
    return absl::InvalidArgumentError(absl::StrCat("request of ", arrays, " arrays to ", describePeer(name_),
                                                   " exceeds maxArraysPerMessage (", maxArrays, ")"));
  }
  if (calls_.size() >= core_->options.maxQueuedCallsPerPeer) {
    return absl::ResourceExhaustedError(absl::StrCat(calls_.size(), " calls to ", describePeer(name_),
                                                     " are under way (maxQueuedCallsPerPeer); wait for some to end"));
  }
  return absl::OkStatus();
}

void PeerLink::call(uint16_t method, std::vector<OutArray> arrays, Deadline deadline, std::shared_ptr<ReplySink> sink,
                    Agent::Completion completion) {
  auto call = std::make_shared<Call>();
  call->method = method;
  call->bytes = totalBytes(arrays);
  call->borrowed = std::any_of(arrays.begin(), arrays.end(),
                               [](const OutArray& array) { return array.bytes > 0 && array.owner == nullptr; });
  call->arrays = std::move(arrays);
  call->deadline = deadline;
  call->sink = std::move(sink);
  {
    std::unique_lock lock(mutex_);
    absl::Status error = admissionError(call->bytes, call->arrays.size());
    if (!error.ok()) {
      lock.unlock();
      // Never inline: a caller that calls again from its completion would recurse.
      core_->timer.post([completion = std::move(completion), error] { completion(error); });
      return;
    }
    call->completion = std::move(completion);
    call->id = nextId_++;
    try {
      calls_.emplace(call->id, call);
      expiries_.emplace(deadline.at(), call->id);
      armExpiry();
      waiting_.push_back(call);
    } catch (const std::bad_alloc&) {
      calls_.erase(call->id);
      expiries_.erase({deadline.at(), call->id});
      throw;
    }
  }
  // The call is begun, so that its completion says how it ends: it is written when the link is pumped next, or expires.
  try {
    pump();
  } catch (const std::bad_alloc&) {
    FARHOP_LOG(WARNING) << "out of memory while writing to " << describePeer(name_);
  }
}

void PeerLink::answer(uint64_t id, size_t requestBytes, absl::StatusOr<std::vector<OutArray>> result) {
  Outgoing item;
  item.frame.kind = FrameKind::kReply;
  item.frame.id = id;
  item.requestBytes = requestBytes;
  std::vector<OutArray> refused;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    const size_t bytes = result.ok() ? totalBytes(*result) : 0;
    const size_t maxBytes = std::min<size_t>(core_->options.maxMessageBytes, peerLimits_.maxMessageBytes);
    const size_t maxArrays = std::min<size_t>(core_->options.maxArraysPerMessage, peerLimits_.maxArrays);
    if (result.ok() && (bytes > maxBytes || result->size() > maxArrays)) {
      refused = *std::move(result);
      result = absl::ResourceExhaustedError(absl::StrCat("the reply's ", bytes, " bytes in ", refused.size(),
                                                         " arrays exceed the limits of ", maxBytes, " bytes and ",
                                                         maxArrays, " arrays; ask for less at once"));
    }
    if (result.ok()) {
      item.arrays = *std::move(result);
      item.bytes = bytes;
    } else {
      item.frame.code = result.status().code();
      item.frame.tail = encodeStatus(result.status());
    }
    item.frame.arrays = static_cast<uint32_t>(item.arrays.size());
    replyBytes_ += item.bytes;
    queue_.push_back(std::move(item));
  }
  pump();
}

// --- writing -------------------------------------------------------------------------------------------

void PeerLink::enqueueControl(FrameKind kind, uint8_t flags) {
  Outgoing item;
  item.frame.kind = kind;
  item.frame.flags = flags;
  queue_.push_back(std::move(item));
}

void PeerLink::admitCalls() {
  const size_t maxBytes = std::min<size_t>(core_->options.maxInflightBytesPerPeer, peerLimits_.maxInflightBytes);
  while (!waiting_.empty() && inflightCalls_ < peerLimits_.maxCalls) {
    CallPointer call = waiting_.front();
    // One call may exceed the bound, alone: otherwise it could never be sent.
    if (inflightBytes_ > 0 && inflightBytes_ + call->bytes > maxBytes) break;
    waiting_.pop_front();
    call->waiting = false;
    inflightBytes_ += call->bytes;
    ++inflightCalls_;
    Outgoing item;
    item.frame.kind = FrameKind::kRequest;
    item.frame.id = call->id;
    item.frame.method = call->method;
    item.frame.arrays = static_cast<uint32_t>(call->arrays.size());
    item.arrays = std::move(call->arrays);
    item.bytes = call->bytes;
    item.call = std::move(call);
    queue_.push_back(std::move(item));
  }
}

void PeerLink::addToBatch(Outgoing item, Batch* batch) {
  if (item.call != nullptr) {
    item.call->writing = item.call->sent = true;
    item.frame.deadlineMs = static_cast<uint32_t>(item.call->deadline.remainingMs());
    ++traffic_.callsSent;
  } else if (item.frame.kind == FrameKind::kReply) {
    // Before the write begins: the peer may read the reply, and send its next request, before the write's
    // callback runs here.
    requestsBytes_ -= item.requestBytes;
    --requests_;
  }
  appendFrame(item.frame, &batch->message.metadata);
  for (OutArray& array : item.arrays) batch->message.arrays.push_back(std::move(array));
  item.arrays.clear();
  traffic_.bytesSent += item.bytes;
  batch->items.push_back(std::move(item));
}

void PeerLink::collectBatch(Batch* batch) {
  size_t bytes = 0;
  bool counts = false;
  while (!queue_.empty() && batch->items.size() < kMaxFramesPerMessage) {
    Outgoing& next = queue_.front();
    const bool fits = bytes + next.bytes <= kCoalesceBytes &&
                      batch->message.arrays.size() + next.arrays.size() <= kCoalesceArrays;
    if (!batch->items.empty() && !fits) break;
    bytes += next.bytes;
    counts = counts || next.frame.kind == FrameKind::kRequest || next.frame.kind == FrameKind::kReply;
    addToBatch(std::move(next), batch);
    queue_.pop_front();
  }
  traffic_.bytesSent += batch->message.metadata.size();
  if (counts) ++traffic_.messagesSent;
}

void PeerLink::pump() {
  auto batch = std::make_shared<Batch>();
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    if (writing_ || pipe_ == nullptr || !failure_.ok()) return;
    admitCalls();
    // "I have all my replies and will ask nothing more." What follows are answers only.
    if (farewellBegun_ && !farewellSent_ && calls_.empty()) {
      farewellSent_ = true;
      enqueueControl(FrameKind::kFarewell, 0);
    }
    if (queue_.empty()) return;
    collectBatch(batch.get());
    writing_ = true;
    lastWrite_ = Clock::now();
    pipe = pipe_;
  }
  OutMessage message = std::move(batch->message);
  pipe->write(std::move(message), [self = shared_from_this(), batch](absl::Status status) {
    self->onWritten(batch, status);
  });
}

void PeerLink::onWritten(const std::shared_ptr<Batch>& batch, const absl::Status& status) {
  Finished finished;
  std::deque<HeldRequest> released;
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    for (Outgoing& item : batch->items) {
      if (item.call != nullptr) {
        item.call->writing = false;
        finishIfFree(item.call, &finished);
      } else if (item.frame.kind == FrameKind::kReply) {
        replyBytes_ -= item.bytes;
      }
    }
    if (replyBytes_ < core_->options.maxInflightBytesPerPeer) released.swap(held_);
  }
  run(std::move(finished));
  for (HeldRequest& held : released) {
    auto shared = std::make_shared<HeldRequest>(std::move(held));
    core_->serving.post([self = shared_from_this(), shared] { self->runRequest(std::move(*shared)); });
  }
  if (!status.ok()) return fail(status, true);
  pump();
  reportProgress();
}

// --- health and farewell -------------------------------------------------------------------------------

void PeerLink::tick(Clock::time_point now, bool forgive) {
  const auto timeout = core_->options.peerTimeout;
  bool silent = false;
  {
    std::lock_guard lock(mutex_);
    if (pipe_ == nullptr || !failure_.ok()) return;
    // After the own farewell nothing may be sent: it could meet a closed pipe and reset what is under way.
    if (!farewellSent_ && !writing_ && queue_.empty() && now - lastWrite_ >= heartbeatEvery_ * 3 / 4) {
      enqueueControl(FrameKind::kHeartbeat, 0);
    }
    if (forgive) lastHeard_ = std::max(lastHeard_, now);
    const auto allowance = timeout + std::chrono::milliseconds(readingBytes_ / kSlowestLinkBytesPerMs);
    silent = !peerFarewell_ && now - lastHeard_ > allowance;
  }
  if (silent) {
    return fail(absl::UnavailableError(absl::StrCat("silent for more than ", timeout.count(), " ms")), true);
  }
  pump();
}

void PeerLink::beginFarewell() {
  {
    std::lock_guard lock(mutex_);
    farewellBegun_ = true;
  }
  pump();
}

void PeerLink::reportProgress() {
  {
    std::lock_guard lock(mutex_);
    if (!farewellBegun_) return;  // nobody waits; not worth a wake-up per message
  }
  core_->notifyProgress();
}

std::optional<absl::Status> PeerLink::farewellResult() {
  std::lock_guard lock(mutex_);
  if (left_) return absl::OkStatus();
  if (!failure_.ok()) return failure_;
  const bool quiet = calls_.empty() && requests_ == 0 && queue_.empty() && !writing_;
  if (farewellSent_ && farewellAcknowledged_ && peerFarewell_ && quiet) return absl::OkStatus();
  return std::nullopt;
}

PeerTraffic PeerLink::traffic() const {
  std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace farhop::rpc
