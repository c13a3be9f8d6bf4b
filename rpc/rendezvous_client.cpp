#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "rpc/byte_codec.h"
#include "rpc/rendezvous.h"
#include "rpc/rendezvous_protocol.h"
#include "rpc/stages.h"

namespace farhop::rpc {
namespace {

// The server answers a get at its deadline; the answer of a busy one may take this long to arrive.
constexpr std::chrono::milliseconds kAnswerGrace{5'000};
// How long a store that was there must refuse connections to be taken for dead, and how often it is tried.
constexpr std::chrono::milliseconds kGoneAfter{1'000};
constexpr std::chrono::milliseconds kGonePollInterval{50};
constexpr size_t kMaxReplyBytes = size_t{256} << 20;

std::string localHost(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST];
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return host;
}

absl::Status notAStore(const HostPort& master) {
  return absl::FailedPreconditionError(absl::StrCat("what listens on ", master.text(),
                                                    " is not a Farhop rendezvous store; check the master's address and port"));
}

// Whether a store that could be reached once still can. Before that, a refused connection says nothing: the master
// may not have started yet. Afterwards it says that its process has ended, for that never stops listening before
// the group has met; a moment is allowed for a socket that is handed from one process to another.
class Reachability {
 public:
  explicit Reachability(bool wasUp) : wasUp_(wasUp) {}
  bool wasUp() const { return wasUp_; }
  void noteConnection() {
    wasUp_ = true;
    refusedSince_ = Clock::time_point::max();
  }
  // Asked after a refusal.
  bool isGone() {
    if (refusedSince_ == Clock::time_point::max()) refusedSince_ = Clock::now();
    return Clock::now() - refusedSince_ >= kGoneAfter;
  }

 private:
  bool wasUp_;
  Clock::time_point refusedSince_ = Clock::time_point::max();
};

absl::Status storeIsGone(const HostPort& address, int proc, const absl::Status& refusal) {
  const PeerName master{0, proc, address.text()};
  return withPeer(absl::UnavailableError(absl::StrCat("lost ", describePeer(master),
                                                      ": nothing listens there any more, so its process has ended (",
                                                      refusal.message(), ")")),
                  master);
}

void pause(int ms, Deadline deadline) {
  std::this_thread::sleep_for(std::chrono::milliseconds(std::min(ms, std::max(1, deadline.remainingMs()))));
}

// The body of one reply.
absl::StatusOr<std::string> receiveReply(int fd, size_t maxValueBytes, Deadline deadline, const HostPort& master) {
  std::string bytes(kStorePrefixBytes, '\0');
  FARHOP_RETURN_IF_ERROR(receiveAll(fd, bytes.data(), bytes.size(), deadline));
  const absl::StatusOr<StorePrefix> prefix = parseStorePrefix(bytes);
  if (!prefix.ok() || prefix->operation != StoreOperation::kReply) return notAStore(master);
  if (prefix->version != kStoreVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the rendezvous store on ", master.text(), " speaks version ",
                                                      prefix->version, " of its protocol, this process version ",
                                                      kStoreVersion, "; run the same Farhop everywhere"));
  }
  if (prefix->bodyBytes > std::min(kMaxReplyBytes, maxValueBytes + 64 * 1024)) return notAStore(master);
  std::string body(prefix->bodyBytes, '\0');
  FARHOP_RETURN_IF_ERROR(receiveAll(fd, body.data(), body.size(), deadline));
  return body;
}

class StoreClientImpl : public StoreClient {
 public:
  StoreClientImpl(FileDescriptor fd, HostPort master, int proc, size_t maxKeyBytes, size_t maxValueBytes)
      : master_(std::move(master)),
        localAddress_(localHost(fd.get())),
        proc_(proc),
        maxKeyBytes_(maxKeyBytes),
        maxValueBytes_(maxValueBytes),
        fd_(std::move(fd)) {}

  absl::Status set(const std::string& key, const std::string& value, Deadline deadline) override {
    if (value.size() > maxValueBytes_) {
      return absl::InvalidArgumentError(absl::StrCat("the value of key '", key, "' has ", value.size(),
                                                     " bytes, the rendezvous store takes ", maxValueBytes_));
    }
    std::string body;
    ByteWriter writer(&body);
    writer.string(key);
    writer.string(value);
    return ask(StoreOperation::kSet, key, body, deadline).status();
  }

  absl::StatusOr<std::string> get(const std::string& key, Deadline deadline) override {
    std::string body;
    ByteWriter writer(&body);
    writer.string(key);
    writer.u32(static_cast<uint32_t>(deadline.remainingMs()));
    return ask(StoreOperation::kGet, key, body, deadline);
  }

  absl::StatusOr<int64_t> add(const std::string& key, int64_t delta, Deadline deadline) override {
    std::string body;
    ByteWriter writer(&body);
    writer.string(key);
    writer.u64(static_cast<uint64_t>(delta));
    FARHOP_ASSIGN_OR_RETURN(const std::string value, ask(StoreOperation::kAdd, key, body, deadline));
    ByteReader in(value);
    const auto sum = static_cast<int64_t>(in.u64());
    if (!in.ok()) return notAStore(master_);
    return sum;
  }

