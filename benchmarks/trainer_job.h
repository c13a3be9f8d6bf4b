// The trainer processes of a benchmark: a job of M machines times P processes on this one, each a `farhop-bench-trainer`
// that stops at named stages, and what the kernel says of its memory there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"

namespace farhop::benchmarks {

struct TrainerJobOptions {
  std::string program;
  std::vector<std::string> arguments;
  std::string graph;
  int machines = 1;
  int procsPerMachine = 1;
  std::string fabric;  // FARHOP_FABRIC, where there are several machines
};

// Memory of all processes of a job together.
struct JobMemory {
  uint64_t anonymousBytes = 0;    // private and not of a file
  uint64_t proportionalBytes = 0; // PSS: what several map counts once
  uint64_t cacheBytes = 0;        // of that, pages of files
  uint64_t mappedCacheBytes = 0;  // pages of files, counted for each process that maps them
  uint64_t sharedBytes = 0;       // of that, shared memory without a file on disk: shm, memfd
};

// Bytes of /dev/shm in use, as df sees it.
absl::StatusOr<uint64_t> sharedFilesystemBytes();

// Not thread-safe. Destroyed, it kills the processes that are left.
class TrainerJob {
 public:
  static absl::StatusOr<TrainerJob> start(const TrainerJobOptions& options);
  TrainerJob(TrainerJob&&) = default;
  TrainerJob& operator=(TrainerJob&&) = delete;
  ~TrainerJob();

  // Waits until every process has reached that stage, and returns what each says there: numbers by name. `meanwhile` runs
  // every few milliseconds. An error of a process's is returned as it said it.
  absl::StatusOr<std::vector<std::map<std::string, uint64_t>>> await(const std::string& stage, Deadline deadline,
                                                                     const std::function<void()>& meanwhile);
  // Lets them go on.
  absl::Status release();
  // Waits for their end. Fails for exit codes other than 0.
  absl::Status end(Deadline deadline);

  absl::StatusOr<JobMemory> memory() const;
  // Anonymous and shared memory of all: cheap.
  uint64_t privateBytes() const;
  // Files of /dev/shm that one of the processes has open or mapped.
  int sharedFiles() const;

 private:
  struct Process {
    pid_t pid = -1;
    FileDescriptor in, out;
    std::string pending;  // read, not yet a whole line
    bool ended = false;
  };
  TrainerJob() = default;
  absl::Status spawn(const TrainerJobOptions& options, const std::map<std::string, std::string>& environment);
  absl::Status readMore(Process* process, int waitMs);

  std::vector<Process> processes_;
};

}  // namespace farhop::benchmarks
