#include "benchmarks/trainer_job.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"

namespace farhop::benchmarks {
namespace {

constexpr int kPollMs = 5;
constexpr int kPortAttempts = 50;

// A base with as many free ports behind it, on which nobody listens now.
absl::StatusOr<uint16_t> freePorts(int count) {
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    FARHOP_ASSIGN_OR_RETURN(const FileDescriptor first, listenTcp({"127.0.0.1", 0}, 1));
    FARHOP_ASSIGN_OR_RETURN(const uint16_t base, boundPort(first.get()));
    bool free = base + count <= 65'535;
    for (int i = 1; free && i < count; ++i) free = listenTcp({"127.0.0.1", static_cast<uint16_t>(base + i)}, 1).ok();
    if (free) return base;
  }
  return absl::UnavailableError(absl::StrCat("no ", count, " free TCP ports behind each other on 127.0.0.1"));
}

// "Name:  123 kB" lines.
std::map<std::string, uint64_t> readSizes(const std::string& path) {
  std::map<std::string, uint64_t> sizes;
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    if (words >> name >> kilobytes && name.back() == ':') sizes[name.substr(0, name.size() - 1)] = kilobytes * 1024;
  }
  return sizes;
}

std::string describeEnd(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<uint64_t> sharedFilesystemBytes() {
  struct statvfs info{};
  if (::statvfs("/dev/shm", &info) != 0) return errnoStatus("statvfs of /dev/shm", errno);
  return (info.f_blocks - info.f_bfree) * info.f_frsize;
}

absl::StatusOr<TrainerJob> TrainerJob::start(const TrainerJobOptions& options) {
  FARHOP_ASSIGN_OR_RETURN(const uint16_t port, freePorts(options.procsPerMachine));
  TrainerJob job;
  for (int machine = 0; machine < options.machines; ++machine) {
    for (int proc = 0; proc < options.procsPerMachine; ++proc) {
      std::map<std::string, std::string> environment = {
          {"FARHOP_NUM_MACHINES", absl::StrCat(options.machines)},
          {"FARHOP_MACHINE", absl::StrCat(machine)},
          {"FARHOP_PROCS_PER_MACHINE", absl::StrCat(options.procsPerMachine)},
          {"FARHOP_PROC", absl::StrCat(proc)},
          {"FARHOP_MASTER_ADDR", "127.0.0.1"},
          {"FARHOP_MASTER_PORT", absl::StrCat(port)},
          {"FARHOP_JOB_ID", absl::StrCat("bench-", ::getpid(), "-", port)},
          {"FARHOP_JOB_TOKEN", absl::StrCat("bench-", ::getpid())},
          {"FARHOP_START", "gate"},
          {"FARHOP_GRAPH", options.graph},
          {"FARHOP_FABRIC", options.machines > 1 ? options.fabric : "none"},
      };
      FARHOP_RETURN_IF_ERROR(job.spawn(options, environment));
    }
  }
  return job;
}

TrainerJob::~TrainerJob() {
  for (const Process& process : processes_) {
    if (process.pid > 0 && !process.ended) ::kill(process.pid, SIGKILL);  // not reaped, so the pid is still its own
  }
  for (const Process& process : processes_) {
    if (process.pid > 0 && !process.ended) ::waitpid(process.pid, nullptr, 0);
  }
}

absl::Status TrainerJob::spawn(const TrainerJobOptions& options, const std::map<std::string, std::string>& environment) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return errnoStatus("pipe", errno);
  FileDescriptor childIn(in[0]), ownIn(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return errnoStatus("pipe", errno);
  FileDescriptor ownOut(out[0]), childOut(out[1]);
  // All that allocates comes before the fork.
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, "FARHOP_") && !absl::StartsWith(*variable, "SLURM_")) variables.emplace_back(*variable);
  }
  for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
  std::vector<std::string> arguments = {options.program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> environmentPointers, argumentPointers;
  for (std::string& variable : variables) environmentPointers.push_back(variable.data());
  for (std::string& argument : arguments) argumentPointers.push_back(argument.data());
  environmentPointers.push_back(nullptr);
  argumentPointers.push_back(nullptr);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return errnoStatus("fork", errno);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    ::dup2(childIn.get(), STDIN_FILENO);
    ::dup2(childOut.get(), STDOUT_FILENO);
    ::execve(options.program.c_str(), argumentPointers.data(), environmentPointers.data());
    ::_exit(127);
  }
  processes_.push_back({pid, std::move(ownIn), std::move(ownOut), {}, false});
  return setNonBlocking(processes_.back().out.get());
}

