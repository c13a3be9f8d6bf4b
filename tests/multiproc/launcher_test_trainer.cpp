// What the launcher's tests start: it tells what it got, or behaves badly on request.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/socket.h"
#include "runtime/launch_contract.h"

namespace {

using farhop::runtime::LaunchContract;

std::string hex(const std::string& text) {
  std::string result;
  char digits[3];
  for (unsigned char c : text) {
    std::snprintf(digits, sizeof(digits), "%02x", c);
    result += digits;
  }
  return result;
}

// The listening socket that was handed over, as a port; 0 without one, -1 when it is no listening socket.
int listenerPort(const LaunchContract& contract) {
  if (contract.masterFd < 0) return 0;
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (::getsockopt(contract.masterFd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    return -1;
  const auto port = farhop::boundPort(contract.masterFd);
  return port.ok() ? *port : -1;
}

// What the descriptors from 3 on refer to.
std::vector<std::string> descriptors() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the iterator's own is gone or a directory
    const std::string target = std::filesystem::read_symlink(entry.path(), closed);
    if (!closed && std::atoi(entry.path().filename().c_str()) > 2 && target.rfind("/proc/", 0) != 0) {
      result.push_back(target);
    }
  }
  return result;
}

// One line of JSON: place, arguments in hex (they may be any bytes), the variables of interest.
int describe(const LaunchContract& contract, int argc, char** argv) {
  nlohmann::json result;
  result["machine"] = contract.machine;
  result["proc"] = contract.proc;
  result["numMachines"] = contract.numMachines;
  result["procsPerMachine"] = contract.procsPerMachine;
  result["masterPort"] = contract.masterPort;
  result["jobId"] = contract.jobId;
  result["token"] = contract.token;
  result["graph"] = contract.graph;
  result["start"] = farhop::runtime::formatStartMode(contract.start);
  result["descriptors"] = descriptors();
  result["listenerPort"] = listenerPort(contract);
  for (int i = 0; i < argc; ++i) result["argv"].push_back(hex(argv[i]));
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
                           "MASTER_ADDR", "MASTER_PORT", "ADDED", "FARHOP_MASTER_FD"}) {
    const char* value = std::getenv(name);
    result["env"][name] = value != nullptr ? nlohmann::json(value) : nlohmann::json();
  }
  char directory[4096];
  result["workdir"] = ::getcwd(directory, sizeof(directory)) != nullptr ? directory : "";
  result["group"] = ::getpgid(0) == ::getpid();
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

// Ends only by SIGKILL.
int stubborn() {
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);
  std::printf("stubborn\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

int lines(long count, int bytes) {
  const std::string padding(static_cast<size_t>(bytes), '.');
  for (long i = 0; i < count; ++i) std::printf("%ld%s\n", i, padding.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "describe";
  if (mode == "stubborn") return stubborn();
  if (mode == "lines") return lines(std::atol(argv[2]), argc > 3 ? std::atoi(argv[3]) : 0);
  const auto contract = farhop::runtime::readLaunchContract(farhop::runtime::processEnvironment());
  if (!contract.ok()) {
    std::fprintf(stderr, "%s\n", contract.status().ToString().c_str());
    return 99;
  }
  return describe(*contract, argc, argv);
}
