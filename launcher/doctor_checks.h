// All checks that `farhop doctor` makes of one machine, and how they travel.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/machine_checks.h"
#include "runtime/binding_choice.h"

namespace farhop::launcher {

struct DoctorOptions {
  MachineShape shape;
  bool playsAll = true;    // this machine plays all of the job
  std::string graph;       // absolute, or empty: nothing is checked of it
  bool checksums = true;   // read the partitions as a whole
  uint16_t masterPort = 0;  // 0: free ones are chosen at the start
  std::string interface;    // of machine 0; empty: the one by which it is reached
  runtime::BindingChoice binding;
  std::string fabric;        // FARHOP_FABRIC
  uint64_t batchNodes = 50'000;
};

nlohmann::json toJson(const DoctorOptions& options);
// Throws nlohmann::json::exception for what is none.
DoctorOptions doctorOptionsFrom(const nlohmann::json& json);

// In the order in which they are shown. Reads all of the machine's partitions where options.checksums says so.
std::vector<CheckResult> checkThisMachine(const DoctorOptions& options, const std::string& version);

// Each check is a function of its own; these need more than a system call.
CheckResult checkInterface(const DoctorOptions& options);
CheckResult checkPorts(const DoctorOptions& options);
// Runs the helper `program`, which loads libfabric.
CheckResult checkFabric(const std::string& program, const std::string& fabric);
CheckResult checkCores(const DoctorOptions& options);
// Also says how many bytes there are of the partitions that the machine serves, and of a node's features.
struct PartitionCheck {
  CheckResult result;
  uint64_t bytes = 0;
  uint64_t rowBytes = 0;
};
PartitionCheck checkPartition(const DoctorOptions& options);

nlohmann::ordered_json toJson(const std::vector<CheckResult>& results);
// InvalidArgument for anything else.
absl::StatusOr<std::vector<CheckResult>> checksFrom(const nlohmann::json& json);

}  // namespace farhop::launcher
