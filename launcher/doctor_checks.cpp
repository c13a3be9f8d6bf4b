#include "launcher/doctor_checks.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/memory_info.h"
#include "launcher/agent.h"
#include "launcher/agent_protocol.h"
#include "launcher/job.h"
#include "launcher/local_backend.h"
#include "launcher/process.h"
#include "launcher/text_table.h"
#include "partition/graph_store.h"
#include "runtime/launch_contract.h"
#include "runtime/topology.h"

namespace farhop::launcher {
namespace {

constexpr std::chrono::milliseconds kProbeTime{20'000};
constexpr size_t kMaxProbeBytes = size_t{64} << 10;
constexpr size_t kMaxChecks = 1'000;

std::string messageOf(const absl::Status& status) { return std::string(status.message()); }

// All that a program writes to its output; OK only when it ended with exit code 0.
absl::StatusOr<std::string> outputOf(const std::string& program) {
  SpawnRequest request;
  request.program = program;
  request.arguments = {program};
  for (char** entry = ::environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
  request.workingDirectory = "/";
  FARHOP_ASSIGN_OR_RETURN(Process process, Process::spawn(request));
  const FileDescriptor pipes[] = {process.takeOut(), process.takeErr()};
  std::string texts[2];
  const Deadline deadline = Deadline::after(kProbeTime);
  for (bool open[] = {true, true}; open[0] || open[1];) {
    pollfd entries[] = {{open[0] ? pipes[0].get() : -1, POLLIN, 0}, {open[1] ? pipes[1].get() : -1, POLLIN, 0}};
    if (::poll(entries, 2, deadline.remainingMs()) == 0) {
      return absl::DeadlineExceededError(absl::StrCat(program, " did not end within ", kProbeTime.count() / 1000, " s"));
    }
    for (int i = 0; i < 2; ++i) {
      char buffer[4'096];
      if (entries[i].revents == 0) continue;
      const ssize_t n = ::read(pipes[i].get(), buffer, sizeof(buffer));
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n <= 0) open[i] = false;
      if (n > 0 && texts[i].size() < kMaxProbeBytes) texts[i].append(buffer, static_cast<size_t>(n));
    }
  }
  pollfd end{process.pidFd(), POLLIN, 0};
  (void)::poll(&end, 1, deadline.remainingMs());
  const auto how = process.end();
  if (how && !how->failed()) return texts[0];
  return absl::UnavailableError(absl::StrCat(how ? how->text() : "it does not end", texts[1].empty() ? "" : ": ",
                                             texts[1].substr(0, texts[1].find('\n'))));
}

// Files of a partition, without looking into them.
uint64_t directoryBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator file(path, error), end; !error && file != end; file.increment(error)) {
    std::error_code gone;
    const uint64_t size = file->is_regular_file(gone) ? file->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

uint64_t widestRow(const partition::Schema& schema) {
  uint64_t widest = 0;
  for (const partition::NodeType& type : schema.nodeTypes) {
    uint64_t bytes = 0;
    for (const partition::FeatureSpec& feature : type.features) bytes += feature.rowBytes();
    widest = std::max(widest, bytes);
  }
  return widest;
}

}  // namespace

CheckResult checkInterface(const DoctorOptions& options) {
  CheckResult result{"network", CheckState::kGreen, "all machines are this one: 127.0.0.1", ""};
  if (options.playsAll) return result;
  const auto address = findOwnAddress(options.shape.machine == 0 ? options.interface : "");
  if (address.ok()) {
    result.what = absl::StrCat("others reach this machine by ", *address);
  } else {
    result = {"network", CheckState::kRed, messageOf(address.status()),
              "name the right interface with --iface, or the address with addr= in the host file"};
  }
  return result;
}

CheckResult checkPorts(const DoctorOptions& options) {
  CheckResult result{"ports", CheckState::kGreen, "groups meet on machine 0", ""};
  if (options.shape.machine != 0) return result;
  const auto base = options.masterPort != 0 ? std::optional(options.masterPort) : std::nullopt;
  const auto ports = reservePorts(options.playsAll ? kLocalAddress : "", options.shape.procs, base);
  if (!ports.ok()) {
    return {"ports", CheckState::kRed, messageOf(ports.status()), "choose another --master-port, or none: free ones are found then"};
  }
  result.what = absl::StrCat(base ? "free: " : "none asked for; free at the moment: ", ports->base, " to ",
                             ports->base + options.shape.procs - 1);
  return result;
}

CheckResult checkFabric(const std::string& program, const std::string& fabric) {
  const bool wanted = !fabric.empty() && fabric != "none" && fabric != "auto";
  const CheckState missing = wanted ? CheckState::kRed : CheckState::kYellow;
  const auto text = outputOf(program);
  if (!text.ok()) {
    return {"libfabric", missing, messageOf(text.status()),
            wanted ? "install libfabric1, or unset FARHOP_FABRIC" : "features travel over TensorPipe; install libfabric1 for bulk transfers"};
  }
  std::vector<std::string> usable, others;
  std::string version = "?";
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() >= 2 && words[0] == "version") version = words[1];
    if (words.size() >= 2 && words[0] == "provider") (words.size() > 2 ? usable : others).push_back(words[1]);
  }
  CheckResult result{"libfabric", CheckState::kGreen,
                     absl::StrCat(version, ": ", usable.empty() ? "nothing usable" : absl::StrJoin(usable, ", "),
                                  others.empty() ? "" : absl::StrCat("; also ", absl::StrJoin(others, ", "))),
                     ""};
  if (usable.empty()) {
    result.state = missing;
    result.todo = "none of verbs;ofi_rxm, efa, psm2, tcp;ofi_rxm is there: see FI_PROVIDER";
  }
  return result;
}

CheckResult checkCores(const DoctorOptions& options) {
  const auto topology = runtime::Topology::ofThisMachine();
  const auto plan = topology.ok() ? planBinding(*topology, options.shape.procs, 0, options.binding)
                                  : absl::StatusOr<runtime::BindingPlan>(topology.status());
  if (!plan.ok()) return {"cores", CheckState::kYellow, messageOf(plan.status()), "processes run unbound, see taskset -p and the cgroup's cpuset"};
  std::set<int> nodes;
  size_t processors = 0;
  for (const runtime::Core& core : topology->cores()) {
    nodes.insert(core.node);
    processors += core.processors.size();
  }
  CheckResult result{"cores", CheckState::kGreen,
                     absl::StrCat(plan->allowedCores, plan->allowedCores == 1 ? " core" : " cores", " with ", processors,
                                  " logical processors on ", nodes.size(), nodes.size() == 1 ? " NUMA node" : " NUMA nodes",
                                  "; bind ", formatBindingChoice(options.binding), ": p0 has ", plan->text()),
                     ""};
  if (plan->shared) {
    result.state = CheckState::kYellow;
    result.todo = absl::StrCat(options.shape.procs, " processes share them; fewer run faster (farhop doctor --bindings)");
  }
  return result;
}

PartitionCheck checkPartition(const DoctorOptions& options) {
  PartitionCheck check;
  check.result = {"partitions", CheckState::kGreen, "no graph was named (--graph)", ""};
  if (options.graph.empty()) return check;
  const auto failed = [&](const absl::Status& status) {
    check.result = {"partitions", CheckState::kRed, messageOf(status), "copy the store again (farhop dispatch), or partition again"};
    return check;
  };
  const auto store = partition::GraphStore::open(options.graph);
  if (!store.ok()) return failed(store.status());
  const auto owners = (*store)->assign(options.playsAll ? 1 : options.shape.machines);
  if (!owners.ok()) return failed(owners.status());
  std::vector<int> own;
  for (size_t k = 0; k < owners->size(); ++k) {
    if (!options.playsAll && (*owners)[k] != options.shape.machine) continue;
    own.push_back(static_cast<int>(k));
    const auto shard = (*store)->openPartition(static_cast<int>(k));
    if (!shard.ok()) return failed(shard.status());
    check.bytes += directoryBytes(absl::StrFormat("%s/part-%05d", options.graph, k));
  }
  if (options.checksums) {
    const absl::Status sound = (*store)->verifyChecksums(own, 0, 1, true, {});
    if (!sound.ok()) return failed(sound);
  }
  check.rowBytes = widestRow((*store)->schema());
  check.result.what = absl::StrCat(own.size(), " of ", (*store)->numPartitions(), " are served here, ", formatBytes(check.bytes),
                                   options.checksums ? ", checksums right" : ", present, checksums not compared");
  return check;
}

std::vector<CheckResult> checkThisMachine(const DoctorOptions& options, const std::string& version) {
  MachineShape here = options.shape;
  if (options.playsAll) here.procs *= here.machines;
  const std::string probe = (std::filesystem::path(ownProgram()).parent_path() / "farhop-fabric-probe").string();
  const PartitionCheck partition = checkPartition(options);
  const MemoryEstimate estimate = estimateMemory({options.shape, partition.bytes, partition.rowBytes,
                                                  partition.rowBytes > 0 ? options.batchNodes : 0});
  return {{"version", CheckState::kGreen, absl::StrCat("farhop ", version, ", agent protocol ", kAgentProtocol), ""},
          checkInterface(options),
          checkPorts(options),
          checkOpenFiles(options.shape),
          checkLockedMemory(options.fabric),
          checkSharedMemory("/dev/shm"),
          checkFabric(probe, options.fabric),
          checkCores(options),
          partition.result,
          checkMemory(here, estimate, availableMemoryBytes())};
}

nlohmann::json toJson(const DoctorOptions& options) {
  return {{"machines", options.shape.machines}, {"machine", options.shape.machine}, {"procs", options.shape.procs},
          {"plays_all", options.playsAll}, {"graph", options.graph}, {"checksums", options.checksums},
          {"master_port", options.masterPort}, {"iface", options.interface},
          {"bind", formatBindingChoice(options.binding)}, {"fabric", options.fabric}, {"batch_nodes", options.batchNodes}};
}

DoctorOptions doctorOptionsFrom(const nlohmann::json& json) {
  DoctorOptions options;
  options.shape.machines = std::clamp(json.at("machines").get<int>(), 1, runtime::kMaxMachines);
  options.shape.machine = std::clamp(json.at("machine").get<int>(), 0, options.shape.machines - 1);
  options.shape.procs = std::clamp(json.at("procs").get<int>(), 1, runtime::kMaxProcsPerMachine);
  options.playsAll = json.at("plays_all").get<bool>();
  options.graph = json.at("graph").get<std::string>();
  options.checksums = json.at("checksums").get<bool>();
  options.masterPort = json.at("master_port").get<uint16_t>();
  options.interface = json.at("iface").get<std::string>();
  if (const auto choice = runtime::parseBindingChoice(json.at("bind").get<std::string>()); choice.ok()) options.binding = *choice;
  options.fabric = json.at("fabric").get<std::string>();
  options.batchNodes = std::min<uint64_t>(json.at("batch_nodes").get<uint64_t>(), 1'000'000'000);
  return options;
}

nlohmann::ordered_json toJson(const std::vector<CheckResult>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CheckResult& result : results) {
    list.push_back({{"name", result.name}, {"state", stateName(result.state)}, {"what", result.what}, {"todo", result.todo}});
  }
  return list;
}

absl::StatusOr<std::vector<CheckResult>> checksFrom(const nlohmann::json& json) {
  try {
    std::vector<CheckResult> results;
    if (!json.is_array() || json.size() > kMaxChecks) return absl::InvalidArgumentError("this is no list of checks");
    for (const nlohmann::json& entry : json) {
      const std::string state = entry.at("state").get<std::string>();
      results.push_back({entry.at("name").get<std::string>(),
                         state == "ok" ? CheckState::kGreen : state == "warning" ? CheckState::kYellow : CheckState::kRed,
                         entry.at("what").get<std::string>(), entry.at("todo").get<std::string>()});
    }
    return results;
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("this is no list of checks: ", error.what()));
  }
}

}  // namespace farhop::launcher
