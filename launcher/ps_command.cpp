#include "launcher/ps_command.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>

#include "launcher/farhop_on_hosts.h"
#include "launcher/job_processes.h"
#include "launcher/run_command.h"
#include "launcher/run_options.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;
using runtime::ProcessState;
using runtime::ProcessStatus;

// A process that is stopped or starved does not hold up the table.
constexpr std::chrono::milliseconds kAnswerTime{1'000};
constexpr std::chrono::milliseconds kLookTime{20'000};
constexpr size_t kMaxProcesses = 100'000;

auto placeOf(const ProcessStatus& status) { return std::tie(status.jobId, status.machine, status.proc, status.pid); }

// Of the processes with a place in a job but without an endpoint the eldest of each place: the others are what it
// started itself.
void addStarting(const std::string& jobId, JobView* view) {
  std::set<std::tuple<std::string, int, int>> seen;
  for (const ProcessStatus& status : view->processes) seen.emplace(status.jobId, status.machine, status.proc);
  for (const FoundProcess& process : findJobProcesses(jobId)) {
    if (process.machine < 0 || process.proc < 0) continue;
    if (!seen.emplace(process.jobId, process.machine, process.proc).second) continue;
    ProcessStatus status;
    status.jobId = process.jobId;
    status.machine = process.machine;
    status.proc = process.proc;
    status.pid = process.pid;
    char host[256] = {};
    status.host = ::gethostname(host, sizeof(host) - 1) == 0 ? host : "";
    view->processes.push_back(std::move(status));
  }
}

std::string secondsText(double seconds) { return seconds < 0 ? "-" : absl::StrCat(formatFixed(seconds, 1), " s"); }

std::vector<std::string> rowOf(const ProcessStatus& status) {
  const bool answered = status.residentBytes > 0;
  return {absl::StrCat("m", status.machine),
          absl::StrCat("p", status.proc),
          runtime::stateName(status.state),
          status.epoch < 0 ? "-" : std::to_string(status.epoch),
          status.state < ProcessState::kTraining ? "-" : std::to_string(status.batches),
          status.state < ProcessState::kTraining ? "-" : formatFixed(status.batchesPerSecond, 1),
          answered ? formatBytes(status.residentBytes) : "-",
          answered ? formatBytes(status.peakBytes) : "-",
          secondsText(status.readySeconds),
          answered ? secondsText(status.upSeconds) : "-",
          status.host,
          std::to_string(status.pid)};
}

std::string jobTable(const std::string& jobId, const std::vector<const ProcessStatus*>& processes) {
  double rate = 0;
  uint64_t bytes = 0;
  int machines = 0, procs = 0;
  std::vector<std::vector<std::string>> rows = {{"machine", "group", "state", "epoch", "batches", "batches/s", "memory",
                                                 "peak", "ready after", "up", "host", "pid"}};
  for (const ProcessStatus* status : processes) {
    rows.push_back(rowOf(*status));
    rate += status->batchesPerSecond;
    bytes += status->residentBytes;
    machines = std::max(machines, status->numMachines);
    procs = std::max(procs, status->procsPerMachine);
  }
  return absl::StrCat("job ", jobId, ": ", processes.size(), " of ", std::max<size_t>(processes.size(), static_cast<size_t>(machines) * static_cast<size_t>(procs)),
                      " processes, ", formatFixed(rate, 1), " batches/s, ", formatBytes(bytes), "\n", formatTable(rows));
}

OrderedJson toJson(const ProcessStatus& status) {
  return {{"job", status.jobId},
          {"machine", status.machine},
          {"group", status.proc},
          {"machines", status.numMachines},
          {"procs", status.procsPerMachine},
          {"pid", status.pid},
          {"host", status.host},
          {"state", runtime::stateName(status.state)},
          {"epoch", status.epoch},
          {"batches", status.batches},
          {"batches_per_second", status.batchesPerSecond},
          {"resident_bytes", status.residentBytes},
          {"peak_bytes", status.peakBytes},
          {"up_seconds", status.upSeconds},
          {"gate_seconds", status.gateSeconds},
          {"ready_seconds", status.readySeconds}};
}

ProcessStatus fromJson(const OrderedJson& entry) {
  ProcessStatus status;
  status.jobId = entry.at("job").get<std::string>();
  status.machine = entry.at("machine").get<int>();
  status.proc = entry.at("group").get<int>();
  status.numMachines = entry.at("machines").get<int>();
  status.procsPerMachine = entry.at("procs").get<int>();
  status.pid = entry.at("pid").get<int64_t>();
  status.host = entry.at("host").get<std::string>();
  const auto state = runtime::stateOfName(entry.at("state").get<std::string>());
  if (state.ok()) status.state = *state;
  status.epoch = entry.at("epoch").get<int64_t>();
  status.batches = entry.at("batches").get<uint64_t>();
  status.batchesPerSecond = entry.at("batches_per_second").get<double>();
  status.residentBytes = entry.at("resident_bytes").get<uint64_t>();
  status.peakBytes = entry.at("peak_bytes").get<uint64_t>();
  status.upSeconds = entry.at("up_seconds").get<double>();
  status.gateSeconds = entry.at("gate_seconds").get<double>();
  status.readySeconds = entry.at("ready_seconds").get<double>();
  return status;
}

struct PsFlags {
  HostFlags hosts;
  std::string jobId;
  bool json = false, watch = false;
  std::string interval = "2";
};

void sortByPlace(JobView* view) {
  std::sort(view->processes.begin(), view->processes.end(),
            [](const ProcessStatus& a, const ProcessStatus& b) { return placeOf(a) < placeOf(b); });
}

// Of all hosts; who does not answer is named, and does not hide the others.
absl::StatusOr<JobView> lookAtHosts(const PsFlags& typed) {
  std::vector<std::string> words = {"ps", "--json"};
  if (!typed.jobId.empty()) words.insert(words.end(), {"--job", typed.jobId});
  FARHOP_ASSIGN_OR_RETURN(const auto answers, runFarhopOnHosts(typed.hosts, words, kLookTime));
  JobView all;
  for (const AnswerOfHost& host : answers) {
    const auto view = host.answer.ok() ? parseJobJson(host.answer->out) : absl::StatusOr<JobView>(host.answer.status());
    if (!view.ok()) {
      all.missing.push_back(absl::StrCat(host.label, ": ", view.status().message()));
      continue;
    }
    all.processes.insert(all.processes.end(), view->processes.begin(), view->processes.end());
    for (const std::string& missing : view->missing) all.missing.push_back(absl::StrCat(host.label, ": ", missing));
  }
  sortByPlace(&all);
  return all;
}

std::string textOf(const PsFlags& typed, const JobView& view) {
  if (typed.json) return jobJson(view);
  std::string text = jobTables(view);
  for (const std::string& missing : view.missing) absl::StrAppend(&text, missing, "\n");
  if (view.processes.empty()) absl::StrAppend(&text, "no processes of ", typed.jobId.empty() ? "any job" : absl::StrCat("job ", typed.jobId), "\n");
  return text;
}

// In place on a terminal: from its top, the rest of each line and of the screen cleared, so that nothing flickers.
std::string inPlace(const std::string& text) {
  std::string screen = "\033[H";
  for (const char c : text) {
    if (c == '\n') screen += "\033[K";
    screen += c;
  }
  return screen + "\033[J";
}

int executePs(const PsFlags& typed) {
  const auto interval = parseSeconds(typed.interval, 100);
  if (!interval.ok()) {
    std::fprintf(stderr, "farhop ps: --interval %s; at least 0.1\n", std::string(interval.status().message()).c_str());
    return kUsageExitCode;
  }
  const bool terminal = typed.watch && !typed.json && ::isatty(STDOUT_FILENO) == 1;
  if (terminal) std::fputs("\033[2J", stdout);
  for (;;) {
    const absl::StatusOr<JobView> view = typed.hosts.hostFile.empty() ? lookAtJobs(typed.jobId) : lookAtHosts(typed);
    if (!view.ok()) {
      std::fprintf(stderr, "farhop ps: %s\n", std::string(view.status().message()).c_str());
      return kFailedExitCode;
    }
    const std::string text = textOf(typed, *view);
    std::fputs(terminal ? inPlace(text).c_str() : text.c_str(), stdout);
    // Who read it may have gone.
    if (std::fflush(stdout) != 0) return kFailedExitCode;
    if (!typed.watch) return view->processes.empty() && !typed.jobId.empty() ? kFailedExitCode : 0;
    std::this_thread::sleep_for(*interval);
  }
}

}  // namespace

JobView lookAtJobs(const std::string& jobId) {
  JobView view;
  std::vector<std::string> missing;
  view.processes = runtime::askProcesses(runtime::listStatusSockets(), Deadline::after(kAnswerTime), &missing);
  if (!jobId.empty()) std::erase_if(view.processes, [&](const ProcessStatus& status) { return status.jobId != jobId; });
  for (const std::string& socket : missing) {
    if (socket.find(jobId) != std::string::npos) view.missing.push_back(absl::StrCat(socket, ": no answer"));
  }
  addStarting(jobId, &view);
  sortByPlace(&view);
  return view;
}

std::string jobTables(const JobView& view) {
  std::map<std::string, std::vector<const ProcessStatus*>> jobs;
  for (const ProcessStatus& status : view.processes) jobs[status.jobId].push_back(&status);
  std::string text;
  for (const auto& [id, processes] : jobs) absl::StrAppend(&text, text.empty() ? "" : "\n", jobTable(id, processes));
  return text;
}

std::string jobJson(const JobView& view) {
  OrderedJson json{{"processes", OrderedJson::array()}, {"missing", view.missing}};
  for (const ProcessStatus& status : view.processes) json["processes"].push_back(toJson(status));
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<JobView> parseJobJson(const std::string& text) {
  try {
    const OrderedJson json = OrderedJson::parse(text);
    JobView view;
    if (json.at("processes").size() > kMaxProcesses) return absl::InvalidArgumentError("too many processes");
    for (const OrderedJson& entry : json.at("processes")) view.processes.push_back(fromJson(entry));
    view.missing = json.at("missing").get<std::vector<std::string>>();
    return view;
  } catch (const OrderedJson::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("this is no answer of farhop ps: ", error.what()));
  }
}

void addPsCommand(CLI::App& app, int* exitCode) {
  auto typed = std::make_shared<PsFlags>();
  CLI::App* ps = app.add_subcommand("ps", "Show the processes of this user's jobs, on this machine or on those of --hosts: state, epoch, "
                                          "batches per second, memory");
  addHostFlags(*ps, typed->hosts);
  ps->add_option("--job", typed->jobId, "Only this job")->type_name("ID");
  ps->add_flag("--watch", typed->watch, "Show it again and again; on a terminal in place");
  ps->add_option("--interval", typed->interval, "Seconds between two looks of --watch")->type_name("SECONDS")->capture_default_str();
  ps->add_flag("--json", typed->json, "As JSON");
  ps->callback([typed, exitCode] { *exitCode = executePs(*typed); });
}

}  // namespace farhop::launcher
