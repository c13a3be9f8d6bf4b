// Runs the farhop program for a test: output into files, a deadline on every wait, nothing left behind.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temporary_directory.h"

namespace farhop::testing {

using Words = std::vector<std::string>;

// The words of `farhop run OPTIONS -- TRAINER`, of the program that was built.
Words farhopRun(const Words& options, const Words& trainer);
// A trainer that is a shell script.
Words shell(const std::string& script);
// Options of a job of two machines with two processes each, and `more`.
Words four(const Words& more);
inline const Words kFour{"--machines", "2", "--procs", "2"};

class FarhopProcess {
 public:
  // `argv[0]` is the program. Temporary directories of the launcher are made in temporary().
  explicit FarhopProcess(const std::vector<std::string>& argv,
                         const std::map<std::string, std::string>& environment = {}, int stdoutFd = -1);
  ~FarhopProcess();  // ends what is left
  FarhopProcess(const FarhopProcess&) = delete;
  FarhopProcess& operator=(const FarhopProcess&) = delete;

  int pid() const { return pid_; }
  std::string out() const;
  std::string err() const;
  // Entries of the directory in which the launcher makes its own.
  std::vector<std::string> temporary() const;

  // Waits until `text` was written; false after `seconds`.
  bool awaitOut(const std::string& text, int seconds = 20) const;
  bool awaitErr(const std::string& text, int seconds = 20) const;
  // Waits for the end and returns the exit code; 128 + signal; -1 when it did not end in time.
  int wait(int seconds = 30);

  // From the first line, which is waited for a few seconds; empty when there is none.
  std::string jobId() const;
  // The lines of m/p without their prefix, of standard output.
  std::vector<std::string> linesOf(int machine, int proc) const;
  // The JSON that each process printed, by "m0 p0".
  std::map<std::string, nlohmann::json> descriptions() const;

 private:
  TemporaryDirectory directory_;
  int pid_ = -1;
  int exitCode_ = -1;
};

// Processes of this user that have `FARHOP_JOB_ID=jobId` in their environment.
std::vector<int> processesOf(const std::string& jobId);
// Polls until `condition` holds; false after `seconds`.
bool eventually(const std::function<bool()>& condition, int seconds = 10);
// Whether the job's last process goes away.
bool isGone(const std::string& jobId, int seconds = 5);

}  // namespace farhop::testing
