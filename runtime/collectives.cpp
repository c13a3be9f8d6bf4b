#include "runtime/collectives.h"

#include <cstring>

#include "runtime/mesh_operations.h"

namespace farhop::runtime {
namespace {

// How long a broken connection waits for whoever knows which process is to blame.
constexpr std::chrono::milliseconds kCulpritTimeout{1'000};

// A list of strings as one, for the second leg of a gather.
std::string pack(const std::vector<std::string>& values) {
  std::string packed;
  for (const std::string& value : values) {
    const uint64_t size = value.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof(size));
    packed += value;
  }
  return packed;
}

absl::StatusOr<std::vector<std::string>> unpack(const std::string& packed, int count) {
  std::vector<std::string> values;
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    uint64_t size = 0;
    if (packed.size() - at < sizeof(size)) return absl::InternalError("a gathered list is cut short");
    std::memcpy(&size, packed.data() + at, sizeof(size));
    at += sizeof(size);
    if (packed.size() - at < size) return absl::InternalError("a gathered list is cut short");
    values.push_back(packed.substr(at, size));
    at += size;
  }
  return values;
}

// From lists by machine, within lists by process, to one list by world rank.
absl::StatusOr<std::vector<std::string>> byWorldRank(const std::vector<std::string>& packedByProc, int machines) {
  const size_t procs = packedByProc.size();
  std::vector<std::string> values(procs * static_cast<size_t>(machines));
  for (size_t proc = 0; proc < procs; ++proc) {
    FARHOP_ASSIGN_OR_RETURN(std::vector<std::string> byMachine, unpack(packedByProc[proc], machines));
    for (size_t machine = 0; machine < byMachine.size(); ++machine) {
      values[machine * procs + proc] = std::move(byMachine[machine]);
    }
  }
  return values;
}

}  // namespace

Collectives::Collectives(const LaunchContract& contract, FailureMonitor* monitor)
    : contract_(contract), monitor_(monitor) {
  listenerId_ = monitor_->addListener([this](const absl::Status&) { interrupt(); });
}

Collectives::~Collectives() { monitor_->removeListener(listenerId_); }

absl::Status Collectives::connectGroup(const MeshStore& store, const std::string& bindAddress,
                                       const std::vector<PeerName>& peers, Deadline deadline) {
  if (contract_.numMachines == 1) return absl::OkStatus();
  GlooMeshOptions options;
  options.name = absl::StrCat("group ", contract_.proc);
  options.rank = contract_.machine;
  options.peers = peers;
  options.bindAddress = bindAddress;
  return connect(group_, std::move(options), store, deadline);
}

absl::Status Collectives::connectMachine(const MeshStore& store, Deadline deadline) {
  if (contract_.procsPerMachine == 1) return absl::OkStatus();
  GlooMeshOptions options;
  options.name = absl::StrCat("machine ", contract_.machine);
  options.machine = true;
  options.rank = contract_.proc;
  for (int proc = 0; proc < contract_.procsPerMachine; ++proc) options.peers.push_back({contract_.machine, proc, ""});
  options.bindAddress = "127.0.0.1";
  return connect(machine_, std::move(options), store, deadline);
}

absl::Status Collectives::connect(std::unique_ptr<GlooMesh>& mesh, GlooMeshOptions options, const MeshStore& store,
                                  Deadline deadline) {
  options.secret = absl::StrCat(contract_.jobId, "\n", contract_.token);
  const std::string what = absl::StrCat("connecting ", options.name);
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(broken_);
  GlooMesh* made = nullptr;
  {
    std::lock_guard hold(meshes_);
    mesh = std::make_unique<GlooMesh>(std::move(options));
    made = mesh.get();
    if (interrupted_) made->interrupt();
  }
  return explain(what.c_str(), made->connect(store, deadline));
}

void Collectives::interrupt() {
  std::vector<GlooMesh*> meshes;
  {
    std::lock_guard hold(meshes_);
    interrupted_ = true;
    for (const auto* mesh : {&group_, &machine_}) {
      if (*mesh) meshes.push_back(mesh->get());
    }
  }
  for (GlooMesh* mesh : meshes) mesh->interrupt();
}

absl::Status Collectives::ready() const {
  FARHOP_RETURN_IF_ERROR(broken_);
  FARHOP_RETURN_IF_ERROR(monitor_->status());
  if (contract_.procsPerMachine > 1 && !machine_) {
    return absl::FailedPreconditionError("the machine's processes are not connected yet");
  }
  if (contract_.numMachines > 1 && !group_) return absl::FailedPreconditionError("the group is not connected yet");
  return absl::OkStatus();
}

// What goes to the caller: the culprit, where anybody knows it, instead of the connection on which it showed.
absl::Status Collectives::explain(const char* operation, const absl::Status& status) {
  if (status.ok()) return status;
  const bool callersMistake = absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
  if (!callersMistake && !absl::IsDeadlineExceeded(status)) {
    (void)monitor_->waitFor(Deadline::after(kCulpritTimeout));
  }
  absl::Status reason = monitor_->status();
  if (reason.ok()) {
    reason = annotate(status, operation);
    // Nobody else knows: the others are to end with the same.
    monitor_->record(reason);
  }
  broken_ = reason;
  interrupt();
  return reason;
}

