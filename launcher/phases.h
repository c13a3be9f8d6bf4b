// What `farhop run` can do before it starts the trainers: partition, dispatch, check. Each is the command of that name, run
// as a process of its own, and none does again what is done.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/host_flags.h"

namespace farhop::launcher {

struct PhaseFlags {
  std::string raw;  // data set to partition first; empty: no such phase
  int parts = 0;    // 0: one per machine
  std::vector<std::string> partitionOptions;  // NAME or NAME=VALUE, further flags of farhop partition
  bool dispatch = false, check = false;
};

void addPhaseFlags(CLI::App& run, PhaseFlags& flags);

struct PhasePlan {
  PhaseFlags flags;
  HostFlags hosts;
  std::string graph;  // absolute
  int machines = 1;
};

// The commands, in order. InvalidArgument for flags that lack what they need.
absl::StatusOr<std::vector<std::vector<std::string>>> phaseCommands(const PhasePlan& plan);

// Runs them. The exit code of the first that fails, 128 + signal when one ended them, otherwise 0. A partitioning is
// skipped when the store was made from these files (their checksums are beside the store) with these flags.
absl::StatusOr<int> runPhases(const PhasePlan& plan);

}  // namespace farhop::launcher
