#include "farhop/node_feature.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/shared_memory.h"
#include "runtime/api/batch_core.h"
#include "runtime/api/status_error.h"
#include "sampler/feature_service.h"

namespace farhop {

// One feature, in the making or finished.
struct NodeFeatureState {
  std::shared_ptr<GraphCore> core;
  int nodeType = 0;
  uint32_t index = 0;
  bool added = false;
  partition::FeatureSpec spec;
  size_t rowBytes = 0;
  uint64_t ownRows = 0;                // of this machine
  std::vector<uint64_t> firstRow;      // [partition] where the rows of own partitions begin
  std::shared_ptr<SharedMemory> memory;  // rows, then a byte per row: 1 when it is there

  ~NodeFeatureState() {
    if (added) core->graph->jobFeatures().retire(index);
  }
  size_t flagsOffset() const { return ownRows * rowBytes; }
  std::byte* row(uint64_t number) const { return memory->data() + number * rowBytes; }
  std::atomic_ref<uint8_t> flag(uint64_t number) const {
    return std::atomic_ref<uint8_t>(*reinterpret_cast<uint8_t*>(memory->data() + flagsOffset() + number));
  }
  std::string text() const {
    return absl::StrCat("node feature '", spec.name, "' of '", core->graph->schema().nodeTypes[nodeType].name, "'");
  }
};

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

std::string processName(const GraphCore& core, size_t rank) {
  const int procs = core.session->contract().procsPerMachine;
  return absl::StrCat("machine ", static_cast<int>(rank) / procs, " process ", static_cast<int>(rank) % procs);
}

// One value from each process, by world rank. Throws Error.
std::vector<std::string> allGather(const GraphCore& core, const std::string& value) {
  if (*core.left) throw Error(ErrorCode::kFailedPrecondition, "the runtime has left the job");
  auto all = core.session->collectives().allGatherJob(value, Deadline::after(core.collectiveTimeout));
  if (!all.ok()) throw api::toError(core.explained(all.status()));
  return *std::move(all);
}

// Frees what all processes have let go of. Each says in its first line what it has; takes these lines off.
void releaseRetired(const GraphCore& core, std::vector<std::string>* all) {
  std::map<uint32_t, size_t> retiredBy;
  for (std::string& said : *all) {
    const size_t end = std::min(said.find('\n'), said.size());
    for (absl::string_view text : absl::StrSplit(absl::string_view(said).substr(0, end), ',', absl::SkipEmpty())) {
      uint32_t index = 0;
      if (absl::SimpleAtoi(text, &index)) ++retiredBy[index];
    }
    said.erase(0, end + 1);
  }
  std::vector<uint32_t> byAll;
  for (const auto& [index, processes] : retiredBy) {
    if (processes == all->size()) byAll.push_back(index);
  }
  core.graph->jobFeatures().release(byAll);
}

// Tells all processes how `status` is here and throws the first error anywhere. `value` goes along with OK; returns
// everyone's.
std::vector<std::string> agree(const GraphCore& core, const std::string& what, const absl::Status& status,
                               const std::string& value = "") {
  const std::string retired = absl::StrJoin(core.graph->jobFeatures().retired(), ",");
  std::vector<std::string> all = allGather(
      core, absl::StrCat(retired, "\n", status.ok() ? "+" : "-", status.ok() ? absl::string_view(value) : status.message()));
  releaseRetired(core, &all);
  api::okOrThrow(status);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty() && all[rank][0] == '+') {
      all[rank].erase(0, 1);
      continue;
    }
    throw Error(ErrorCode::kFailedPrecondition,
                absl::StrCat(what, ": ", processName(core, rank), " says: ", all[rank].empty() ? "nothing" : all[rank].substr(1)));
  }
  return all;
}

absl::Status checkName(const GraphCore& core, int nodeType, const std::string& name) {
  if (name.empty() || name.size() > 60) return absl::InvalidArgumentError("a feature's name has 1 to 60 bytes");
  const partition::NodeType& type = core.graph->schema().nodeTypes[nodeType];
  const bool stored = partition::findFeature(type.features, name) != nullptr || name == sampler::kOriginalIdName;
  if (!stored) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("the store has a feature '", name, "' of node type '", type.name,
                                               "'; take another name"));
}

