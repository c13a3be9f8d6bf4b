// The launcher's side of one machine of a job: the connection to its agent, and what is known of its processes.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "launcher/frame_stream.h"
#include "launcher/output_pump.h"
#include "launcher/process.h"

namespace farhop::launcher {

// How an agent is started: a program of this machine whose standard input and output are the agent's.
struct AgentCommand {
  std::vector<std::string> argv;  // argv[0] is a path
  std::string host;               // what people call the machine; empty when it is this one
  std::string address;            // of its processes, for messages; empty: the host
  bool remote = false;            // through ssh or the like, which can fall silent
  bool ssh = false;               // what it says when it fails is ssh's
};

// A trainer, as far as its agent told.
struct JobProcess {
  int machine = 0;
  int proc = 0;
  std::string host;  // where it runs, for its peers' messages
  std::string place;  // " (host)" for people; empty when this machine plays all
  OutputPump output;
  pid_t pid = 0;  // 0: not started yet
  std::optional<ProcessEnd> end;

  std::string name() const { return absl::StrCat("machine ", machine, " process ", proc, place); }
};

// Not thread-safe.
class JobMachine {
 public:
  // An agent's connection from which nothing comes for this long is given up, and the agent gives up the launcher.
  static constexpr std::chrono::milliseconds kSilence{9'000};
  // What is kept of what the connection's program writes to standard error.
  static constexpr size_t kErrorLines = 20;

  enum class State { kConnecting, kPreparing, kPrepared, kRunning, kFinishing, kDone, kLost };

  // Starts the connection's program, with this environment and limit of open files.
  static absl::StatusOr<JobMachine> connect(const AgentCommand& command, int machine,
                                            const std::vector<std::string>& environment,
                                            const std::optional<rlimit>& openFiles);
  JobMachine(JobMachine&&) = default;

  int index() const { return machine_; }
  State state() const { return state_; }
  void setState(State state) { state_ = state; }
  bool over() const { return state_ == State::kDone || state_ == State::kLost; }
  // "machine 1 (h1)", "machine 1".
  std::string name() const;
  const AgentCommand& command() const { return command_; }
  // Why it is lost, once it is.
  const absl::Status& lostReason() const { return lost_; }

  std::vector<JobProcess> processes;

  FrameStream& stream() { return *stream_; }
  const FrameStream& stream() const { return *stream_; }
  // To poll for POLLIN, or -1.
  int inFd() const { return closed_ ? -1 : stream_->inFd(); }
  int errorFd() const { return errors_.get(); }

  // Reads what came; notices that the connection is closed.
  void receive();
  // What the connection's program says about itself. Lines after the agent's hello are returned, to be shown; those
  // before are kept for the error.
  std::vector<std::string> receiveErrors();
  // Writes what fits, sends kAlive when it is time, and finds out that the connection is closed or silent: it is lost
  // then (lostReason). To be called after every poll.
  void keepUp();
  Deadline nextDeadline() const;
  void lose(absl::Status reason);

  // Output that has come and waits for the terminal. Bounded by the window and what ended trainers' pipes held.
  void hold(TrainerOutput output);
  // Passes on what the terminal takes, or everything, and gives the agent credit for it.
  void passOn(bool everything);
  bool holdsOutput() const { return !held_.empty(); }
  size_t windowBytes = kMaxWindowBytes;

  // Ends the connection and its program.
  void close(Deadline deadline);

 private:
  JobMachine(const AgentCommand& command, int machine);
  absl::Status explainClosed();

  AgentCommand command_;
  int machine_ = 0;
  State state_ = State::kConnecting;
  absl::Status lost_;
  std::optional<Process> process_;
  std::optional<FrameStream> stream_;
  FileDescriptor errors_;
  LineCutter errorCutter_;
  std::deque<std::string> errorLines_;
  std::deque<TrainerOutput> held_;
  uint32_t owedCredit_ = 0;
  bool closed_ = false;        // the stream ended; how the program ends is not known yet
  Deadline closedDeadline_;
  Deadline silentAt_, nextAlive_;
};

}  // namespace farhop::launcher
