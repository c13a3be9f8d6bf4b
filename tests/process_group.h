// Processes of a test: forked children that report through a pipe, with a deadline, killed when it passes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace farhop::test {

// How one child ended.
struct ChildResult {
  bool finished = false;   // the body returned and its text arrived
  bool timedOut = false;   // still running at the deadline, and killed
  int signal = 0;          // that ended it; 0 for a normal end
  int exitCode = -1;
  std::string text;        // what the body returned
  std::chrono::milliseconds lifetime{0};
};

// A group of children. fork() must happen before the test starts threads, so make the group first. The
// destructor kills and reaps what is left; children die with the test (PR_SET_PDEATHSIG).
class ProcessGroup {
 public:
  // What a child runs: its index in, its result text out. It runs in a forked copy of the test, which then
  // leaves by _exit: no destructor of the test's own objects runs, nothing of GoogleTest's is reported.
  using Body = std::function<std::string(int index)>;

  ProcessGroup(int count, const Body& body);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int size() const { return static_cast<int>(children_.size()); }
  pid_t pid(int index) const { return children_[static_cast<size_t>(index)].pid; }

  // Sends `signal` to that child only. It is not reaped before wait(), so its pid cannot be another's.
  void kill(int index, int signal);

  // Blocks until child `index` has written a line `text` with signalLine(); false at the deadline.
  bool awaitLine(int index, const std::string& text, std::chrono::milliseconds timeout);

  // Blocks until child `index` has ended; false at the deadline.
  bool awaitEnd(int index, std::chrono::milliseconds timeout);

  // Waits for all, at most `timeout` from now; then kills what still runs.
  std::vector<ChildResult> wait(std::chrono::milliseconds timeout);

  // In a child: tells the test that a point was reached.
  static void signalLine(const std::string& text);

 private:
  struct Child {
    pid_t pid = -1;
    int resultFd = -1;
    int lineFd = -1;
    std::string lines;
    bool reaped = false;
    ChildResult result;
  };
  void readResult(Child& child);
  bool reap(Child& child, bool block);

  std::vector<Child> children_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace farhop::test