// The machine's first process makes the memory, the others open it.
void shareMemory(NodeFeatureState* state) {
  const GraphCore& core = *state->core;
  const runtime::LaunchContract& contract = core.session->contract();
  const size_t bytes = state->ownRows * (state->rowBytes + 1);
  absl::StatusOr<SharedMemory> memory = SharedMemory();
  if (contract.proc == 0) memory = SharedMemory::create(absl::StrCat("farhop-", state->spec.name), bytes);
  const std::string place = contract.proc == 0 && memory.ok() ? absl::StrCat(::getpid(), ":", memory->file()) : "";
  const std::string description =
      absl::StrCat(state->index, " ", state->nodeType, " ", state->spec.name, " ", dtypeName(state->spec.dtype), " [",
                   absl::StrJoin(state->spec.rowShape, ","), "]");
  const std::vector<std::string> all =
      agree(core, state->text(), memory.status(), absl::StrCat(place, "\n", description));
  std::vector<absl::string_view> made;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<absl::string_view> parts = absl::StrSplit(all[rank], absl::MaxSplits('\n', 1));
    if (parts.size() != 2 || parts[1] != description) {
      throw Error(ErrorCode::kFailedPrecondition,
                  absl::StrCat("makeNodeFeature: ", processName(core, rank), " makes another feature than this process (",
                               description, "); all make the same ones in the same order"));
    }
    if (static_cast<int>(rank) == contract.machine * contract.procsPerMachine) made = absl::StrSplit(parts[0], ':');
  }
  if (contract.proc != 0) {
    int pid = 0, file = 0;
    memory = made.size() == 2 && absl::SimpleAtoi(made[0], &pid) && absl::SimpleAtoi(made[1], &file)
                 ? SharedMemory::open(pid, file, bytes)
                 : absl::InternalError("the machine's first process did not say where the memory is");
  }
  agree(core, state->text(), memory.status());
  memory->closeFile();
  state->memory = std::make_shared<SharedMemory>(*std::move(memory));
}

void refuseAfterFinish(const std::shared_ptr<NodeFeatureState>& state) {
  if (state == nullptr) throw Error(ErrorCode::kFailedPrecondition, "this node feature is finished; rows come before finish()");
}

// Checks everything, then copies.
void putRows(NodeFeatureState* state, std::span<const uint64_t> gids, const torch::Tensor& given) {
  std::vector<int64_t> shape = {static_cast<int64_t>(gids.size())};
  shape.insert(shape.end(), state->spec.rowShape.begin(), state->spec.rowShape.end());
  const torch::ScalarType dtype = torchType(state->spec.dtype);
  if (!given.defined() || !given.device().is_cpu() || given.scalar_type() != dtype || given.sizes() != torch::IntArrayRef(shape)) {
    std::ostringstream message;
    message << "put: " << state->text() << " needs a CPU tensor of shape " << torch::IntArrayRef(shape) << " and dtype " << dtype;
    if (given.defined()) message << ", not " << given.sizes() << " " << given.scalar_type() << " on " << given.device();
    refuse(message.str());
  }
  const sampler::PartitionedGraph& graph = *state->core->graph;
  const partition::PartitionBook& book = graph.book();
  std::vector<uint64_t> rows;
  rows.reserve(gids.size());
  for (size_t i = 0; i < gids.size(); ++i) {
    const int k = book.partitionOf(state->nodeType, gids[i]);
    if (!graph.isOwn(k)) {
      refuse(absl::StrCat("put: row ", i, " is for a node of machine ", graph.owner(k), ", and this is machine ",
                          graph.machine(), "; deal seeds by owner (SeedDeal::kByOwner)"));
    }
    rows.push_back(state->firstRow[k] + gids[i] - book.begin(state->nodeType, k));
  }
  const torch::Tensor contiguous = given.contiguous();
  const auto* source = static_cast<const std::byte*>(contiguous.data_ptr());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (state->rowBytes > 0) std::memcpy(state->row(rows[i]), source + i * state->rowBytes, state->rowBytes);
    state->flag(rows[i]).store(1, std::memory_order_release);
  }
}

// Empty, or what this machine lacks.
std::string missingRows(const NodeFeatureState& state) {
  const sampler::PartitionedGraph& graph = *state.core->graph;
  uint64_t missing = 0, firstId = ~uint64_t{0};
  for (int k : graph.ownPartitions()) {
    const std::span<const uint64_t> ids = graph.shard(k)->originalIds(state.nodeType);
    for (uint64_t row = 0; row < ids.size(); ++row) {
      if (state.flag(state.firstRow[k] + row).load(std::memory_order_acquire) != 0) continue;
      ++missing;
      firstId = std::min(firstId, ids[row]);
    }
  }
  if (missing == 0) return "";
  return absl::StrCat("machine ", graph.machine(), " has no rows for ", missing, missing == 1 ? " node" : " nodes",
                      ", the first with original id ", firstId);
}

}  // namespace

