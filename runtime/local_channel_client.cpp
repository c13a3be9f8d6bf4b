// The local channel's clients: every process of the machine but the first.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "rpc/stages.h"
#include "runtime/local_channel.h"

namespace farhop::runtime {

using Type = LocalMessage::Type;

namespace {

// Nothing wakes these waits when a failure is recorded, so they are cut into pieces.
constexpr std::chrono::milliseconds kLookInterval{50};

Deadline untilNextLook(Deadline deadline) { return Deadline::earliest(deadline, Deadline::after(kLookInterval)); }

}  // namespace

absl::Status LocalChannel::connect(Deadline deadline) {
  LocalMessage hello;
  hello.type = Type::kHello;
  hello.machine = contract_.machine;
  hello.proc = contract_.proc;
  hello.code = static_cast<int32_t>(kLocalProtocolVersion);
  hello.key = contract_.jobId;
  hello.value = contract_.token;
  const std::string frame = encodeLocalMessage(hello);

  absl::StatusOr<FileDescriptor> fd = connectAbstract(socketName(contract_), untilNextLook(deadline), true);
  while (!fd.ok() && !deadline.expired()) {
    FARHOP_RETURN_IF_ERROR(monitor_->status());
    fd = connectAbstract(socketName(contract_), untilNextLook(deadline), true);
  }
  if (!fd.ok()) {
    const PeerName missing{contract_.machine, 0, ""};
    return withPeer(absl::DeadlineExceededError(
                        absl::StrCat(describePeer(missing), " did not open the machine's local channel in time (",
                                     std::string(fd.status().message()), "); ", kNeverCameAdvice)),
                    missing);
  }
  if (!sameUser(fd->get())) {
    return absl::PermissionDeniedError(
        absl::StrCat("another user's process listens as '", socketName(contract_), "'; choose another job id"));
  }
  auto connection = std::make_unique<Connection>();
  connection->fd = *std::move(fd);
  connection->proc = 0;
  members_[0].address = placeOfPeer(connection->fd.get());
  if (const absl::Status sent = sendAll(connection->fd.get(), frame.data(), frame.size(), deadline); !sent.ok()) {
    return withPeer(annotate(sent, absl::StrCat("lost ", describePeer(hub()), ": the machine's local channel")), hub());
  }
  rpc::reachStage("channel/hello");
  FARHOP_RETURN_IF_ERROR(awaitWelcome(*connection, deadline));
  connections_.push_back(std::move(connection));
  return absl::OkStatus();
}

// The hub has the hello already: it is to hear of the one that was lost, and not to take this process for another.
absl::Status LocalChannel::leaveFor(const absl::Status& failure, Connection& connection) const {
  LocalMessage farewell;
  farewell.type = Type::kLeave;
  farewell.machine = contract_.machine;
  farewell.proc = contract_.proc;
  const std::string frames = encodeLocalMessage(lossMessage(failure)) + encodeLocalMessage(farewell);
  (void)sendAll(connection.fd.get(), frames.data(), frames.size(), Deadline::after(kLookInterval));
  return failure;
}

// The hub's answer; what follows it stays in `input`.
absl::Status LocalChannel::awaitWelcome(Connection& connection, Deadline deadline) {
  for (;;) {
    absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(connection.input);
    if (!message.ok()) return message.status();
    if (message->has_value()) {
      if ((*message)->type == Type::kRefused) {
        return absl::Status(static_cast<absl::StatusCode>((*message)->code), (*message)->text);
      }
      if ((*message)->type != Type::kWelcome) return absl::InternalError("the local channel's hub did not say welcome");
      return absl::OkStatus();
    }
    char buffer[4096];
    const ssize_t n = ::recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (n > 0) {
      connection.input.append(buffer, static_cast<size_t>(n));
      bytesReceived_ += static_cast<size_t>(n);
    } else if (n == 0) {
      return withPeer(absl::UnavailableError(absl::StrCat(
                          "lost ", describePeer(hub()), ": it closed the machine's local channel; its log says why")),
                      hub());
    } else if (errno == EAGAIN || errno == EINTR) {
      pollfd entry{connection.fd.get(), POLLIN, 0};
      (void)::poll(&entry, 1, untilNextLook(deadline).remainingMs());
      if (const absl::Status failure = monitor_->status(); !failure.ok()) return leaveFor(failure, connection);
      if (deadline.expired()) {
        return absl::DeadlineExceededError(absl::StrCat("process 0 of machine ", contract_.machine,
                                                        " does not answer on the machine's local channel"));
      }
    } else {
      // A hub that ends with bytes of ours unread resets the connection.
      return withPeer(errnoStatus(absl::StrCat("lost ", describePeer(hub()), ": the machine's local channel"), errno),
                      hub());
    }
  }
}

}  // namespace farhop::runtime
