// Watches the processes of a job until all have ended, and decides when to end them: the first failure, a
// signal to the launcher, or the time limit. One thread, one poll loop.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "launcher/output_pump.h"
#include "launcher/process.h"
#include "launcher/terminal.h"

namespace farhop::launcher {

struct JobProcess {
  int machine = 0;
  int proc = 0;
  std::string host;  // where it runs
  Process process;
  OutputPump output;
  FileDescriptor news;  // on which it hears of the others' ends
  std::optional<ProcessEnd> end;

  std::string name() const { return absl::StrCat("machine ", machine, " process ", proc); }
};

struct SupervisorOptions {
  std::chrono::milliseconds grace{5'000};  // after a signal or the time limit, before SIGKILL
  std::optional<std::chrono::milliseconds> timeout;
};

// SIGINT, SIGTERM and SIGHUP as a descriptor. Blocks them for the process, except those that it was started
// to ignore (nohup, background jobs of scripts).
absl::StatusOr<FileDescriptor> openSignals();

class Supervisor {
 public:
  // Lets the others end by themselves after the first failure, with errors of their own: a second for the grace in
  // which a trainer tells its peers, the rest for machines under load. All of it stays under five seconds.
  static constexpr std::chrono::milliseconds kReportTime{3'000};
  // Between SIGTERM and SIGKILL after a failure.
  static constexpr std::chrono::milliseconds kTerminateTime{1'500};

  // Borrows all of them.
  Supervisor(std::vector<JobProcess>& processes, const SupervisorOptions& options, Terminals& terminals,
             FileDescriptor& signals);

  // Returns the exit code of the job: 0, the first failing process's, 128 + signal, or 124 at the time limit.
  // Afterwards no process of the job is left and all output is passed on.
  int run();

  // Whether output was lost on the way to the launcher's own streams.
  bool outputLost() const { return outputLost_; }

 private:
  enum class Phase { kRunning, kReporting, kTerminating, kKilling };

  bool allEnded() const;
  bool anyPipeOpen() const;
  void say(const std::string& line);
  void signalAll(int signal);
  void enter(Phase phase, std::chrono::milliseconds duration);

  // Waits for something to happen, at most until `deadline`, and passes on output.
  void step(Deadline deadline);
  void pollOnce(Deadline deadline);
  void takeSignals();
  void takeEnds();
  void onFirstFailure(JobProcess& failed);
  void tellOthers(const JobProcess& ended);
  void onSignal(int signal);
  void onDeadline();

  // After the last process ended: remaining output, remaining processes, the report.
  void finish();
  void pumpUntilClosed(Deadline deadline);
  void reportOthers();
  void flush();

  std::vector<JobProcess>& processes_;
  const SupervisorOptions options_;
  Terminals& terminals_;
  FileDescriptor& signals_;
  Phase phase_ = Phase::kRunning;
  Deadline deadline_;
  int exitCode_ = 0;
  JobProcess* firstFailure_ = nullptr;
  std::vector<const JobProcess*> laterFailures_;                   // by themselves, before we ended them
  std::vector<std::pair<JobProcess*, OutputPump::Stream>> ready_;  // pipes with something to read
  Deadline nextOrphanCheck_;
  bool interrupted_ = false;  // a signal came during flush()
  bool flushing_ = false;
  bool gaveUp_ = false;
  bool outputLost_ = false;
};

}  // namespace farhop::launcher