NodeFeatureWriter Graph::makeNodeFeature(const std::string& name, torch::ScalarType dtype, const std::vector<int64_t>& rowShape,
                                         const std::string& nodeType) const {
  auto state = std::make_shared<NodeFeatureState>();
  state->core = core_;
  state->nodeType = core_->nodeType(nodeType);
  state->spec.name = name;
  const std::optional<DType> stored = storedType(dtype);
  if (!stored) refuse(absl::StrCat("makeNodeFeature: features cannot be ", torch::toString(dtype)));
  state->spec.dtype = *stored;
  for (int64_t size : rowShape) {
    if (size < 1) refuse(absl::StrCat("makeNodeFeature: a row's shape cannot have a size of ", size));
    state->spec.rowShape.push_back(static_cast<uint64_t>(size));
  }
  state->rowBytes = state->spec.rowBytes();
  api::okOrThrow(checkName(*core_, state->nodeType, name));
  const auto index = core_->graph->jobFeatures().add(state->nodeType, state->spec);
  if (index.ok()) {
    state->index = *index;
    state->added = true;
  }
  state->firstRow.resize(static_cast<size_t>(core_->graph->book().numPartitions()));
  for (int k : core_->graph->ownPartitions()) {
    state->firstRow[static_cast<size_t>(k)] = state->ownRows;
    state->ownRows += core_->graph->book().count(state->nodeType, k);
  }
  agree(*core_, state->text(), index.status());
  shareMemory(state.get());
  return NodeFeatureWriter(std::move(state));
}

void NodeFeatureWriter::put(const Batch& batch, const torch::Tensor& rows) {
  refuseAfterFinish(state_);
  const sampler::SampledBatch& sampled = *batch.core_->sampled;
  if (sampled.seedType != state_->nodeType) {
    refuse(absl::StrCat("put: the batch's seeds are of type '",
                        state_->core->graph->schema().nodeTypes[sampled.seedType].name, "', but this is ", state_->text()));
  }
  putRows(state_.get(), sampled.seeds, rows);
}

void NodeFeatureWriter::put(const torch::Tensor& originalIds, const torch::Tensor& rows) {
  refuseAfterFinish(state_);
  if (!originalIds.defined() || originalIds.dim() != 1 || originalIds.scalar_type() != torch::kInt64 ||
      !originalIds.device().is_cpu()) {
    refuse("put: expected original ids as an int64 CPU tensor of shape [n]");
  }
  const auto gidOf = api::valueOrThrow(state_->core->graph->store().gidsByOriginalId(state_->nodeType));
  const torch::Tensor ids = originalIds.contiguous();
  std::vector<uint64_t> gids;
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int64_t id = ids.data_ptr<int64_t>()[i];
    if (id < 0 || static_cast<uint64_t>(id) >= gidOf.size() || gidOf[static_cast<uint64_t>(id)] >= gidOf.size()) {
      refuse(absl::StrCat("put: node ", id, " does not exist; there are ", gidOf.size()));
    }
    gids.push_back(gidOf[static_cast<uint64_t>(id)]);
  }
  putRows(state_.get(), gids, rows);
}

NodeFeature NodeFeatureWriter::finish() {
  refuseAfterFinish(state_);
  NodeFeatureState& state = *state_;
  const GraphCore& core = *state.core;
  agree(core, state.text(), absl::OkStatus());  // all rows of all processes are there
  std::vector<std::string> lacks = allGather(core, core.session->contract().proc == 0 ? missingRows(state) : "");
  lacks.erase(std::remove(lacks.begin(), lacks.end(), ""), lacks.end());
  if (!lacks.empty()) {
    throw Error(ErrorCode::kFailedPrecondition, absl::StrCat(state.text(), " is not complete: ", absl::StrJoin(lacks, "; ")));
  }
  std::vector<const std::byte*> tables(state.firstRow.size(), nullptr);
  for (int k : core.graph->ownPartitions()) tables[static_cast<size_t>(k)] = state.row(state.firstRow[static_cast<size_t>(k)]);
  core.graph->jobFeatures().publish(state.index, std::move(tables), state.memory);
  agree(core, state.text(), absl::OkStatus());  // nobody pulls before everybody serves
  return NodeFeature(std::move(state_));
}

const std::string& NodeFeature::name() const { return state_->spec.name; }
std::string NodeFeature::nodeType() const { return state_->core->graph->schema().nodeTypes[state_->nodeType].name; }

}  // namespace farhop
