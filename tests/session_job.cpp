#include "tests/session_job.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "rpc/stages.h"

namespace farhop::test {

namespace {

// This user's files.
std::set<std::string> sharedMemoryFiles() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) == 0 && info.st_uid == ::geteuid()) names.insert(entry.path());
  }
  return names;
}

// Of the files, those that no process uses: what others' programs on this machine made meanwhile is theirs.
std::set<std::string> unusedOf(std::set<std::string> files) {
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    if (files.empty()) break;
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      std::erase_if(files, [&](const std::string& file) { return line.find(file) != std::string::npos; });
    }
  }
  std::erase_if(files, [](const std::string& file) { return !std::filesystem::exists(file); });
  return files;
}

std::string& stopStage() {
  static auto* stage = new std::string;
  return *stage;
}

const std::atomic<bool>* stageReleased = nullptr;

std::atomic<bool>* sharedFlag() {
  void* const page = ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::abort();
  return new (page) std::atomic<bool>(false);
}

}  // namespace

void SessionJob::Unmap::operator()(std::atomic<bool>* flag) const { ::munmap(flag, sizeof(*flag)); }

SessionJob::SessionJob(int machines, int procs, const std::string& name)
    : machines_(machines),
      procs_(procs),
      jobId_(absl::StrCat(name, "-", ::getpid())),
      sharedMemoryBefore_(sharedMemoryFiles()),
      released_(sharedFlag()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Below the kernel's ephemeral ports, which a connection of another test could take in between.
  for (int attempt = 0; attempt < 200; ++attempt) {
    const int base = 10'000 + (::getpid() * 37 + attempt * 101) % 20'000;
    std::vector<FileDescriptor> listeners;
    for (int proc = 0; proc < procs; ++proc) {
      absl::StatusOr<FileDescriptor> fd = listenTcp({"127.0.0.1", static_cast<uint16_t>(base + proc)}, 64);
      if (!fd.ok()) break;
      listeners.push_back(*std::move(fd));
    }
    if (listeners.size() == static_cast<size_t>(procs)) {
      port_ = static_cast<uint16_t>(base);
      listeners_ = std::move(listeners);
      return;
    }
  }
  std::abort();
}

runtime::LaunchContract SessionJob::contract(int rank) {
  runtime::LaunchContract contract;
  contract.numMachines = machines_;
  contract.machine = machineOf(rank);
  contract.procsPerMachine = procs_;
  contract.proc = procOf(rank);
  contract.masterAddr = "127.0.0.1";
  contract.masterPort = port_;
  contract.jobId = jobId_;
  contract.token = "a-test's-token";
  for (int proc = 0; proc < static_cast<int>(listeners_.size()); ++proc) {
    FileDescriptor& listener = listeners_[static_cast<size_t>(proc)];
    if (contract.machine == 0 && proc == contract.proc && machines_ > 1) {
      contract.masterFd = listener.release();
    } else {
      listener.reset();
    }
  }
  return contract;
}

void SessionJob::releasePorts() { listeners_.clear(); }

std::string SessionJob::leftovers() const {
  std::ifstream sockets("/proc/net/unix");
  std::string line, found;
  while (std::getline(sockets, line)) {
    if (line.find(jobId_) != std::string::npos) found += line + "\n";
  }
  std::set<std::string> files = sharedMemoryFiles();
  for (const std::string& file : sharedMemoryBefore_) files.erase(file);
  for (const std::string& file : unusedOf(std::move(files))) found += file + "\n";
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(task.path() / "children");
    while (std::getline(children, line)) found += "child processes " + line + "\n";
  }
  return found;
}

void SessionJob::reportStages(const std::string& stopAt) {
  stopStage() = stopAt;
  stageReleased = released_.get();
  rpc::stageHook = [](const char* stage) {
    ProcessGroup::signalLine(std::string("at ") + stage);
    while (stopStage() == stage && !stageReleased->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
}

runtime::SessionOptions quickOptions() {
  runtime::SessionOptions options;
  options.startTimeout = std::chrono::seconds(30);
  options.leaveTimeout = std::chrono::seconds(15);
  options.bind = false;
  return options;
}

std::string describeFailure(const absl::Status& status) {
  if (status.ok()) return "OK";
  const std::optional<PeerName> peer = peerOf(status);
  return absl::StrCat(peer ? describePeer(*peer) : "nobody", " | ", absl::StatusCodeToString(status.code()), ": ",
                      std::string(status.message()));
}

}  // namespace farhop::test
