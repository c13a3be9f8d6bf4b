// Collective operations of a job: over a worker group, and over all its processes.
//
// Two meshes: the group's (rank = machine) and the machine's (rank = process). What concerns the whole job goes
// through both: first among the machine's processes, then between the machines in every group at once, each
// group with its 1/P of the data, then back. Results are the same bits on all W processes.
//
// Every process calls the same operations in the same order. Calls of one process run one after the other
// (one lock). Each has a deadline; a recorded failure ends it at once with that failure, and a broken
// connection waits a moment for the failure's name. After any error the collectives are broken for good and
// every later call returns that error.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "runtime/failure_monitor.h"
#include "runtime/gloo_mesh.h"
#include "runtime/launch_contract.h"

namespace farhop::runtime {

// Thread-safe.
class Collectives {
 public:
  // `monitor` outlives this. Nothing is connected yet.
  Collectives(const LaunchContract& contract, FailureMonitor* monitor);
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // Each once, before the first operation that needs it; nothing to do for a mesh of one. `peers` are the
  // group's processes by machine, with their addresses.
  absl::Status connectGroup(const MeshStore& store, const std::string& bindAddress, const std::vector<PeerName>& peers,
                            Deadline deadline);
  absl::Status connectMachine(const MeshStore& store, Deadline deadline);

  // Everyone in the group, or in the job, has called it.
  absl::Status barrierGroup(Deadline deadline);
  absl::Status barrierJob(Deadline deadline);

  // data[i] becomes the sum over all processes, the same bits on each. Integers wrap around.
  absl::Status allReduceSum(std::span<float> data, Deadline deadline) { return sum(data, deadline); }
  absl::Status allReduceSum(std::span<double> data, Deadline deadline) { return sum(data, deadline); }
  absl::Status allReduceSum(std::span<int64_t> data, Deadline deadline) { return sum(data, deadline); }
  absl::Status allReduceSum(std::span<uint64_t> data, Deadline deadline) { return sum(data, deadline); }

  // Each process's bytes, by world rank, on world rank 0; empty on the others. Lengths may differ.
  absl::StatusOr<std::vector<std::string>> gatherJob(const std::string& value, Deadline deadline);
  // The same on every process.
  absl::StatusOr<std::vector<std::string>> allGatherJob(const std::string& value, Deadline deadline);
  // World rank 0's bytes, on every process; the others' `value` is ignored.
  absl::StatusOr<std::string> broadcastJob(const std::string& value, Deadline deadline);

  // Ends what is under way and everything that follows. From any thread.
  void interrupt();

 private:
  template <typename T>
  absl::Status sum(std::span<T> data, Deadline deadline);
  template <typename T>
  absl::Status sumUnlocked(std::span<T> data, Deadline deadline);
  absl::StatusOr<std::vector<std::string>> gatherUnlocked(const std::string& value, Deadline deadline);
  absl::StatusOr<std::vector<std::string>> allGatherUnlocked(const std::string& value, Deadline deadline);
  absl::StatusOr<std::string> broadcastUnlocked(const std::string& value, Deadline deadline);
  absl::Status connect(std::unique_ptr<GlooMesh>& mesh, GlooMeshOptions options, const MeshStore& store,
                       Deadline deadline);
  absl::Status ready() const;
  absl::Status explain(const char* operation, const absl::Status& status);

  const LaunchContract contract_;
  FailureMonitor* const monitor_;
  int listenerId_ = -1;

  std::mutex operation_;              // held for the length of an operation: one at a time
  absl::Status broken_;               // guarded by operation_
  std::unique_ptr<GlooMesh> group_;   // set once, under both locks; read under either
  std::unique_ptr<GlooMesh> machine_;
  std::mutex meshes_;                 // for interrupt(), which cannot wait for an operation
  bool interrupted_ = false;          // guarded by meshes_
};

}  // namespace farhop::runtime
