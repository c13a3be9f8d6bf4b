#include "rpc/handshake.h"

#include <algorithm>
#include <utility>

#include "rpc/byte_codec.h"
#include "rpc/stages.h"

namespace farhop::rpc {
namespace {

// How long a failed connect() stays so that a rejection reaches the other side.
constexpr std::chrono::milliseconds kRejectionLinger{500};
constexpr int kMaxRetryPauseMs = 200;

Frame helloFrame(const AgentOptions& options, uint8_t flags) {
  Frame frame;
  frame.kind = FrameKind::kHello;
  frame.flags = flags;
  frame.tail = encodeHello(ownHello(options));
  return frame;
}

OutMessage oneFrame(const Frame& frame) {
  OutMessage message;
  appendFrame(frame, &message.metadata);
  return message;
}

// The only frame of a hello's message.
absl::StatusOr<Frame> helloOf(const absl::StatusOr<MessageDescriptor>& descriptor) {
  if (!descriptor.ok()) return descriptor.status();
  FARHOP_ASSIGN_OR_RETURN(std::vector<Frame> frames,
                          parseFrames(descriptor->metadata, descriptor->arraySizes, WireLimits{}));
  if (frames.size() != 1 || frames[0].kind != FrameKind::kHello) {
    return absl::InvalidArgumentError("malformed message: not a hello");
  }
  return std::move(frames[0]);
}

}  // namespace

Hello ownHello(const AgentOptions& options) {
  Hello hello;
  hello.jobId = options.jobId;
  hello.token = options.token;
  hello.rank = options.rank;
  hello.size = options.size;
  hello.maxMessageBytes = options.maxMessageBytes;
  hello.maxArrays = static_cast<uint32_t>(options.maxArraysPerMessage);
  hello.maxInflightBytes = options.maxInflightBytesPerPeer;
  hello.maxCalls = static_cast<uint32_t>(options.maxQueuedCallsPerPeer);
  hello.peerTimeoutMs = static_cast<uint32_t>(options.peerTimeout.count());
  return hello;
}

absl::Status checkHello(const AgentOptions& options, const Hello& hello) {
  if (hello.jobId != options.jobId) {
    return absl::PermissionDeniedError(
        absl::StrCat("it belongs to job '", hello.jobId, "', the other side to job '", options.jobId, "'"));
  }
  if (!equalInConstantTime(hello.token, options.token)) {
    return absl::PermissionDeniedError(absl::StrCat("its token is not that of job '", options.jobId, "'"));
  }
  if (hello.size != options.size) {
    return absl::FailedPreconditionError(
        absl::StrCat("its group has ", hello.size, " members, the other side's ", options.size));
  }
  if (hello.maxMessageBytes == 0 || hello.maxArrays == 0 || hello.maxCalls == 0 ||
      hello.peerTimeoutMs < kMinPeerTimeout.count()) {
    return absl::FailedPreconditionError("it accepts no messages (a limit is 0, or its peerTimeout too short)");
  }
  return absl::OkStatus();
}

Handshakes::Handshakes(std::shared_ptr<AgentCore> core, Transport* transport,
                       std::vector<std::shared_ptr<PeerLink>> links, std::vector<std::string> addresses)
    : core_(std::move(core)),
      transport_(transport),
      links_(std::move(links)),
      addresses_(std::move(addresses)),
      refusals_(absl::StrCat("the agent on ", addresses_[static_cast<size_t>(core_->options.rank)])),
      peers_(links_.size()) {
  peers_[static_cast<size_t>(core_->options.rank)].state = State::kUp;
}

absl::Status Handshakes::run(Deadline deadline) {
  if (core_->options.rank + 1 < core_->options.size) acceptNext();
  absl::Status result;
  std::vector<std::weak_ptr<Pipe>> pending;
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      result = failure_;
      const bool allUp =
          std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.state == State::kUp; });
      if (!result.ok() || allUp) break;
      if (deadline.expired()) {
        result = missing();
        break;
      }
      const std::vector<int> ranks = ranksToDial();
      if (!ranks.empty()) {
        lock.unlock();
        for (int rank : ranks) dial(rank);
        lock.lock();
        continue;
      }
      // Wakes by itself now and then for retries whose pause is over.
      changed_.wait_until(lock, std::min(deadline.at(), Clock::now() + std::chrono::milliseconds(10)));
    }
    changed_.wait_until(lock, Clock::now() + kRejectionLinger, [this] { return rejecting_ == 0; });
    ended_ = true;
    pending.swap(pending_);
  }
  for (const std::weak_ptr<Pipe>& weak : pending) {
    if (auto pipe = weak.lock()) pipe->close();
  }
  return result;
}

void Handshakes::cancel(absl::Status reason) {
  {
    std::lock_guard lock(mutex_);
    rejecting_ = 0;
  }
  fatal(std::move(reason));
}

void Handshakes::fatal(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  changed_.notify_all();
}

