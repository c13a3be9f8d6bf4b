// Peers as processes: forked before any thread of the test exists, steered over socket pairs, killed and
// reaped at the end whatever happens.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/socket.h"

namespace farhop::rpc::testing {

// One end of the line between the test and a member. Lines of text.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) { static_cast<void>(setNonBlocking(fd)); }
  void say(std::string text) {
    text += '\n';
    static_cast<void>(sendAll(fd_.get(), text.data(), text.size(), Deadline::after(std::chrono::seconds(10))));
  }
  // The next line; "(nothing)" when none came in time or the other side is gone.
  std::string hear(int ms = 20'000) {
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(ms));
    std::string text;
    for (char c; receiveAll(fd_.get(), &c, 1, deadline).ok();) {
      if (c == '\n') return text;
      text += c;
    }
    return "(nothing)";
  }

 private:
  FileDescriptor fd_;
};

class Processes {
 public:
  Processes(int count, const std::function<void(int rank, Line& line)>& body) {
    for (int rank = 0; rank < count; ++rank) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      const pid_t parent = ::getpid();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(9);
        ::close(ends[0]);
        lines_.clear();
        Line line(ends[1]);
        body(rank, line);
        ::_exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      lines_.push_back(std::make_unique<Line>(ends[0]));
    }
  }
  ~Processes() {
    for (pid_t pid : pids_) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Line& line(int rank) { return *lines_[static_cast<size_t>(rank)]; }
  void signal(int rank, int number) { ::kill(pids_[static_cast<size_t>(rank)], number); }
  // The exit code, or minus the signal that ended it.
  int wait(int rank) {
    int status = 0;
    ::waitpid(std::exchange(pids_[static_cast<size_t>(rank)], 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int size() const { return static_cast<int>(pids_.size()); }

 private:
  std::vector<pid_t> pids_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace farhop::rpc::testing
