// What a launcher tells its trainers: that a process of the job has ended, and how. And what they tell it: how far they
// have come with their start.
//
// Only the launcher sees the end of a process that has not been in touch with any other yet. It gives each trainer one
// end of a socket pair (SOCK_SEQPACKET, number in FARHOP_LAUNCHER_FD) and writes one message per ended process into the
// other. A message is one line of fields with tabs between them:
//
//   ended  MACHINE  PROCESS  ADDRESS  clean|failed  HOW
//
// and in the other direction one per stage of a start (job_status.h has the states; seconds since the process began):
//
//   stage  MACHINE  PROCESS  STATE  SECONDS  PEAK_BYTES
//
// ADDRESS says where the process ran ("127.0.0.1 pid 4711"), HOW how it ended ("signal 9 (SIGKILL)"). Readers ignore
// messages of another kind and further fields; a launcher that reads none loses nothing. No libtorch here: the launcher includes this.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/status.h"
#include "runtime/job_status.h"

namespace farhop::runtime {

inline constexpr size_t kMaxJobNewsBytes = 1'024;

struct ProcessEnded {
  PeerName process;    // its address as above
  bool clean = false;  // exit code 0: no failure, unless others still waited for it
  std::string how;
};

// At most kMaxJobNewsBytes; texts that are too long are cut, control characters become spaces.
std::string encodeJobNews(const ProcessEnded& news);
// nullopt for anything that is no such message.
std::optional<ProcessEnded> decodeJobNews(const std::string& message);

struct StageReached {
  int machine = 0, proc = 0;
  ProcessState state = ProcessState::kStarting;
  double seconds = 0;
  uint64_t peakBytes = 0;
};

std::string encodeStageNews(const StageReached& news);
std::optional<StageReached> decodeStageNews(const std::string& message);

}  // namespace farhop::runtime
