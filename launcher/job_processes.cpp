#include "launcher/job_processes.h"

#include <dirent.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {
namespace {

constexpr char kSharedMemory[] = "/dev/shm/";
// What the kernel lets a program start with is far less.
constexpr size_t kMaxEnvironmentBytes = size_t{16} << 20;

std::string procPath(pid_t pid, const char* name) { return absl::StrCat("/proc/", pid, "/", name); }

std::vector<pid_t> allProcesses() {
  std::vector<pid_t> pids;
  std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  if (!directory) return pids;
  while (const dirent* entry = ::readdir(directory.get())) {
    int pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && pid > 0) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

bool isOurs(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && info.st_uid == ::geteuid();
}

// The variables that say where a process belongs.
std::map<std::string, std::string> jobVariables(pid_t pid) {
  std::map<std::string, std::string> variables;
  std::ifstream file(procPath(pid, "environ"), std::ios::binary);
  std::string entry;
  size_t bytes = 0;
  while (std::getline(file, entry, '\0') && (bytes += entry.size()) < kMaxEnvironmentBytes) {
    if (entry.rfind("FARHOP_", 0) != 0) continue;
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

int numberOf(const std::map<std::string, std::string>& variables, const char* name) {
  const auto found = variables.find(name);
  int number = -1;
  return found != variables.end() && absl::SimpleAtoi(found->second, &number) && number >= 0 ? number : -1;
}

pid_t parentOf(pid_t pid) {
  std::ifstream file(procPath(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    int parent = 0;
    if (line.rfind("PPid:", 0) == 0 && absl::SimpleAtoi(line.substr(5), &parent)) return parent;
  }
  return 0;
}

std::set<pid_t> selfAndAncestors() {
  std::set<pid_t> result;
  for (pid_t pid = ::getpid(); pid > 0 && result.insert(pid).second;) pid = parentOf(pid);
  return result;
}

std::string commandOf(pid_t pid) {
  std::ifstream file(procPath(pid, "cmdline"), std::ios::binary);
  std::string first;
  std::getline(file, first, '\0');
  return std::filesystem::path(first).filename().string();
}

// From a line of a maps file, or a link of an open descriptor; files without a name any more are nobody's to remove.
void addSharedMemoryFile(const std::string& path, std::set<std::string>* files) {
  constexpr char kDeleted[] = " (deleted)";
  if (path.rfind(kSharedMemory, 0) != 0) return;
  const size_t suffix = path.size() - std::min(path.size(), sizeof(kDeleted) - 1);
  if (path.substr(suffix) != kDeleted) files->insert(path);
}

// As makeJobId() makes them, so that nothing else is taken for a job's.
bool isMadeJobId(const std::string& id) {
  const std::string form = "dddddddd-dddddd-xxxxxxxx";
  if (id.size() != form.size()) return false;
  for (size_t i = 0; i < form.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(id[i]);
    if (form[i] == '-' ? c != '-' : form[i] == 'd' ? std::isdigit(c) == 0 : std::isxdigit(c) == 0) return false;
  }
  return true;
}

// What a line of /proc/PID/stat says.
struct ProcessStat {
  char state = 'X';  // as of one that is gone
  pid_t group = 0;
  uint64_t startTicks = 0;
};

ProcessStat statOf(pid_t pid) {
  std::ifstream file(procPath(pid, "stat"));
  std::string line;
  std::getline(file, line);
  // A program may have any name, parentheses and blanks included.
  const size_t end = line.rfind(") ");
  if (end == std::string::npos) return {};
  constexpr size_t kState = 0, kGroup = 2, kStart = 19;
  const std::vector<std::string> fields = absl::StrSplit(line.substr(end + 2), ' ');
  ProcessStat stat;
  if (fields.size() <= kStart || fields[kState].size() != 1 || !absl::SimpleAtoi(fields[kGroup], &stat.group) ||
      !absl::SimpleAtoi(fields[kStart], &stat.startTicks)) {
    return {};
  }
  stat.state = fields[kState][0];
  return stat;
}

}  // namespace

uint64_t ticksSinceBoot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const auto perSecond = static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<uint64_t>(now.tv_sec) * perSecond + static_cast<uint64_t>(now.tv_nsec) * perSecond / 1'000'000'000;
}

std::set<pid_t> livingGroups(const std::set<pid_t>& groups, uint64_t untilTicks) {
  std::set<pid_t> living;
  if (groups.empty()) return living;
  for (const pid_t pid : allProcesses()) {
    const ProcessStat stat = statOf(pid);
    if (groups.count(stat.group) == 0 || stat.state == 'Z' || stat.state == 'X' || stat.startTicks > untilTicks) continue;
    if (isOurs(absl::StrCat("/proc/", pid))) living.insert(stat.group);
  }
  return living;
}

std::vector<FoundProcess> findJobProcesses(const std::string& jobId) {
  const std::set<pid_t> spared = selfAndAncestors();
  std::vector<FoundProcess> result;
  for (const pid_t pid : allProcesses()) {
    if (spared.count(pid) > 0 || !isOurs(absl::StrCat("/proc/", pid))) continue;
    const auto variables = jobVariables(pid);
    const auto id = variables.find(runtime::kEnvJobId);
    if (id == variables.end() || id->second.empty() || (!jobId.empty() && id->second != jobId)) continue;
    const auto token = variables.find(runtime::kEnvJobToken);
    result.push_back({pid, id->second, numberOf(variables, runtime::kEnvMachine), numberOf(variables, runtime::kEnvProc),
                      commandOf(pid), token != variables.end() ? token->second : ""});
  }
  return result;
}

absl::StatusOr<HeldProcess> HeldProcess::hold(const FoundProcess& process) {
  HeldProcess held;
  held.process_ = process;
  held.fd_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!held.fd_.valid()) return errnoStatus(absl::StrCat("process ", process.pid), errno);
  // Whoever has the number now is the one that is held.
  const auto variables = jobVariables(process.pid);
  const auto id = variables.find(runtime::kEnvJobId);
  if (id == variables.end() || id->second != process.jobId) {
    return absl::NotFoundError(absl::StrCat("process ", process.pid, " has ended"));
  }
  return held;
}

absl::Status HeldProcess::signal(int number) const {
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) == 0 || errno == ESRCH) return absl::OkStatus();
  return errnoStatus(absl::StrCat("signalling process ", process_.pid), errno);
}

