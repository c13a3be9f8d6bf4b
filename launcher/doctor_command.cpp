#include "launcher/doctor_command.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "launcher/binding_drawing.h"
#include "launcher/host_flags.h"
#include "launcher/run_command.h"
#include "launcher/run_options.h"
#include "launcher/ssh_backend.h"
#include "launcher/text_table.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {
namespace {

struct DoctorFlags {
  DoctorOptions options;
  HostFlags hosts;
  std::string bind = "core", bindThreads = "share", graph, timeout = "600", topology, record;
  bool noChecksums = false, json = false, bindings = false, serve = false;
  bool machinesGiven = false, procsGiven = false;
  int masterPort = 0;
};

int report(const absl::Status& status, int exitCode) {
  std::fprintf(stderr, "farhop doctor: %s\n", std::string(status.message()).c_str());
  return exitCode;
}

absl::StatusOr<runtime::BindingChoice> bindingOf(const DoctorFlags& typed) {
  FARHOP_ASSIGN_OR_RETURN(runtime::BindingChoice choice, runtime::parseBindingChoice(typed.bind));
  if (typed.bindThreads == "split") choice.splitThreads = choice.to != runtime::BindTo::kNone;
  return choice;
}

// A file in hwloc's XML; what is no file is a synthetic description.
absl::StatusOr<runtime::Topology> topologyOf(const std::string& text) {
  if (text.empty()) return runtime::Topology::ofThisMachine();
  if (!pathExists(text)) return runtime::Topology::synthetic(text);
  FARHOP_ASSIGN_OR_RETURN(const std::string xml, readFile(text));
  return runtime::Topology::fromXml(xml);
}

absl::StatusOr<std::string> bindings(const DoctorFlags& typed) {
  FARHOP_ASSIGN_OR_RETURN(const runtime::Topology topology, topologyOf(typed.topology));
  if (!typed.record.empty()) {
    FARHOP_ASSIGN_OR_RETURN(const std::string xml, topology.xml());
    FARHOP_RETURN_IF_ERROR(writeFileAtomically(typed.record, xml));
  }
  FARHOP_ASSIGN_OR_RETURN(const runtime::BindingChoice choice, bindingOf(typed));
  return drawBindings(topology, typed.options.shape.procs, choice);
}

absl::StatusOr<std::vector<DoctorHost>> hostsOf(DoctorFlags& typed) {
  RunOptions run;
  run.machines = typed.options.shape.machines;
  run.procs = typed.options.shape.procs;
  run.hostFile = typed.hosts.hostFile;
  FARHOP_RETURN_IF_ERROR(applyHostFile(run, {typed.machinesGiven, typed.procsGiven}));
  FARHOP_ASSIGN_OR_RETURN(const SshOptions ssh, sshOptionsOf(typed.hosts));
  typed.options.shape = {run.machines, 0, run.procs};
  std::vector<DoctorHost> hosts;
  for (const Host& host : run.hosts) {
    hosts.push_back({host.label, host.address, sshCommand(ssh, host, {farhopOf(typed.hosts), "doctor", "--serve"})});
  }
  return hosts;
}

absl::StatusOr<std::vector<MachineReport>> examine(DoctorFlags& typed, const std::string& version) {
  auto timeout = parseSeconds(typed.timeout, 1);
  if (!timeout.ok()) return annotate(timeout.status(), "--timeout");
  if (!typed.graph.empty()) {
    FARHOP_ASSIGN_OR_RETURN(typed.options.graph, absolutePath(typed.graph));
  }
  typed.options.checksums = !typed.noChecksums;
  typed.options.masterPort = static_cast<uint16_t>(typed.masterPort);
  FARHOP_ASSIGN_OR_RETURN(typed.options.binding, bindingOf(typed));
  const char* fabric = std::getenv("FARHOP_FABRIC");
  typed.options.fabric = fabric == nullptr ? "" : fabric;
  if (typed.hosts.hostFile.empty()) {
    return std::vector<MachineReport>{{"this machine", checkThisMachine(typed.options, version)}};
  }
  FARHOP_ASSIGN_OR_RETURN(const std::vector<DoctorHost> hosts, hostsOf(typed));
  return examineHosts(hosts, typed.options, version, *timeout);
}

int executeDoctor(DoctorFlags& typed, const std::string& version) {
  if (typed.serve) return serveDoctor(version);
  if (typed.bindings) {
    const auto text = bindings(typed);
    if (!text.ok()) return report(text.status(), kFailedExitCode);
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  const auto reports = examine(typed, version);
  if (!reports.ok()) return report(reports.status(), absl::IsInvalidArgument(reports.status()) ? kUsageExitCode : kFailedExitCode);
  const char* noColor = std::getenv("NO_COLOR");
  const bool colored = ::isatty(STDOUT_FILENO) == 1 && (noColor == nullptr || *noColor == '\0');
  std::fputs((typed.json ? reportJson(*reports) : reportTable(*reports, colored)).c_str(), stdout);
  const bool red = std::any_of(reports->begin(), reports->end(), [](const MachineReport& one) { return one.red(); });
  return red ? kFailedExitCode : 0;
}

std::string painted(const std::string& text, CheckState state, bool colored) {
  if (!colored) return text;
  const char* code = state == CheckState::kGreen ? "32" : state == CheckState::kYellow ? "33" : "31";
  return absl::StrCat("\033[", code, "m", text, "\033[0m");
}

}  // namespace

std::string reportTable(const std::vector<MachineReport>& reports, bool colored) {
  std::string text;
  size_t width = 0;
  for (const MachineReport& one : reports) {
    for (const CheckResult& check : one.checks) width = std::max(width, check.name.size());
  }
  for (const MachineReport& one : reports) {
    const bool yellow = std::any_of(one.checks.begin(), one.checks.end(), [](const CheckResult& c) { return c.state == CheckState::kYellow; });
    const CheckState worst = one.red() ? CheckState::kRed : yellow ? CheckState::kYellow : CheckState::kGreen;
    absl::StrAppend(&text, painted(worst == CheckState::kRed ? "red  " : "green", worst, colored), "  ", one.name, "\n");
    for (const CheckResult& check : one.checks) {
      const std::string state = stateName(check.state);
      absl::StrAppend(&text, "  ", painted(state, check.state, colored), std::string(9 - state.size(), ' '), check.name,
                      std::string(width - check.name.size() + 2, ' '), check.what, "\n");
      if (!check.todo.empty()) absl::StrAppend(&text, std::string(11 + width + 2, ' '), "-> ", check.todo, "\n");
    }
  }
  return text;
}

std::string reportJson(const std::vector<MachineReport>& reports) {
  nlohmann::ordered_json json{{"ok", true}, {"machines", nlohmann::ordered_json::array()}};
  for (const MachineReport& one : reports) {
    if (one.red()) json["ok"] = false;
    json["machines"].push_back({{"machine", one.name}, {"ok", !one.red()}, {"checks", toJson(one.checks)}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void addDoctorCommand(CLI::App& app, const std::string& version, int* exitCode) {
  auto typed = std::make_shared<DoctorFlags>();
  CLI::App* doctor = app.add_subcommand("doctor", "Say whether the machines of a job are fit for it, before anything starts");
  CLI::Option* machines = doctor->add_option("--machines,--nnodes", typed->options.shape.machines, "As of farhop run")
      ->check(wholeNumber(1, kMaxHosts))->type_name("M")->capture_default_str();
  CLI::Option* procs = doctor->add_option("--procs,--nproc-per-node", typed->options.shape.procs, "As of farhop run")
      ->check(wholeNumber(1, runtime::kMaxProcsPerMachine))->type_name("P")->capture_default_str();
  addHostFlags(*doctor, typed->hosts);
  doctor->add_option("--graph", typed->graph, "Graph store whose partitions are checked")->type_name("DIR")->envname(runtime::kEnvGraph);
  doctor->add_flag("--no-checksums", typed->noChecksums, "Do not read the partitions as a whole");
  doctor->add_option("--master-port", typed->masterPort, "As of farhop run")->check(wholeNumber(1, 65'535))->type_name("PORT");
  doctor->add_option("--iface", typed->options.interface, "As of farhop run")->type_name("NAME");
  doctor->add_option("--batch-nodes", typed->options.batchNodes, "Nodes of a batch, for the memory estimate")->type_name("N")->capture_default_str();
  doctor->add_option("--bind", typed->bind, "As of farhop run")->type_name("WHERE")->envname(runtime::kEnvBind)->capture_default_str();
  doctor->add_option("--bind-threads", typed->bindThreads, "As of farhop run")->check(CLI::IsMember({"share", "split"}))->capture_default_str();
  doctor->add_option("--timeout", typed->timeout, "Seconds for what all machines do at once")->type_name("SECONDS")->capture_default_str();
  doctor->add_flag("--json", typed->json, "As JSON");
  doctor->add_flag("--bindings", typed->bindings, "Draw this machine's cores and the processes on them, and check nothing");
  doctor->add_option("--topology", typed->topology, "With --bindings: of another machine, recorded in hwloc's XML or described in its "
                     "words (\"numa:2 core:8 pu:2\")")->type_name("FILE");
  doctor->add_option("--record", typed->record, "With --bindings: also write the topology to this file")->type_name("FILE");
  doctor->add_flag("--serve", typed->serve, "Answer a farhop doctor on another machine (internal)")->group("");
  doctor->callback([typed, machines, procs, version, exitCode] {
    typed->machinesGiven = machines->count() > 0;
    typed->procsGiven = procs->count() > 0;
    *exitCode = executeDoctor(*typed, version);
  });
}

}  // namespace farhop::launcher
