#include "tests/process_group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace farhop::test {
namespace {

int lineFdOfChild = -1;
// In front of the result: a child that died while writing it has not finished.
constexpr char kFinished[] = "finished:";

void writeAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace

ProcessGroup::ProcessGroup(int count, const Body& body) : start_(std::chrono::steady_clock::now()) {
  std::fflush(nullptr);
  for (int index = 0; index < count; ++index) {
    int result[2], lines[2];
    if (::pipe2(result, O_CLOEXEC) != 0 || ::pipe2(lines, O_CLOEXEC) != 0) std::abort();
    // Room for a result of any size that a test returns: the child must not block before it exits.
    (void)::fcntl(result[1], F_SETPIPE_SZ, 1 << 20);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::close(result[0]);
      ::close(lines[0]);
      for (Child& other : children_) {
        ::close(other.resultFd);
        ::close(other.lineFd);
      }
      lineFdOfChild = lines[1];
      std::string text;
      try {
        text = body(index);
      } catch (const std::exception& error) {
        text = std::string("exception: ") + error.what();
      }
      writeAll(result[1], kFinished + text);
      std::fflush(nullptr);
      ::_exit(0);
    }
    ::close(result[1]);
    ::close(lines[1]);
    Child child;
    child.pid = pid;
    child.resultFd = result[0];
    child.lineFd = lines[0];
    children_.push_back(std::move(child));
  }
}

ProcessGroup::~ProcessGroup() {
  for (Child& child : children_) {
    if (!child.reaped) {
      ::kill(child.pid, SIGKILL);
      reap(child, true);
    }
    ::close(child.resultFd);
    ::close(child.lineFd);
  }
}

void ProcessGroup::kill(int index, int signal) {
  const Child& child = children_[static_cast<size_t>(index)];
  if (!child.reaped) ::kill(child.pid, signal);
}

void ProcessGroup::signalLine(const std::string& text) {
  if (lineFdOfChild >= 0) writeAll(lineFdOfChild, text + "\n");
}

bool ProcessGroup::awaitLine(int index, const std::string& text, std::chrono::milliseconds timeout) {
  Child& child = children_[static_cast<size_t>(index)];
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (("\n" + child.lines).find("\n" + text + "\n") != std::string::npos) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{child.lineFd, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(left.count())) <= 0) continue;
    char buffer[4096];
    const ssize_t n = ::read(child.lineFd, buffer, sizeof(buffer));
    if (n <= 0) return false;
    child.lines.append(buffer, static_cast<size_t>(n));
  }
}

bool ProcessGroup::reap(Child& child, bool block) {
  int status = 0;
  pid_t done;
  do {
    done = ::waitpid(child.pid, &status, block ? 0 : WNOHANG);
  } while (done < 0 && errno == EINTR);
  if (done != child.pid) return false;
  child.reaped = true;
  child.result.lifetime =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_);
  if (WIFSIGNALED(status)) child.result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) child.result.exitCode = WEXITSTATUS(status);
  readResult(child);
  return true;
}

void ProcessGroup::readResult(Child& child) {
  std::string text;
  char buffer[65'536];
  // A grandchild could hold the pipe open: read what is there, do not wait for its end.
  (void)::fcntl(child.resultFd, F_SETFL, O_NONBLOCK);
  for (;;) {
    const ssize_t n = ::read(child.resultFd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  const size_t prefix = sizeof(kFinished) - 1;
  if (text.compare(0, prefix, kFinished) == 0) {
    child.result.finished = true;
    child.result.text = text.substr(prefix);
  }
}

bool ProcessGroup::awaitEnd(int index, std::chrono::milliseconds timeout) {
  Child& child = children_[static_cast<size_t>(index)];
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!child.reaped && !reap(child, false)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

std::vector<ChildResult> ProcessGroup::wait(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    bool all = true;
    for (Child& child : children_) {
      if (!child.reaped && !reap(child, false)) all = false;
    }
    if (all) break;
    if (std::chrono::steady_clock::now() >= end) {
      for (Child& child : children_) {
        if (child.reaped) continue;
        child.result.timedOut = true;
        ::kill(child.pid, SIGKILL);
        reap(child, true);
      }
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<ChildResult> results;
  results.reserve(children_.size());
  for (Child& child : children_) results.push_back(child.result);
  return results;
}

}  // namespace farhop::test