absl::Status Handshakes::missing() const {
  std::string text = "connecting the group timed out:";
  PeerName first;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].state == State::kUp) continue;
    const bool dials = static_cast<int>(rank) > core_->options.rank;
    absl::StrAppend(&text, first.machine < 0 ? " " : "; ", describePeer(links_[rank]->name()),
                    dials ? " has not dialled this process" : " could not be reached");
    if (!peers_[rank].lastError.ok()) absl::StrAppend(&text, " (", peers_[rank].lastError.message(), ")");
    if (first.machine < 0) first = links_[rank]->name();
  }
  return withPeer(absl::DeadlineExceededError(text), first);
}

void Handshakes::up(int rank, const std::shared_ptr<Pipe>& pipe, const Hello& hello) {
  // Before others hear of it: whoever is connected may call.
  links_[static_cast<size_t>(rank)]->start(pipe, hello);
  std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.state == State::kDialling) --dialling_;
  peer.state = State::kUp;
  std::erase_if(pending_, [&](const std::weak_ptr<Pipe>& weak) { return weak.expired() || weak.lock() == pipe; });
  changed_.notify_all();
}

// --- dialling ------------------------------------------------------------------------------------------

std::vector<int> Handshakes::ranksToDial() {
  std::vector<int> ranks;
  const auto now = Clock::now();
  for (int rank = 0; rank < core_->options.rank && dialling_ < core_->options.maxConnectsUnderWay; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.state != State::kIdle || peer.retryAt > now) continue;
    peer.state = State::kDialling;
    ++dialling_;
    ranks.push_back(rank);
  }
  return ranks;
}

void Handshakes::dial(int rank) {
  absl::StatusOr<std::shared_ptr<Pipe>> connected = transport_->connect(addresses_[static_cast<size_t>(rank)]);
  if (!connected.ok()) {
    const absl::Status status = withPeer(connected.status(), links_[static_cast<size_t>(rank)]->name());
    return absl::IsUnavailable(status) ? dialFailed(rank, nullptr, status) : fatal(status);
  }
  const std::shared_ptr<Pipe> pipe = *std::move(connected);
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(pipe);
  }
  reachStage("agent/dial");
  // A failed write shows as a failed read, too.
  pipe->write(oneFrame(helloFrame(core_->options, 0)), [pipe](const absl::Status&) {});
  pipe->readDescriptor([self = shared_from_this(), rank, pipe](absl::StatusOr<MessageDescriptor> descriptor) {
    self->onAnswer(rank, pipe, std::move(descriptor));
  });
}

void Handshakes::dialFailed(int rank, const std::shared_ptr<Pipe>& pipe, absl::Status status) {
  if (pipe != nullptr) pipe->close();
  std::lock_guard lock(mutex_);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.state == State::kDialling) --dialling_;
  peer.state = State::kIdle;
  peer.lastError = std::move(status);
  peer.retryAt = Clock::now() + std::chrono::milliseconds(peer.pauseMs);
  peer.pauseMs = std::min(peer.pauseMs * 2, kMaxRetryPauseMs);
  changed_.notify_all();
}

void Handshakes::onAnswer(int rank, const std::shared_ptr<Pipe>& pipe, absl::StatusOr<MessageDescriptor> descriptor) {
  if (!descriptor.ok()) return dialFailed(rank, pipe, descriptor.status());
  const PeerName& name = links_[static_cast<size_t>(rank)]->name();
  absl::StatusOr<Frame> frame = helloOf(descriptor);
  absl::StatusOr<Hello> hello = frame.ok() ? decodeHello(frame->tail) : frame.status();
  absl::Status status = hello.status();
  if (frame.ok() && frame->flags == kFlagRejected) {
    status = decodeStatus(frame->code, frame->tail);
    status = absl::Status(status.code(), absl::StrCat(describePeer(name), " refused this process: ", status.message()));
  } else if (frame.ok() && hello.ok()) {
    status = checkHello(core_->options, *hello);
    if (status.ok() && (frame->flags != kFlagWelcome || hello->rank != rank)) {
      status = absl::FailedPreconditionError(absl::StrCat("rank ", hello->rank, " answered instead of rank ", rank));
    }
    status = annotate(status, describePeer(name));
  } else {
    status = annotate(status, describePeer(name));
  }
  if (!status.ok()) {
    fatal(withPeer(status, name));
    return pipe->close();
  }
  pipe->read({}, [self = shared_from_this(), rank, pipe, hello = *hello](const absl::Status& read) {
    read.ok() ? self->up(rank, pipe, hello) : self->dialFailed(rank, pipe, read);
  });
}

// --- being dialled -------------------------------------------------------------------------------------