bool HeldProcess::ended() const {
  pollfd entry{fd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::set<std::string> sharedMemoryFilesOf(pid_t pid) {
  std::set<std::string> files;
  std::ifstream maps(procPath(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find(kSharedMemory);
    if (path != std::string::npos) addSharedMemoryFile(line.substr(path), &files);
  }
  std::error_code error;
  for (std::filesystem::directory_iterator fd(procPath(pid, "fd"), error), end; !error && fd != end; fd.increment(error)) {
    std::error_code gone;
    const std::filesystem::path target = std::filesystem::read_symlink(fd->path(), gone);
    if (!gone) addSharedMemoryFile(target.string(), &files);
  }
  return files;
}

std::set<std::string> unusedFiles(const std::set<std::string>& files) {
  if (files.empty()) return {};
  std::set<std::string> used, result;
  for (const pid_t pid : allProcesses()) used.merge(sharedMemoryFilesOf(pid));
  for (const std::string& file : files) {
    if (used.count(file) == 0 && isOurs(file)) result.insert(file);
  }
  return result;
}

std::set<std::string> filesOfDeadProcesses() {
  std::set<std::string> result;
  std::error_code error;
  for (std::filesystem::directory_iterator file(kSharedMemory, error), end; !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    const std::vector<std::string> fields = absl::StrSplit(name, ':');
    int pid = 0, number = 0;
    uid_t uid = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &pid) || !absl::SimpleAtoi(fields[1], &uid) ||
        !absl::SimpleAtoi(fields[2], &number) || pid <= 0 || uid != ::geteuid()) {
      continue;
    }
    if (!std::filesystem::exists(absl::StrCat("/proc/", pid))) result.insert(file->path().string());
  }
  return unusedFiles(result);
}

void removeFilesOfDead(const std::vector<pid_t>& pids) {
  for (const std::string& file : filesOfDeadProcesses()) {
    const std::string name = std::filesystem::path(file).filename().string();
    const bool isTheirs = std::any_of(pids.begin(), pids.end(), [&](pid_t pid) { return name.rfind(absl::StrCat(pid, ":"), 0) == 0; });
    if (isTheirs) ::unlink(file.c_str());
  }
}

std::vector<std::string> findRunDirectories(const std::string& jobId) {
  constexpr char kPrefix[] = "farhop-";
  std::vector<std::string> result;
  std::error_code error;
  const std::filesystem::path base = std::filesystem::temp_directory_path(error);
  for (std::filesystem::directory_iterator entry(base, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const std::string id = name.substr(sizeof(kPrefix) - 1);
    if (!jobId.empty() ? id != jobId : !isMadeJobId(id)) continue;
    struct stat info {};
    if (::lstat(entry->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) continue;
    result.push_back(entry->path().string());
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace farhop::launcher
