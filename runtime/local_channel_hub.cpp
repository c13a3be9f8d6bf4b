// The local channel's hub: the machine's process 0.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rpc/stages.h"
#include "runtime/local_channel.h"

namespace farhop::runtime {

using Type = LocalMessage::Type;

namespace {

constexpr std::chrono::milliseconds kHelloTimeout{5'000};
constexpr std::chrono::milliseconds kAcceptPause{100};  // when the process has no descriptors left

}  // namespace

absl::Status LocalChannel::listen() {
  FARHOP_ASSIGN_OR_RETURN(listener_, listenAbstract(socketName(contract_), 2 * contract_.procsPerMachine + 64));
  rpc::reachStage("channel/open");
  return absl::OkStatus();
}

void LocalChannel::acceptAll() {
  const size_t most = 2 * static_cast<size_t>(contract_.procsPerMachine) + 64;
  for (;;) {
    FileDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      // Out of descriptors or memory: whoever waits stays in the queue.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) acceptAgain_ = Deadline::after(kAcceptPause);
      return;
    }
    if (connections_.size() >= most || !sameUser(fd.get())) continue;
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    (void)::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    connection->pid = credentials.pid;
    connection->hello = Deadline::after(kHelloTimeout);
    connections_.push_back(std::move(connection));
  }
}

void LocalChannel::handleAsHub(Connection& connection, const LocalMessage& message,
                               std::vector<absl::Status>& failures) {
  if (connection.proc < 0) {
    if (!admit(connection, message)) connection.broken = true;
    return;
  }
  switch (message.type) {
    // A client speaks for itself, and of losses and values; only the hub declares deaths.
    case Type::kAddress:
    case Type::kReady:
    case Type::kLeave:
      if (message.proc != connection.proc) break;
      apply(message, failures);
      publish(message, &connection);
      return;
    case Type::kLost: {
      const bool news = losses_.empty();
      apply(message, failures);
      if (news) publish(message, &connection);
      return;
    }
    case Type::kSet:
      apply(message, failures);
      answerWaiters(message);
      return;
    case Type::kGet:
      if (!answer(connection, message.key)) break;
      return;
    default: break;
  }
  connection.broken = true;
}

// The hub's answer to a hello: welcome and the state so far, or a refusal that says why.
bool LocalChannel::admit(Connection& connection, const LocalMessage& hello) {
  if (hello.type != Type::kHello) return false;
  absl::Status refusal;
  if (hello.code != static_cast<int32_t>(kLocalProtocolVersion)) {
    refusal = absl::FailedPreconditionError(absl::StrCat("this machine's processes speak different versions of the "
                                                         "local channel (", hello.code, " and ", kLocalProtocolVersion,
                                                         "); start them from one installation"));
  } else if (hello.key != contract_.jobId || hello.value != contract_.token || hello.machine != contract_.machine) {
    refusal = absl::PermissionDeniedError(absl::StrCat("process 0 of machine ", contract_.machine,
                                                       " belongs to another job: job id or token differ"));
  } else if (hello.proc < 1 || hello.proc >= contract_.procsPerMachine) {
    refusal = absl::InvalidArgumentError(absl::StrCat("process 0 of machine ", contract_.machine, " expects processes 1 to ",
                                                      contract_.procsPerMachine - 1, ", not ", hello.proc));
  } else {
    const Member& member = members_[static_cast<size_t>(hello.proc)];
    bool connected = member.dead || member.left;
    for (const auto& other : connections_) connected = connected || other->proc == hello.proc;
    if (connected) {
      refusal = absl::AlreadyExistsError(absl::StrCat("process ", hello.proc, " of machine ", contract_.machine,
                                                      " is there already; was the job started twice?"));
    }
  }
  if (!refusal.ok()) {
    refusals_.note({hello.machine, hello.proc, absl::StrCat("process id ", connection.pid)}, refusal);
    LocalMessage answer;
    answer.type = Type::kRefused;
    answer.code = static_cast<int32_t>(refusal.code());
    answer.text = std::string(refusal.message());
    send(connection, encodeLocalMessage(answer));
    return false;
  }
  connection.proc = hello.proc;
  members_[static_cast<size_t>(hello.proc)].address = placeOfPeer(connection.fd.get());
  LocalMessage answer;
  answer.type = Type::kWelcome;
  send(connection, encodeLocalMessage(answer));
  const auto tell = [&](Type type, int proc, const std::string& text) {
    LocalMessage message;
    message.type = type;
    message.machine = contract_.machine;
    message.proc = proc;
    message.text = text;
    send(connection, encodeLocalMessage(message));
  };
  for (const LocalMessage& loss : losses_) send(connection, encodeLocalMessage(loss));
  for (int proc = 0; proc < contract_.procsPerMachine; ++proc) {
    const Member& member = members_[static_cast<size_t>(proc)];
    if (!member.address.empty()) tell(Type::kAddress, proc, member.address);
    if (member.ready) tell(Type::kReady, proc, "");
    if (member.dead) tell(Type::kDead, proc, member.address);
    if (member.left) tell(Type::kLeave, proc, "");
  }
  return true;
}

}  // namespace farhop::runtime