void Handshakes::acceptNext() {
  transport_->accept([self = shared_from_this()](absl::StatusOr<std::shared_ptr<Pipe>> pipe) {
    if (!pipe.ok()) {
      bool ended;
      {
        std::lock_guard lock(self->mutex_);
        ended = self->ended_;
      }
      if (!ended) {
        self->fatal(annotate(pipe.status(), "the listener failed, probably because a stranger connected to it while it "
                                            "was open, such as a port scan; start the job again"));
      }
      return;
    }
    self->answer(*pipe);
    std::unique_lock lock(self->mutex_);
    if (self->ended_) return;
    lock.unlock();
    self->acceptNext();
  });
}

void Handshakes::answer(const std::shared_ptr<Pipe>& pipe) {
  {
    std::lock_guard lock(mutex_);
    // Who connects and says nothing may not gather here.
    if (ended_ || answering_ >= 2 * core_->options.size + 16) return;
    ++answering_;
    pending_.push_back(pipe);
  }
  pipe->readDescriptor([self = shared_from_this(), pipe](absl::StatusOr<MessageDescriptor> descriptor) {
    std::optional<Hello> hello;
    bool member = false;
    const Frame frame = self->judge(descriptor, &hello, &member);
    {
      std::lock_guard lock(self->mutex_);
      --self->answering_;
      if (self->ended_) return;
    }
    if (hello) return self->welcome(pipe, *hello);
    // Whoever did not even say hello gets no answer.
    if (frame.flags != kFlagRejected) return pipe->close();
    const absl::Status status = decodeStatus(frame.code, frame.tail);
    // TensorPipe does not tell where it called from.
    if (!absl::IsAlreadyExists(status)) self->refusals_.note({}, status);
    self->reject(pipe, frame);
    if (!member || absl::IsAlreadyExists(status)) return;
    self->fatal(absl::Status(status.code(), absl::StrCat("a process that dialled this one was refused: ", status.message())));
  });
}

Frame Handshakes::judge(const absl::StatusOr<MessageDescriptor>& descriptor, std::optional<Hello>* welcome,
                        bool* member) {
  Frame silent;
  const absl::StatusOr<Frame> frame = helloOf(descriptor);
  absl::StatusOr<Hello> hello = frame.ok() ? decodeHello(frame->tail) : frame.status();
  absl::Status status = hello.status();
  if (!hello.ok() && !absl::IsFailedPrecondition(status)) return silent;
  if (hello.ok()) {
    status = checkHello(core_->options, *hello);
    *member = !absl::IsPermissionDenied(status);
    if (status.ok() && (hello->rank <= core_->options.rank || hello->rank >= core_->options.size)) {
      status = absl::FailedPreconditionError(
          absl::StrCat("rank ", hello->rank, " does not dial rank ", core_->options.rank));
    }
    if (status.ok()) {
      std::lock_guard lock(mutex_);
      Peer& peer = peers_[static_cast<size_t>(hello->rank)];
      if (peer.state == State::kIdle) {
        peer.state = State::kDialling;
        ++dialling_;
        *welcome = *std::move(hello);
        return silent;
      }
      status = absl::AlreadyExistsError(absl::StrCat("rank ", hello->rank, " is connected already"));
    } else {
      const bool known = hello->rank >= 0 && hello->rank < core_->options.size;
      const std::string name =
          known ? absl::StrCat(" (", describePeer(core_->options.peers[static_cast<size_t>(hello->rank)]), ")") : "";
      status = absl::Status(status.code(), absl::StrCat("rank ", hello->rank, name, ": ", status.message()));
    }
  }
  Frame rejection;
  rejection.kind = FrameKind::kHello;
  rejection.flags = kFlagRejected;
  rejection.code = status.code();
  rejection.tail = encodeStatus(status);
  return rejection;
}

void Handshakes::welcome(const std::shared_ptr<Pipe>& pipe, const Hello& hello) {
  reachStage("agent/welcome");
  pipe->read({}, [self = shared_from_this(), pipe, hello](const absl::Status& read) {
    if (!read.ok()) return self->dialFailed(hello.rank, pipe, read);
    pipe->write(oneFrame(helloFrame(self->core_->options, kFlagWelcome)),
                [self, pipe, hello](const absl::Status& written) {
                  written.ok() ? self->up(hello.rank, pipe, hello) : self->dialFailed(hello.rank, pipe, written);
                });
  });
}

void Handshakes::reject(const std::shared_ptr<Pipe>& pipe, Frame frame) {
  {
    std::lock_guard lock(mutex_);
    ++rejecting_;
  }
  pipe->read({}, [self = shared_from_this(), pipe, frame = std::move(frame)](const absl::Status&) {
    pipe->write(oneFrame(frame), [](const absl::Status&) {});
    // The dialling side closes when it has read; closing first could lose the rejection.
    pipe->readDescriptor([self, pipe](const absl::StatusOr<MessageDescriptor>&) {
      pipe->close();
      std::lock_guard lock(self->mutex_);
      if (self->rejecting_ > 0) --self->rejecting_;
      self->changed_.notify_all();
    });
  });
}

}  // namespace farhop::rpc
