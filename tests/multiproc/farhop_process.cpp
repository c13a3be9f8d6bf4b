#include "tests/multiproc/farhop_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

namespace farhop::testing {
namespace {

std::string contentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

[[noreturn]] void executeFarhop(const std::vector<std::string>& argv, const TemporaryDirectory& directory,
                                int stdoutFd) {
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = stdoutFd >= 0
                      ? stdoutFd
                      : ::open((directory / "out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int err = ::open((directory / "err").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  if (stdoutFd > 2) ::close(stdoutFd);
  // A test runner in the background of a script ignores SIGINT, and would hand that down.
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  std::vector<char*> pointers;
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(121);
}

}  // namespace

FarhopProcess::FarhopProcess(const std::vector<std::string>& argv,
                             const std::map<std::string, std::string>& environment, int stdoutFd) {
  std::filesystem::create_directory(directory_ / "tmp");
  pid_ = ::fork();
  if (pid_ != 0) return;
  ::setenv("TMPDIR", (directory_ / "tmp").c_str(), 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  executeFarhop(argv, directory_, stdoutFd);
}

FarhopProcess::~FarhopProcess() {
  if (pid_ > 0 && exitCode_ < 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string FarhopProcess::out() const {
  return contentOf(directory_ / "out");
}
std::string FarhopProcess::err() const {
  return contentOf(directory_ / "err");
}

std::vector<std::string> FarhopProcess::temporary() const {
  std::vector<std::string> entries;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "tmp")) {
    entries.push_back(entry.path().string());
  }
  return entries;
}

bool FarhopProcess::awaitOut(const std::string& text, int seconds) const {
  return eventually([&] { return out().find(text) != std::string::npos; }, seconds);
}
bool FarhopProcess::awaitErr(const std::string& text, int seconds) const {
  return eventually([&] { return err().find(text) != std::string::npos; }, seconds);
}

int FarhopProcess::wait(int seconds) {
  eventually(
      [&] {
        int status = 0;
        if (exitCode_ < 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
          exitCode_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        return exitCode_ >= 0;
      },
      seconds);
  return exitCode_;
}

Words farhopRun(const Words& options, const Words& trainer) {
  Words argv{FARHOP_PROGRAM, "run"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back("--");
  argv.insert(argv.end(), trainer.begin(), trainer.end());
  return argv;
}

Words shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

Words four(const Words& more) {
  Words options = kFour;
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

std::string FarhopProcess::jobId() const {
  const std::string before = "farhop: job ";
  std::string id;
  // What a trainer says may be read before what the launcher has said.
  (void)eventually(
      [&] {
        const std::string text = err();
        const size_t at = text.find(before);
        const size_t end = at == std::string::npos ? at : text.find(',', at);
        if (end != std::string::npos) id = text.substr(at + before.size(), end - at - before.size());
        return !id.empty();
      },
      5);
  return id;
}

std::vector<std::string> FarhopProcess::linesOf(int machine, int proc) const {
  const std::string prefix = "[m" + std::to_string(machine) + " p" + std::to_string(proc) + "] ";
  std::vector<std::string> lines;
  std::istringstream text(out());
  for (std::string line; std::getline(text, line);) {
    if (line.rfind(prefix, 0) == 0) lines.push_back(line.substr(prefix.size()));
  }
  return lines;
}

std::map<std::string, nlohmann::json> FarhopProcess::descriptions() const {
  std::map<std::string, nlohmann::json> result;
  std::istringstream text(out());
  for (std::string line; std::getline(text, line);) {
    const size_t end = line.find("] ");
    if (line.rfind('[', 0) != 0 || end == std::string::npos) continue;
    result[line.substr(1, end - 1)] = nlohmann::json::parse(line.substr(end + 2), nullptr, false);
  }
  return result;
}

std::vector<int> processesOf(const std::string& jobId) {
  std::vector<int> result;
  if (jobId.empty()) return result;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const std::string environment = contentOf(entry.path() / "environ");
    if (environment.find("FARHOP_JOB_ID=" + jobId) != std::string::npos) result.push_back(pid);
  }
  return result;
}

bool eventually(const std::function<bool()>& condition, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool isGone(const std::string& jobId, int seconds) {
  return !jobId.empty() && eventually([&] { return processesOf(jobId).empty(); }, seconds);
}

}  // namespace farhop::testing