  void farewell() override {
    std::lock_guard lock(mutex_);
    if (!fd_.valid()) return;
    const std::string frame = storeFrame(StoreOperation::kFarewell, {});
    static_cast<void>(sendAll(fd_.get(), frame.data(), frame.size(), Deadline::after(std::chrono::seconds(1))));
    closeSocket();
    if (broken_.ok()) broken_ = absl::FailedPreconditionError("operation after farewell() to the rendezvous store");
  }

  void interrupt() override {
    std::lock_guard lock(fdMutex_);
    if (fd_.valid()) (void)::shutdown(fd_.get(), SHUT_RDWR);
  }

  std::string localAddress() const override { return localAddress_; }

 private:
  void closeSocket() {
    std::lock_guard lock(fdMutex_);
    fd_.reset();
  }

  absl::StatusOr<std::string> ask(StoreOperation operation, const std::string& key, const std::string& body,
                                  Deadline deadline) {
    if (key.size() > maxKeyBytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a key of ", key.size(), " bytes; the rendezvous store takes ", maxKeyBytes_));
    }
    // Held while waiting: operations of one client run one after the other, and each has a deadline.
    std::lock_guard lock(mutex_);
    if (!broken_.ok()) return broken_;
    const std::string frame = storeFrame(operation, body);
    const absl::Status sent = sendAll(fd_.get(), frame.data(), frame.size(), deadline);
    if (!sent.ok()) return breakWith(sent);
    const bool waits = operation == StoreOperation::kGet;
    absl::StatusOr<std::string> reply = receiveReply(
        fd_.get(), maxValueBytes_, waits ? Deadline(deadline.at() + kAnswerGrace) : deadline, master_);
    if (!reply.ok()) return breakWith(reply.status());
    return decodeStoreReply(*reply, maxValueBytes_);
  }

  // The connection is out of step, so no later operation may use it.
  absl::Status breakWith(const absl::Status& status) {
    const PeerName master{0, proc_, master_.text()};
    broken_ = withPeer(absl::Status(status.code(), absl::StrCat("the rendezvous store on ", describePeer(master),
                                                                " was lost: ", status.message())),
                       master);
    closeSocket();
    return broken_;
  }

  const HostPort master_;
  const std::string localAddress_;
  const int proc_;
  const size_t maxKeyBytes_, maxValueBytes_;
  std::mutex mutex_;
  std::mutex fdMutex_;    // orders interrupt() and the close
  FileDescriptor fd_;     // used under mutex_, closed under both
  absl::Status broken_;   // guarded by mutex_
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::connect(const StoreClientOptions& options, Deadline deadline) {
  const HostPort& master = options.master;
  const PeerName& self = options.self;
  const std::string hello =
      storeFrame(StoreOperation::kHello, encodeStoreHello({options.jobId, options.token, self.machine, self.proc}));
  Reachability reachability(options.wasUp);
  reachStage("store/resolve");
  for (int pauseMs = 10;; pauseMs = std::min(pauseMs * 2, 200)) {
    if (options.givenUp && options.givenUp()) {
      return absl::CancelledError(absl::StrCat("meeting the rendezvous store on ", master.text(), " was given up"));
    }
    absl::StatusOr<FileDescriptor> connected = connectTcp(master, deadline, false);
    if (!connected.ok()) {
      // A name that does not resolve, or no time left. Before the store was up any other error may pass.
      if (absl::IsNotFound(connected.status()) || deadline.expired()) return connected.status();
      if (!reachability.wasUp()) {
        pause(pauseMs, deadline);
        continue;
      }
      if (!absl::IsUnavailable(connected.status())) return connected.status();
      if (reachability.isGone()) return storeIsGone(master, self.proc, connected.status());
      std::this_thread::sleep_for(kGonePollInterval);
      continue;
    }
    reachability.noteConnection();
    reachStage("store/connected");
    FileDescriptor fd = *std::move(connected);
    noticeSilence(fd.get());
    const absl::Status sent = sendAll(fd.get(), hello.data(), hello.size(), deadline);
    absl::StatusOr<std::string> body = std::string();
    if (sent.ok()) {
      body = receiveReply(fd.get(), 1024, deadline, master);
    } else {
      body = sent;
    }
    if (body.ok()) {
      absl::StatusOr<std::string> limits = decodeStoreReply(*body, 1024);
      if (!limits.ok()) {
        return annotate(limits.status(), absl::StrCat("the rendezvous store on ", master.text(), " refused this process"));
      }
      ByteReader in(*limits);
      const size_t maxKeyBytes = in.u64(), maxValueBytes = in.u64();
      if (!in.ok()) return notAStore(master);
      return std::make_unique<StoreClientImpl>(std::move(fd), master, self.proc, maxKeyBytes, maxValueBytes);
    }
    // A connection that is closed before the store has answered: it is just starting, or full of strangers.
    if (!absl::IsUnavailable(body.status()) || deadline.expired()) {
      return annotate(body.status(), absl::StrCat("meeting the rendezvous store on ", master.text()));
    }
    pause(pauseMs, deadline);
  }
}

}  // namespace farhop::rpc
