// The staged start as the launcher tells it: one line per worker group, once all its processes are ready.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job_news.h"

namespace farhop::launcher {

class StartReport {
 public:
  StartReport(int machines, int procs) : machines_(machines), procs_(procs) {}

  // A process tells of a stage (runtime/job_news.h). The group's line when it was the last that the group waited for:
  // "group 3 ready after 4.2 s: waiting 3.1 s, connecting 1.1 s, peak memory 212.0 MB of a process". Stages of a process that is none
  // of the job's, of later than the start, and told twice are ignored.
  std::optional<std::string> take(const runtime::StageReached& stage);

 private:
  struct Process {
    double gateSeconds = 0;
    double readySeconds = -1;
    uint64_t peakBytes = 0;
  };
  int machines_, procs_;
  std::map<int, std::map<int, Process>> groups_;  // by process number, then by machine
};

}  // namespace farhop::launcher
