// What a process notes of its own progress, for `farhop ps` and for its launcher.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/deadline.h"
#include "base/socket.h"
#include "runtime/job_status.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// Thread-safe.
class StatusBoard {
 public:
  explicit StatusBoard(const LaunchContract& contract);

  // Goes on to a state; one never goes back. `onEnter` is told on the calling thread.
  void enter(ProcessState state);
  void setOnEnter(std::function<void(const ProcessStatus&)> onEnter);

  // From a loader: an epoch begins; a batch is handed out.
  void beginEpoch(int64_t epoch);
  void countBatch() { batches_.fetch_add(1, std::memory_order_relaxed); }

  // Once a second, for the rate.
  void tick();
  ProcessStatus status() const;

 private:
  struct Sample {
    Clock::time_point at;
    uint64_t batches;
  };

  const LaunchContract contract_;
  const Clock::time_point begin_ = Clock::now();
  std::atomic<uint64_t> batches_{0};
  mutable std::mutex mutex_;
  ProcessState state_ = ProcessState::kStarting;  // guarded by mutex_
  double gateSeconds_ = -1, readySeconds_ = -1;   // guarded by mutex_
  int64_t epoch_ = -1;                            // guarded by mutex_
  std::deque<Sample> samples_;                    // guarded by mutex_: of the last ten seconds
  std::function<void(const ProcessStatus&)> onEnter_;  // guarded by mutex_
};

// Answers who asks, from a thread of its own, and ticks the board.
class StatusServer {
 public:
  // Null for a process without a job id. `board` outlives the server.
  static absl::StatusOr<std::unique_ptr<StatusServer>> open(const LaunchContract& contract, StatusBoard* board);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

 private:
  explicit StatusServer(StatusBoard* board) : board_(board) {}
  void run();
  void answerAll();

  StatusBoard* const board_;
  FileDescriptor listener_;
  FileDescriptor wakeup_;  // an eventfd that ends the thread's poll
  std::thread thread_;
};

}  // namespace farhop::runtime
