// The machine's local channel: how the P processes of one machine know of each other, with or without a
// launcher.
//
// An abstract Unix socket keyed by user, job and machine. Process 0 is the hub; the others connect to it. It
// carries: ready, dead (a connection that ends without a farewell), farewell, the name and address of a peer
// that another worker group lost, and small key-values through which the machine's Gloo context meets.
// The hub relays everything to everyone, so each process holds the same picture. A stranger's bytes, another
// user's process, a wrong job or token get the connection closed. Each process runs one thread for it; with
// one process per machine there is no socket and no thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"
#include "rpc/refusal_log.h"
#include "runtime/failure_monitor.h"
#include "runtime/launch_contract.h"
#include "runtime/local_message.h"

namespace farhop::runtime {

// "pid 4711 on node7": where the process at the other end of a local socket runs.
std::string placeOfPeer(int fd);

// Thread-safe.
class LocalChannel {
 public:
  // Process 0 listens; the others retry until the deadline. AlreadyExists when the job already runs on this
  // machine, PermissionDenied for a wrong token. A process that dies without leave() is recorded in
  // `monitor`, which must outlive the channel, and so is a loss that another process reports.
  static absl::StatusOr<std::unique_ptr<LocalChannel>> open(const LaunchContract& contract, FailureMonitor* monitor,
                                                            Deadline deadline);
  // Ends the connection. Without an earlier leave() the others take this process for dead.
  ~LocalChannel();
  LocalChannel(const LocalChannel&) = delete;
  LocalChannel& operator=(const LocalChannel&) = delete;

  // Tells the others this process's address in its group, for the message that names it when it dies.
  void announceAddress(const std::string& address);
  void announceReady();

  // Waits until `proc` is ready. The recorded failure if there is one first, DeadlineExceeded naming the
  // process otherwise.
  absl::Status waitReady(int proc, Deadline deadline) const;
  absl::Status waitAllReady(Deadline deadline) const;

  // Tells the machine's other processes what this process's group has lost.
  void reportLost(const absl::Status& failure);

  // Says farewell, then waits until every process of the machine has (the hub's lifetime covers the
  // others'). OK, or DeadlineExceeded naming who has not; the channel is closed in either case.
  absl::Status leave(Deadline deadline);

  // Small values for everyone on the machine; a key is set once.
  absl::Status set(const std::string& key, const std::string& value);
  // Waits until the key is set; the recorded failure ends the wait.
  absl::StatusOr<std::string> get(const std::string& key, Deadline deadline);

  // What has come over this process's connections so far.
  size_t bytesReceived() const;

  // The abstract socket's name; empty with one process per machine.
  static std::string socketName(const LaunchContract& contract);

 private:
  struct Connection {
    FileDescriptor fd;
    int proc = -1;        // known after its hello; the hub is 0
    pid_t pid = 0;        // at the hub: the other end's
    std::vector<std::string> wanted;  // at the hub: keys it waits for
    std::string input;    // bytes that are no whole frame yet
    std::string output;   // frames that did not fit into the socket
    Deadline hello;       // a connection that has not introduced itself by then is closed
    bool broken = false;
  };
  struct Member {
    std::string address;  // in its group; until that is announced, where the process runs
    bool ready = false;
    bool left = false;
    bool dead = false;
  };

  LocalChannel(const LaunchContract& contract, FailureMonitor* monitor);
  bool isHub() const { return contract_.proc == 0; }

  // The hub (local_channel_hub.cpp).
  absl::Status listen();
  void acceptAll();
  void handleAsHub(Connection& connection, const LocalMessage& message, std::vector<absl::Status>& failures);
  bool admit(Connection& connection, const LocalMessage& hello);

  // Key-values (local_channel_values.cpp).
  absl::Status keep(const std::string& key, const std::string& value);  // under mutex_
  bool answer(Connection& connection, const std::string& key);          // at the hub
  void answerWaiters(const LocalMessage& value);                        // at the hub

  // Its clients (local_channel_client.cpp).
  absl::Status connect(Deadline deadline);
  absl::Status awaitWelcome(Connection& connection, Deadline deadline);
  absl::Status leaveFor(const absl::Status& failure, Connection& connection) const;
  PeerName hub() const { return {contract_.machine, 0, members_[0].address}; }

  void run();
  bool step(std::vector<absl::Status>& failures);
  void wake() const;
  void readFrom(Connection& connection, std::vector<absl::Status>& failures);
  void apply(const LocalMessage& message, std::vector<absl::Status>& failures);
  void connectionEnded(Connection& connection, std::vector<absl::Status>& failures);
  void publish(const LocalMessage& message, const Connection* except);
  void send(Connection& connection, const std::string& frame);
  void flush(Connection& connection);
  absl::Status deathOf(int proc) const;
  bool everyoneGone() const;

  const LaunchContract contract_;
  FailureMonitor* const monitor_;
  rpc::RefusalLog refusals_;
  FileDescriptor listener_;  // the hub's
  Deadline acceptAgain_;     // the hub's thread's: no connection is taken before
  FileDescriptor wakeup_;    // an eventfd that ends the thread's poll

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Connection>> connections_;  // guarded by mutex_; entries are removed by the thread
  std::vector<Member> members_;                           // guarded by mutex_, by process
  std::map<std::string, std::string> values_;             // guarded by mutex_
  std::vector<LocalMessage> losses_;                      // guarded by mutex_: the first one, for late joiners
  size_t bytesReceived_ = 0;                              // guarded by mutex_
  bool stopping_ = false;                                 // guarded by mutex_
  int listenerId_ = -1;
  std::thread thread_;
};

}  // namespace farhop::runtime
