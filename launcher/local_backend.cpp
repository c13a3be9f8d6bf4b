#include "launcher/local_backend.h"

#include <limits.h>
#include <unistd.h>

namespace farhop::launcher {

std::string ownProgram() {
  char path[PATH_MAX];
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof(path));
  return bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : "farhop";
}

Machines localMachines(const RunOptions& options, const std::string& jobId) {
  Machines machines;
  machines.jobId = jobId;
  machines.masterAddr = kLocalAddress;
  AgentCommand agent;
  // Executed as what runs now, even when its file is replaced meanwhile.
  agent.argv = {"/proc/self/exe", "agent"};
  agent.address = kLocalAddress;
  machines.agents.assign(static_cast<size_t>(options.machines), agent);
  return machines;
}

}  // namespace farhop::launcher
