// The agent: one per machine of a job. Starts the machine's trainers as a launcher orders (agent_protocol.h), watches
// them, passes their output on, and dies with its connection: when the launcher is gone, silent or nonsensical,
// everything that the agent started ends, processes that trainers started included. When the agent itself is told to end,
// since its node is taken away, the trainers get the grace of a job that is ended (agent_preemption.cpp). When it is killed
// its watcher ends them (agent_watcher.h).
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "base/deadline.h"
#include "launcher/agent_watcher.h"
#include "launcher/frame_stream.h"
#include "launcher/job.h"
#include "launcher/process.h"

namespace farhop::launcher {

// One thread, one poll loop; nothing in it waits but poll, except the end, which waits for the kernel to take processes
// away, at most kKillTime.
class Agent {
 public:
  // For a launcher that is connected but never sends orders.
  static constexpr std::chrono::milliseconds kOrdersTimeout{60'000};

  // `signals` as openSignals() makes them: one of them ends the agent and its trainers, SIGTERM and SIGINT with the grace
  // that the launcher gives them itself.
  Agent(FrameStream stream, FileDescriptor signals, AgentWatcher watcher, std::string version);

  // Returns the agent's exit code: 0 when the launcher said that the job has ended.
  int run();

 private:
  struct Trainer {
    int proc = 0;
    std::optional<Process> process;
    FileDescriptor news;      // our end of the trainer's launcher socket
    FileDescriptor pipes[2];  // its output and errors
    bool executed = false;
    bool ended = false;       // and the launcher knows
  };
  // What a poll entry is about.
  struct Source {
    enum Kind { kStream, kSignals, kExec, kEnd, kPipe, kNews } kind;
    size_t trainer = 0;
    int stream = 0;
  };

  absl::Status step();
  Deadline nextDeadline() const;
  void addEntries(std::vector<pollfd>& entries, std::vector<Source>& sources) const;
  absl::Status takeEvent(const Source& source);
  absl::Status takeOwnSignals();
  absl::Status takePreemption(int signal);
  absl::Status takeCut(absl::Status reason);
  absl::Status endPreempted();
  absl::Status takeFrames();
  absl::Status takeFrame(const Frame& frame);
  absl::Status takeOrders(const std::string& payload);
  absl::Status prepare();
  absl::Status checkMachine() const;
  absl::Status start(const std::string& payload);
  absl::Status takeSignal(const std::string& payload);
  void signalTrainers(int signal);
  bool trainersRun() const;

  void startNext();
  absl::Status startTrainer(Trainer& trainer);
  void takeExec(Trainer& trainer);
  void takeEnd(Trainer& trainer);
  void takeSaid(Trainer& trainer);
  void refuse(const absl::Status& status);
  // Reads once, at most `limit` bytes, and sends it. The bytes read; 0 when there is nothing now or no more.
  size_t pump(Trainer& trainer, int stream, size_t limit);
  void drain(Trainer& trainer);

  bool pipesOpen() const;
  void finish();
  bool killAll();

  FrameStream stream_;
  FileDescriptor signals_;
  AgentWatcher watcher_;
  const std::string version_;
  AgentOrders orders_;
  bool haveOrders_ = false, starting_ = false, finishing_ = false;
  bool askedToEnd_ = false;  // the trainers, by whomever
  bool preempted_ = false;   // this agent, by a signal: the trainers have until killDeadline_
  std::string program_;
  PortReservation ports_;
  std::optional<rlimit> openFiles_;
  std::vector<Trainer> trainers_;
  size_t nextTrainer_ = 0;   // the one to start next
  size_t credit_ = 0;        // bytes of output that may be sent
  Deadline ordersDeadline_, settleDeadline_, silentAt_, nextAlive_, nextOrphanCheck_, killDeadline_;
};

// The address of this machine by which others reach it: the named network interface's, else the one by which an ssh
// client came, else the first that is neither loopback nor link-local; IPv4 before IPv6.
absl::StatusOr<std::string> findOwnAddress(const std::string& interface);

}  // namespace farhop::launcher
