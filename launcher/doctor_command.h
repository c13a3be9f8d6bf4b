// farhop doctor: says before anything starts whether the machines of a job are fit for it.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor_remote.h"

namespace CLI {
class App;
}

namespace farhop::launcher {

// A table with a line per check of each machine; green, yellow and red where `colored`.
std::string reportTable(const std::vector<MachineReport>& reports, bool colored);
std::string reportJson(const std::vector<MachineReport>& reports);

// As addRunCommand(). Exit code 1 when a check is red.
void addDoctorCommand(CLI::App& app, const std::string& version, int* exitCode);

}  // namespace farhop::launcher
