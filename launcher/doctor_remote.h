// `farhop doctor --hosts`: the checks of several machines at once, and those that take two: versions, clocks, ports.
//
// On each host runs `farhop doctor --serve`, over ssh. It writes "FARHOP-DOCTOR " and a JSON object with its protocol and
// version in one line (whatever a login shell prints before it is skipped), then answers requests, a JSON object per line
// each way: {"do":"clock"}, {"do":"checks", ...}, {"do":"listen","ports":[...]} and {"do":"connect","targets":[...]}. It
// ends with its standard input. A listener of it sends its own word to who connects, so that another program's port is not
// taken for it.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor_checks.h"

namespace farhop::launcher {

inline constexpr int kDoctorProtocol = 1;
inline constexpr char kDoctorMagic[] = "FARHOP-DOCTOR ";

struct DoctorHost {
  std::string name;                  // for people
  std::string address;               // of its processes; empty: the one that it finds itself
  std::vector<std::string> command;  // starts `farhop doctor --serve` there
};

struct MachineReport {
  std::string name;
  std::vector<CheckResult> checks;

  bool red() const;
};

// One report per host, in order; a host that cannot be reached has one red check. At most `timeout` for each step that
// all do at once.
std::vector<MachineReport> examineHosts(const std::vector<DoctorHost>& hosts, const DoctorOptions& options,
                                        const std::string& version, std::chrono::milliseconds timeout);

// The other side, on standard input and output. Returns its exit code.
int serveDoctor(const std::string& version);

}  // namespace farhop::launcher
