// What a process of a job says of itself to whoever of its user asks on the same machine (`farhop ps`), and where.
//
// Each process listens on an abstract socket, named after user, job, machine and process. Who connects gets one text
// and the end of the stream; nothing is read from them, so there is nothing to parse on the trainer's side. The text's
// first line is "farhop-status 1", then come lines of a name, a tab and a value. Readers ignore names that they do not
// know, and processes of another user. No libtorch here: the launcher includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

inline constexpr size_t kMaxStatusBytes = 4'096;

enum class ProcessState {
  kStarting,    // has not met anybody yet
  kWaiting,     // at the start gate
  kConnecting,  // meets and connects its worker group
  kReady,       // its group is connected
  kTraining,    // a loader's epoch has begun
  kLeaving,
};
const char* stateName(ProcessState state);  // "waiting"
absl::StatusOr<ProcessState> stateOfName(absl::string_view name);

struct ProcessStatus {
  std::string jobId;
  int machine = 0, proc = 0;
  int numMachines = 1, procsPerMachine = 1;
  int64_t pid = 0;
  std::string host;
  ProcessState state = ProcessState::kStarting;
  double upSeconds = 0;        // since its start
  double gateSeconds = -1;     // from its start until it passed the gate; -1 while it has not
  double readySeconds = -1;    // likewise until its group was connected
  int64_t epoch = -1;          // that the loader last began; -1: none
  uint64_t batches = 0;        // handed out, over all epochs
  double batchesPerSecond = 0; // of the last ten seconds
  uint64_t residentBytes = 0, peakBytes = 0;
};

// At most kMaxStatusBytes.
std::string encodeProcessStatus(const ProcessStatus& status);
// InvalidArgument for anything that is no such text. Numbers out of range of what a job may have are refused.
absl::StatusOr<ProcessStatus> decodeProcessStatus(absl::string_view text);

// The abstract socket's name.
std::string statusSocketName(const LaunchContract& contract);
// Names of all such sockets of this user on this machine (in this network namespace), in order.
std::vector<std::string> listStatusSockets();

// Asks all of them at once. Who does not answer before the deadline, belongs to another user or has gone is left out,
// and named in `missing` where that is given.
std::vector<ProcessStatus> askProcesses(const std::vector<std::string>& sockets, Deadline deadline,
                                        std::vector<std::string>* missing = nullptr);

}  // namespace farhop::runtime