absl::Status TrainerJob::readMore(Process* process, int waitMs) {
  pollfd waiting{process->out.get(), POLLIN, 0};
  if (::poll(&waiting, 1, waitMs) <= 0) return absl::OkStatus();
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(process->out.get(), bytes.data(), bytes.size());
  if (got > 0) {
    process->pending.append(bytes.data(), static_cast<size_t>(got));
    return absl::OkStatus();
  }
  if (got < 0) return errno == EAGAIN || errno == EINTR ? absl::OkStatus() : errnoStatus("read from a trainer", errno);
  int status = 0;
  ::waitpid(process->pid, &status, 0);
  process->ended = true;
  return absl::UnavailableError(absl::StrCat("a trainer ", describeEnd(status), "; what it says is on standard error"));
}

absl::StatusOr<std::vector<std::map<std::string, uint64_t>>> TrainerJob::await(const std::string& stage, Deadline deadline,
                                                                               const std::function<void()>& meanwhile) {
  std::vector<std::map<std::string, uint64_t>> all(processes_.size());
  std::vector<bool> here(processes_.size(), false);
  for (size_t left = processes_.size(); left > 0;) {
    if (deadline.expired()) return absl::DeadlineExceededError(absl::StrCat(left, " trainers have not reached stage ", stage));
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (here[i]) continue;
      FARHOP_RETURN_IF_ERROR(readMore(&processes_[i], kPollMs));
      const size_t end = processes_[i].pending.find('\n');
      if (end == std::string::npos) continue;
      const nlohmann::json said = nlohmann::json::parse(processes_[i].pending.substr(0, end), nullptr, false);
      processes_[i].pending.erase(0, end + 1);
      if (said.is_discarded() || said.value("stage", "") != stage) {
        return absl::InternalError(absl::StrCat("a trainer is not where it should be: at stage ", stage));
      }
      for (const auto& [name, value] : said.items()) {
        if (value.is_number()) all[i][name] = value.get<uint64_t>();
      }
      here[i] = true;
      --left;
    }
    meanwhile();
  }
  return all;
}

absl::Status TrainerJob::release() {
  for (const Process& process : processes_) {
    if (::write(process.in.get(), "\n", 1) != 1) return errnoStatus("write to a trainer", errno);
  }
  return absl::OkStatus();
}

absl::Status TrainerJob::end(Deadline deadline) {
  absl::Status failed;
  for (Process& process : processes_) {
    int status = 0;
    while (!process.ended) {
      const pid_t reaped = ::waitpid(process.pid, &status, WNOHANG);
      if (reaped < 0) return errnoStatus("waitpid", errno);
      process.ended = reaped == process.pid;
      if (process.ended) break;
      if (deadline.expired()) return absl::DeadlineExceededError("a trainer does not end");
      ::usleep(kPollMs * 1'000);
    }
    if (status != 0 && failed.ok()) failed = absl::InternalError(absl::StrCat("a trainer ", describeEnd(status)));
  }
  return failed;
}

absl::StatusOr<JobMemory> TrainerJob::memory() const {
  JobMemory memory;
  for (const Process& process : processes_) {
    const std::string path = absl::StrCat("/proc/", process.pid, "/smaps_rollup");
    std::map<std::string, uint64_t> sizes = readSizes(path);
    if (sizes.count("Pss_File") == 0) return absl::UnavailableError(absl::StrCat("cannot read ", path));
    memory.anonymousBytes += sizes["Pss_Anon"];
    memory.proportionalBytes += sizes["Pss"];
    memory.cacheBytes += sizes["Pss_File"];
    memory.sharedBytes += sizes["Pss_Shmem"];
    memory.mappedCacheBytes += readSizes(absl::StrCat("/proc/", process.pid, "/status"))["RssFile"];
  }
  return memory;
}

uint64_t TrainerJob::privateBytes() const {
  uint64_t bytes = 0;
  for (const Process& process : processes_) {
    std::map<std::string, uint64_t> sizes = readSizes(absl::StrCat("/proc/", process.pid, "/status"));
    bytes += sizes["RssAnon"] + sizes["RssShmem"];
  }
  return bytes;
}

int TrainerJob::sharedFiles() const {
  int files = 0;
  for (const Process& process : processes_) {
    std::ifstream maps(absl::StrCat("/proc/", process.pid, "/maps"));
    std::string line;
    while (std::getline(maps, line)) files += absl::StrContains(line, " /dev/shm/") ? 1 : 0;
    const std::string directory = absl::StrCat("/proc/", process.pid, "/fd");
    DIR* const descriptors = ::opendir(directory.c_str());
    if (descriptors == nullptr) continue;
    while (const dirent* entry = ::readdir(descriptors)) {
      std::array<char, PATH_MAX> target{};
      const ssize_t length = ::readlink(absl::StrCat(directory, "/", entry->d_name).c_str(), target.data(), target.size());
      if (length > 0 && absl::StartsWith(absl::string_view(target.data(), static_cast<size_t>(length)), "/dev/shm/")) ++files;
    }
    ::closedir(descriptors);
  }
  return files;
}

}  // namespace farhop::benchmarks