absl::Status Collectives::barrierGroup(Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(broken_);
  FARHOP_RETURN_IF_ERROR(monitor_->status());
  if (!group_) return absl::OkStatus();
  return explain("barrier of the group", meshBarrier(*group_, deadline));
}

absl::Status Collectives::barrierJob(Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(ready());
  // Whoever passes the second knows that every machine has passed the first.
  absl::Status status;
  if (machine_) status = meshBarrier(*machine_, deadline);
  if (status.ok() && group_) status = meshBarrier(*group_, deadline);
  return explain("barrier of the job", status);
}

template <typename T>
absl::Status Collectives::sum(std::span<T> data, Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(ready());
  return explain("all-reduce", sumUnlocked(data, deadline));
}

template <typename T>
absl::Status Collectives::sumUnlocked(std::span<T> data, Deadline deadline) {
  if (machine_) FARHOP_RETURN_IF_ERROR(meshReduceScatter(*machine_, data, deadline));
  if (group_) {
    const auto [first, last] = sliceOf(data.size(), contract_.procsPerMachine, contract_.proc);
    const std::span<T> own = data.subspan(first, last - first);
    FARHOP_RETURN_IF_ERROR(meshReduceScatter(*group_, own, deadline));
    FARHOP_RETURN_IF_ERROR(meshAllGather(*group_, own, deadline));
  }
  if (machine_) FARHOP_RETURN_IF_ERROR(meshAllGather(*machine_, data, deadline));
  return absl::OkStatus();
}

template absl::Status Collectives::sum<float>(std::span<float>, Deadline);
template absl::Status Collectives::sum<double>(std::span<double>, Deadline);
template absl::Status Collectives::sum<int64_t>(std::span<int64_t>, Deadline);
template absl::Status Collectives::sum<uint64_t>(std::span<uint64_t>, Deadline);

absl::StatusOr<std::vector<std::string>> Collectives::gatherJob(const std::string& value, Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(ready());
  absl::StatusOr<std::vector<std::string>> values = gatherUnlocked(value, deadline);
  if (!values.ok()) return explain("gather", values.status());
  return values;
}

absl::StatusOr<std::vector<std::string>> Collectives::gatherUnlocked(const std::string& value, Deadline deadline) {
  std::vector<std::string> byMachine{value};
  if (group_) {
    FARHOP_ASSIGN_OR_RETURN(byMachine, meshGather(*group_, 0, value, deadline));
  }
  if (contract_.machine != 0) return std::vector<std::string>{};
  std::vector<std::string> packedByProc{pack(byMachine)};
  if (machine_) {
    FARHOP_ASSIGN_OR_RETURN(packedByProc, meshGather(*machine_, 0, pack(byMachine), deadline));
  }
  if (contract_.proc != 0) return std::vector<std::string>{};
  return byWorldRank(packedByProc, contract_.numMachines);
}

absl::StatusOr<std::vector<std::string>> Collectives::allGatherJob(const std::string& value, Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(ready());
  absl::StatusOr<std::vector<std::string>> values = allGatherUnlocked(value, deadline);
  if (!values.ok()) return explain("all-gather", values.status());
  return values;
}

absl::StatusOr<std::vector<std::string>> Collectives::allGatherUnlocked(const std::string& value, Deadline deadline) {
  std::vector<std::string> byMachine{value};
  if (group_) {
    FARHOP_ASSIGN_OR_RETURN(byMachine, meshAllGatherStrings(*group_, value, deadline));
  }
  std::vector<std::string> packedByProc{pack(byMachine)};
  if (machine_) {
    FARHOP_ASSIGN_OR_RETURN(packedByProc, meshAllGatherStrings(*machine_, pack(byMachine), deadline));
  }
  return byWorldRank(packedByProc, contract_.numMachines);
}

absl::StatusOr<std::string> Collectives::broadcastJob(const std::string& value, Deadline deadline) {
  std::lock_guard lock(operation_);
  FARHOP_RETURN_IF_ERROR(ready());
  absl::StatusOr<std::string> result = broadcastUnlocked(value, deadline);
  if (!result.ok()) return explain("broadcast", result.status());
  return result;
}

absl::StatusOr<std::string> Collectives::broadcastUnlocked(const std::string& value, Deadline deadline) {
  std::string current = value;
  if (machine_ && contract_.machine == 0) {
    FARHOP_ASSIGN_OR_RETURN(current, meshBroadcast(*machine_, 0, current, deadline));
  }
  if (group_) {
    FARHOP_ASSIGN_OR_RETURN(current, meshBroadcast(*group_, 0, current, deadline));
  }
  return current;
}

}  // namespace farhop::runtime
