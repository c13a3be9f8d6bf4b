// How an agent's pipes come about: it dials the lower ranks and is dialled by the higher ones, and both sides
// of each pipe say hello before anything else.
//
// A hello that names another job, token, version or group size is answered with a rejection that says which, and
// connect() fails on the dialling side, which got the address from its group. The side that is dialled cannot know
// a stranger from a group member with a wrong token: it says in the log whom it refused and waits on. A group
// size or rank that differs comes from a process with the right token, and fails both. Connections that break before their hellos are done are tried again
// until the deadline.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/agent_core.h"
#include "rpc/peer_link.h"
#include "rpc/refusal_log.h"
#include "rpc/transport.h"

namespace farhop::rpc {

// The hello of this agent.
Hello ownHello(const AgentOptions& options);

// Checks a peer's hello: PermissionDenied (job or token), FailedPrecondition (group size or rank). Texts
// complete "process of rank 1 ..."; they name no secrets.
absl::Status checkHello(const AgentOptions& options, const Hello& hello);

// One run of the handshakes; kept alive by its callbacks.
class Handshakes : public std::enable_shared_from_this<Handshakes> {
 public:
  Handshakes(std::shared_ptr<AgentCore> core, Transport* transport, std::vector<std::shared_ptr<PeerLink>> links,
             std::vector<std::string> addresses);

  // Until every pipe is up, one is refused, the deadline passes, or cancel() is called.
  absl::Status run(Deadline deadline);
  void cancel(absl::Status reason);

 private:
  enum class State { kIdle, kDialling, kUp };
  struct Peer {
    State state = State::kIdle;
    Clock::time_point retryAt;
    int pauseMs = 10;
    absl::Status lastError;
  };

  void acceptNext();
  void answer(const std::shared_ptr<Pipe>& pipe);
  // Judges what the other side said first; the reply's frame, and the hello where it is welcome.
  // `member`: it knew the token, so that a refusal concerns the whole group.
  Frame judge(const absl::StatusOr<MessageDescriptor>& descriptor, std::optional<Hello>* welcome, bool* member);
  void welcome(const std::shared_ptr<Pipe>& pipe, const Hello& hello);
  void reject(const std::shared_ptr<Pipe>& pipe, Frame frame);

  void dial(int rank);
  void onAnswer(int rank, const std::shared_ptr<Pipe>& pipe, absl::StatusOr<MessageDescriptor> descriptor);
  void dialFailed(int rank, const std::shared_ptr<Pipe>& pipe, absl::Status status);

  std::vector<int> ranksToDial();        // under mutex_
  absl::Status missing() const;          // under mutex_: what the deadline ran out for
  void fatal(absl::Status status);
  void up(int rank, const std::shared_ptr<Pipe>& pipe, const Hello& hello);

  const std::shared_ptr<AgentCore> core_;
  Transport* const transport_;
  const std::vector<std::shared_ptr<PeerLink>> links_;  // by rank; null for the own
  const std::vector<std::string> addresses_;
  RefusalLog refusals_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;     // guarded by mutex_
  int dialling_ = 0;            // guarded by mutex_
  int rejecting_ = 0;           // guarded by mutex_; rejections on their way
  int answering_ = 0;           // guarded by mutex_; accepted pipes whose hello has not come
  bool ended_ = false;          // guarded by mutex_
  absl::Status failure_;        // guarded by mutex_
  std::vector<std::weak_ptr<Pipe>> pending_;  // guarded by mutex_; closed when run() ends
};

}  // namespace farhop::rpc
