#include "benchmarks/watched_start.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"

namespace farhop::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kEndTime{30'000};
constexpr int kSettledLooks = 5;

std::vector<pid_t> childrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (fs::directory_iterator task(absl::StrCat("/proc/", pid, "/task"), error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

// What descends from `pid` and executes `program`; trainers are the agents' children.
void findTrainers(pid_t pid, const fs::path& program, std::vector<pid_t>* trainers) {
  for (const pid_t child : childrenOf(pid)) {
    std::error_code gone;
    if (fs::read_symlink(absl::StrCat("/proc/", child, "/exe"), gone) == program) {
      trainers->push_back(child);
    } else {
      findTrainers(child, program, trainers);
    }
  }
}

// Proportional memory that no file backs; 0 of a process that has ended.
uint64_t ownBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  uint64_t all = 0, files = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    words >> name >> kilobytes;
    if (name == "Pss:") all = kilobytes * 1024;
    if (name == "Pss_File:") files = kilobytes * 1024;
  }
  return all - std::min(all, files);
}

uint64_t ownBytes(const std::vector<pid_t>& trainers) {
  uint64_t bytes = 0;
  for (const pid_t pid : trainers) bytes += ownBytes(pid);
  return bytes;
}

// Inodes of established TCP connections, as "socket:[INODE]".
std::set<std::string> tcpConnections() {
  constexpr char kEstablished[] = "01";
  std::set<std::string> sockets;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // headings
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retries, uid, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retries >> uid >> timeout >> inode;
      if (state == kEstablished) sockets.insert(absl::StrCat("socket:[", inode, "]"));
    }
  }
  return sockets;
}

void countDescriptors(const std::vector<pid_t>& trainers, WatchedStart* result) {
  const std::set<std::string> tcp = tcpConnections();
  for (const pid_t pid : trainers) {
    int descriptors = 0, connections = 0;
    std::error_code error;
    for (fs::directory_iterator fd(absl::StrCat("/proc/", pid, "/fd"), error), end; !error && fd != end; fd.increment(error)) {
      std::error_code gone;
      ++descriptors;
      connections += tcp.count(fs::read_symlink(fd->path(), gone).string()) > 0 ? 1 : 0;
    }
    result->descriptors = std::max(result->descriptors, descriptors);
    result->connections = std::max(result->connections, connections);
  }
}

// The launcher and a directory for what it and its trainers write; both are gone afterwards.
class Job {
 public:
  static absl::StatusOr<std::unique_ptr<Job>> start(const WatchedStartOptions& options) {
    std::unique_ptr<Job> job(new Job);
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "farhop-startup-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) return errnoStatus(absl::StrCat("making ", pattern), errno);
    job->directory_ = pattern;
    std::vector<std::string> words = {options.farhop, "run", "--machines", absl::StrCat(options.machines), "--procs",
                                      absl::StrCat(options.procs), "--start", options.start, "--tee", "none", "--log-dir",
                                      absl::StrCat(pattern, "/logs")};
    if (!options.graph.empty()) words.insert(words.end(), {"--graph", options.graph});
    words.insert(words.end(), {"--", options.trainer, pattern});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string output = absl::StrCat(pattern, "/launcher.log");
    job->pid_ = ::fork();
    if (job->pid_ < 0) return errnoStatus("starting farhop run", errno);
    if (job->pid_ == 0) {
      // Its agents end with it, and the trainers with these.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int log = ::open(output.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      ::dup2(log, STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    return job;
  }
  ~Job() {
    if (pid_ > 0) (void)end(SIGTERM);
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  int ready(int processes) const {
    int count = 0;
    for (int rank = 0; rank < processes; ++rank) count += pathExists(absl::StrCat(directory_, "/ready-", rank)) ? 1 : 0;
    return count;
  }
  // Why it has ended, which it should not have; OK while it runs.
  absl::Status alive() {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == 0) return absl::OkStatus();
    pid_ = -1;
    const auto log = readFile(absl::StrCat(directory_, "/launcher.log"));
    return absl::UnavailableError(absl::StrCat("the job has ended: ", log.ok() ? *log : "its log cannot be read"));
  }
  // Lets the trainers leave, or with a signal ends them. Whether the launcher ended well.
  absl::Status end(int signal) {
    if (signal != 0) ::kill(pid_, signal);
    std::ofstream(absl::StrCat(directory_, "/end")).flush();
    const Deadline deadline = Deadline::after(kEndTime);
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (deadline.expired()) ::kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    const auto log = readFile(absl::StrCat(directory_, "/launcher.log"));
    return absl::UnavailableError(absl::StrCat("the job did not end well: ", log.ok() ? *log : ""));
  }

 private:
  Job() = default;
  std::string directory_;
  pid_t pid_ = -1;
};

}  // namespace

absl::StatusOr<WatchedStart> watchStart(const WatchedStartOptions& options) {
  std::error_code error;
  const fs::path program = fs::canonical(options.trainer, error);
  if (error) return absl::NotFoundError(absl::StrCat("trainer ", options.trainer, ": ", error.message()));
  const int processes = options.machines * options.procs;
  const Clock::time_point begin = Clock::now();
  const Deadline deadline = Deadline::after(options.longest);
  FARHOP_ASSIGN_OR_RETURN(const std::unique_ptr<Job> job, Job::start(options));
  WatchedStart result;
  std::vector<pid_t> trainers;
  for (Clock::time_point next = begin;;) {
    if (static_cast<int>(trainers.size()) < processes) {
      trainers.clear();
      findTrainers(job->pid(), program, &trainers);
    }
    const bool ready = job->ready(processes) == processes;
    result.readySeconds = std::chrono::duration<double>(Clock::now() - begin).count();
    result.peakBytes = std::max(result.peakBytes, ownBytes(trainers));
    ++result.looks;
    if (ready) break;
    FARHOP_RETURN_IF_ERROR(job->alive());
    if (deadline.expired()) {
      return absl::DeadlineExceededError(absl::StrCat(job->ready(processes), " of ", processes, " processes were ready after ",
                                                      options.longest.count() / 1000, " s"));
    }
    // Looks that are late are left out, not made up for.
    next = std::max(next + options.interval, Clock::now());
    std::this_thread::sleep_until(next);
  }
  std::this_thread::sleep_for(options.settled);
  std::vector<uint64_t> settled;
  for (int look = 0; look < kSettledLooks; ++look) {
    settled.push_back(ownBytes(trainers));
    std::this_thread::sleep_for(options.interval);
  }
  std::sort(settled.begin(), settled.end());
  result.settledBytes = settled[kSettledLooks / 2];
  countDescriptors(trainers, &result);
  FARHOP_RETURN_IF_ERROR(job->alive());
  if (static_cast<int>(trainers.size()) != processes || result.settledBytes == 0) {
    return absl::InternalError(absl::StrCat(trainers.size(), " of ", processes, " trainers were found in /proc, with ",
                                            result.settledBytes, " bytes"));
  }
  FARHOP_RETURN_IF_ERROR(job->end(0));
  return result;
}

}  // namespace farhop::benchmarks
