// Supervises a job over the agents of its machines: brings them to start, watches until all processes have ended, and
// decides when to end them: the first failure, a signal to the launcher, or the time limit. One thread, one poll loop.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "launcher/job_machine.h"
#include "launcher/terminal.h"

namespace farhop::launcher {

struct SupervisorOptions {
  AgentOrders orders;   // for all machines; each gets its own number
  std::string version;  // of farhop, which every agent must have
  std::chrono::milliseconds grace{5'000};  // after a signal or the time limit, before SIGKILL
  std::chrono::milliseconds startTimeout{60'000};  // until all machines are prepared
  std::optional<std::chrono::milliseconds> timeout;
  // All machines are prepared, and this is where the groups meet; called before the first trainer starts.
  std::function<void(const AgentPrepared&)> onPrepared;
  // A trainer wrote to its launcher's socket.
  std::function<void(const JobProcess&, const std::string& message)> onSaid;
};

// SIGINT, SIGTERM, SIGHUP and SIGUSR1 as a descriptor. Blocks them for the process, except those that it was started
// to ignore (nohup, background jobs of scripts).
absl::StatusOr<FileDescriptor> openSignals();

class Supervisor {
 public:
  // Lets the others end by themselves after the first failure, with errors of their own: a second for the grace in
  // which a trainer tells its peers, the rest for machines under load. All of it stays under five seconds.
  static constexpr std::chrono::milliseconds kReportTime{3'000};
  // Between SIGTERM and SIGKILL after a failure.
  static constexpr std::chrono::milliseconds kTerminateTime{1'500};

  // Borrows all of them. The machines are connected, with their processes in order.
  Supervisor(std::vector<JobMachine>& machines, const SupervisorOptions& options, Terminals& terminals,
             FileDescriptor& signals);

  // Returns the exit code of the job: 0, the first failing process's, 128 + signal, 255 of one that was lost with its
  // machine, or 124 at the time limit; or why it could not be started. Afterwards no process of the job is left on a
  // machine that can be reached, and all output is passed on.
  absl::StatusOr<int> run();

  // Whether output was lost on the way to the launcher's own streams.
  bool outputLost() const { return outputLost_; }
  // Whether a trainer's failure ended the job, rather than a signal, the time limit, a machine that is taken away or a start
  // that failed.
  bool failedByItself() const { return firstFailure_ != nullptr && !stopped_ && !preempted_; }

 private:
  enum class Phase { kStarting, kRunning, kReporting, kTerminating, kKilling };
  // What a poll entry is about.
  struct Source {
    enum Kind { kStream, kErrors } kind;
    JobMachine* machine;
  };

  bool allEnded() const;
  void say(const std::string& line);
  void sendAll(FrameKind kind, const std::string& payload);
  void signalAll(int signal);
  void enter(Phase phase, Deadline deadline);
  // Asks all trainers to end, and gives them the grace.
  void endAll(int signal);

  // Waits for something to happen, at most until `deadline`, and passes on output.
  void step(Deadline deadline);
  void pollOnce(Deadline deadline);
  void takeSignals();
  void takeFrames(JobMachine& machine);
  absl::Status takeFrame(JobMachine& machine, const Frame& frame);
  absl::Status takeHello(JobMachine& machine, const std::string& payload);
  absl::Status takePrepared(JobMachine& machine, const std::string& payload);
  absl::Status takeStarted(JobMachine& machine, const std::string& payload);
  absl::Status takeOutput(JobMachine& machine, const std::string& payload);
  absl::Status takeEnded(JobMachine& machine, const std::string& payload);
  absl::Status takePreempted(JobMachine& machine, const std::string& payload);
  void takeLost(JobMachine& machine);
  void cannotStart(absl::Status reason);

  void takeEnds();
  bool allStopped() const;
  void onFirstFailure(JobProcess& failed);
  void tellOthers(const JobProcess& ended);
  void onSignal(int signal);
  void onDeadline();

  // After the last process ended: remaining output, remaining processes, the report.
  void finish();
  void finishAgents();
  void reportOthers();
  void flush();

  std::vector<JobMachine>& machines_;
  const SupervisorOptions options_;
  Terminals& terminals_;
  FileDescriptor& signals_;
  Phase phase_ = Phase::kStarting;
  Deadline deadline_;
  absl::Status startError_;
  bool stopped_ = false;    // the first to end with an exit code had stopped because it was asked to
  bool preempted_ = false;  // a machine was told to end
  bool cancelled_ = false;  // a signal came before anything was started
  int exitCode_ = 0;
  AgentPrepared master_;
  JobProcess* firstFailure_ = nullptr;
  std::vector<const JobProcess*> laterFailures_;  // by themselves, before we ended them
  std::vector<JobProcess*> ended_;                // since the last takeEnds()
  std::vector<Source> ready_;                     // what has something to read
  bool finishing_ = false;
  bool interrupted_ = false;  // a signal came while finishing
  bool gaveUp_ = false;
  bool outputLost_ = false;
};

}  // namespace farhop::launcher
