#include "runtime/mesh_operations.h"

#include <algorithm>
#include <type_traits>

namespace farhop::runtime {
namespace {

enum class Kind : uint64_t { kBarrier = 1, kReduceScatter, kGather, kAllGatherStrings, kBroadcast };

const char* nameOf(uint64_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kBarrier: return "a barrier";
    case Kind::kReduceScatter: return "a reduction";
    case Kind::kGather: return "a gather";
    case Kind::kAllGatherStrings: return "an all-gather";
    case Kind::kBroadcast: return "a broadcast";
  }
  return "something unknown";
}

struct Call {
  uint64_t kind;
  uint64_t bytes;    // where all ranks pass the same number, else 0
  uint64_t element;  // a code of the element type
};

// Steps of one operation: the comparison takes the first.
constexpr uint64_t kFirstStep = 1;

// A collective that cannot go on: the other ranks must not wait for this one.
absl::Status giveUp(GlooMesh& mesh, absl::Status status) {
  mesh.interrupt();
  return status;
}

absl::Status step(GlooMesh& mesh, const MeshExchange& exchange, uint64_t number, Deadline deadline) {
  absl::Status status = mesh.exchange(exchange, number, deadline);
  if (!status.ok()) mesh.interrupt();
  return status;
}

// Compares with the rank behind: it is the one whose data this rank takes in a ring, and every disagreement
// shows between some two neighbours. Whoever sees it ends the operation for all.
absl::Status begin(GlooMesh& mesh, const Call& own, Deadline deadline) {
  mesh.beginOperation();
  Call other{};
  const int previous = (mesh.rank() - 1 + mesh.size()) % mesh.size();
  FARHOP_RETURN_IF_ERROR(step(mesh,
                              {(mesh.rank() + 1) % mesh.size(), std::as_bytes(std::span(&own, 1)), previous,
                               std::as_writable_bytes(std::span(&other, 1))},
                              0, deadline));
  if (other.kind == own.kind && other.bytes == own.bytes && other.element == own.element) return absl::OkStatus();
  return giveUp(mesh, absl::InvalidArgumentError(absl::StrCat(
                          mesh.name(), ": this process calls ", nameOf(own.kind), " of ", own.bytes, " bytes while ",
                          describePeer(mesh.peer(previous)), " calls ", nameOf(other.kind), " of ", other.bytes,
                          " bytes (or of another type); all processes must call the same, in the same order")));
}

template <typename T>
constexpr uint64_t elementCode();
template <> constexpr uint64_t elementCode<float>() { return 1; }
template <> constexpr uint64_t elementCode<double>() { return 2; }
template <> constexpr uint64_t elementCode<int64_t>() { return 3; }
template <> constexpr uint64_t elementCode<uint64_t>() { return 4; }

template <typename T>
std::span<T> slice(std::span<T> data, int parts, int part) {
  const auto [first, last] = sliceOf(data.size(), parts, part);
  return data.subspan(first, last - first);
}

// Integers wrap around, signed ones as well.
template <typename T>
T added(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

absl::Status tooLarge(const GlooMesh& mesh, const PeerName& who, uint64_t bytes) {
  return absl::InvalidArgumentError(absl::StrCat(mesh.name(), ": ", describePeer(who), " sends ", bytes,
                                                 " bytes in one piece; at most ", kMaxCollectiveBytes, " can travel"));
}

std::span<const std::byte> bytesOf(const std::string& value) { return std::as_bytes(std::span(value)); }

// A string whose length the receiver does not know: the length first. Takes two steps.
absl::Status sendString(GlooMesh& mesh, int to, const std::string& value, uint64_t first, Deadline deadline) {
  const uint64_t size = value.size();
  FARHOP_RETURN_IF_ERROR(step(mesh, {to, std::as_bytes(std::span(&size, 1)), -1, {}}, first, deadline));
  if (size == 0) return absl::OkStatus();
  return step(mesh, {to, bytesOf(value), -1, {}}, first + 1, deadline);
}

absl::StatusOr<std::string> receiveString(GlooMesh& mesh, int from, uint64_t first, Deadline deadline) {
  uint64_t size = 0;
  FARHOP_RETURN_IF_ERROR(step(mesh, {-1, {}, from, std::as_writable_bytes(std::span(&size, 1))}, first, deadline));
  if (size > kMaxCollectiveBytes) return giveUp(mesh, tooLarge(mesh, mesh.peer(from), size));
  std::string value(size, '\0');
  if (size == 0) return value;
  FARHOP_RETURN_IF_ERROR(step(mesh, {-1, {}, from, std::as_writable_bytes(std::span(value))}, first + 1, deadline));
  return value;
}

}  // namespace

std::pair<size_t, size_t> sliceOf(size_t elements, int parts, int part) {
  const size_t share = elements / static_cast<size_t>(parts), extra = elements % static_cast<size_t>(parts);
  const size_t index = static_cast<size_t>(part);
  const size_t first = index * share + std::min(index, extra);
  return {first, first + share + (index < extra ? 1 : 0)};
}

absl::Status meshBarrier(GlooMesh& mesh, Deadline deadline) {
  if (mesh.size() == 1) return absl::OkStatus();
  FARHOP_RETURN_IF_ERROR(begin(mesh, {static_cast<uint64_t>(Kind::kBarrier), 0, 0}, deadline));
  // Dissemination: after the round of distance d, a rank knows of the 2d ranks behind it. The comparison was
  // the round of distance 1.
  uint64_t number = kFirstStep;
  for (int distance = 2; distance < mesh.size(); distance *= 2, ++number) {
    const std::byte out{};
    std::byte in{};
    const MeshExchange exchange{(mesh.rank() + distance) % mesh.size(), {&out, 1},
                                (mesh.rank() - distance + mesh.size()) % mesh.size(), {&in, 1}};
    FARHOP_RETURN_IF_ERROR(step(mesh, exchange, number, deadline));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status meshReduceScatter(GlooMesh& mesh, std::span<T> data, Deadline deadline) {
  const int size = mesh.size(), rank = mesh.rank();
  if (size == 1) return absl::OkStatus();
  FARHOP_RETURN_IF_ERROR(
      begin(mesh, {static_cast<uint64_t>(Kind::kReduceScatter), data.size_bytes(), elementCode<T>()}, deadline));
  std::vector<T> incoming(slice(data, size, 0).size());
  for (int round = 0; round + 1 < size; ++round) {
    const std::span<T> out = slice(data, size, (rank - round - 1 + 2 * size) % size);
    const std::span<T> sum = slice(data, size, (rank - round - 2 + 2 * size) % size);
    const std::span<T> in = std::span(incoming).first(sum.size());
    const MeshExchange exchange{(rank + 1) % size, std::as_bytes(out), (rank - 1 + size) % size,
                                std::as_writable_bytes(in)};
    FARHOP_RETURN_IF_ERROR(step(mesh, exchange, kFirstStep + static_cast<uint64_t>(round), deadline));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = added(sum[i], in[i]);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status meshAllGather(GlooMesh& mesh, std::span<T> data, Deadline deadline) {
  const int size = mesh.size(), rank = mesh.rank();
  if (size == 1) return absl::OkStatus();
  mesh.beginOperation();
  for (int round = 0; round + 1 < size; ++round) {
    const std::span<T> out = slice(data, size, (rank - round + size) % size);
    const std::span<T> in = slice(data, size, (rank - round - 1 + size) % size);
    const MeshExchange exchange{(rank + 1) % size, std::as_bytes(out), (rank - 1 + size) % size,
                                std::as_writable_bytes(in)};
    FARHOP_RETURN_IF_ERROR(step(mesh, exchange, kFirstStep + static_cast<uint64_t>(round), deadline));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> meshGather(GlooMesh& mesh, int root, const std::string& value,
                                                    Deadline deadline) {
  if (mesh.size() == 1) return std::vector<std::string>{value};
  FARHOP_RETURN_IF_ERROR(begin(mesh, {static_cast<uint64_t>(Kind::kGather), 0, 0}, deadline));
  if (mesh.rank() != root) {
    FARHOP_RETURN_IF_ERROR(sendString(mesh, root, value, kFirstStep, deadline));
    return std::vector<std::string>{};
  }
  std::vector<std::string> values(static_cast<size_t>(mesh.size()));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank == root) {
      values[static_cast<size_t>(rank)] = value;
      continue;
    }
    FARHOP_ASSIGN_OR_RETURN(values[static_cast<size_t>(rank)], receiveString(mesh, rank, kFirstStep, deadline));
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> meshAllGatherStrings(GlooMesh& mesh, const std::string& value,
                                                              Deadline deadline) {
  const int size = mesh.size(), rank = mesh.rank();
  if (size == 1) return std::vector<std::string>{value};
  FARHOP_RETURN_IF_ERROR(begin(mesh, {static_cast<uint64_t>(Kind::kAllGatherStrings), 0, 0}, deadline));
  std::vector<std::string> values(static_cast<size_t>(size));
  values[static_cast<size_t>(rank)] = value;
  // Round the ring; a string's length travels one step ahead of it.
  uint64_t number = kFirstStep;
  for (int round = 0; round + 1 < size; ++round, number += 2) {
    const std::string& out = values[static_cast<size_t>((rank - round + size) % size)];
    std::string& in = values[static_cast<size_t>((rank - round - 1 + size) % size)];
    const int to = (rank + 1) % size, from = (rank - 1 + size) % size;
    const uint64_t outBytes = out.size();
    uint64_t inBytes = 0;
    FARHOP_RETURN_IF_ERROR(step(mesh, {to, std::as_bytes(std::span(&outBytes, 1)), from,
                                       std::as_writable_bytes(std::span(&inBytes, 1))}, number, deadline));
    if (inBytes > kMaxCollectiveBytes) return giveUp(mesh, tooLarge(mesh, mesh.peer(from), inBytes));
    in.resize(inBytes);
    FARHOP_RETURN_IF_ERROR(
        step(mesh, {to, bytesOf(out), from, std::as_writable_bytes(std::span(in))}, number + 1, deadline));
  }
  return values;
}

absl::StatusOr<std::string> meshBroadcast(GlooMesh& mesh, int root, const std::string& value, Deadline deadline) {
  if (mesh.size() == 1) return value;
  FARHOP_RETURN_IF_ERROR(begin(mesh, {static_cast<uint64_t>(Kind::kBroadcast), 0, 0}, deadline));
  if (mesh.rank() != root) return receiveString(mesh, root, kFirstStep, deadline);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (rank != root) FARHOP_RETURN_IF_ERROR(sendString(mesh, rank, value, kFirstStep, deadline));
  }
  return value;
}

#define FARHOP_MESH_SUMS(T)                                                        \
  template absl::Status meshReduceScatter<T>(GlooMesh&, std::span<T>, Deadline); \
  template absl::Status meshAllGather<T>(GlooMesh&, std::span<T>, Deadline);
FARHOP_MESH_SUMS(float)
FARHOP_MESH_SUMS(double)
FARHOP_MESH_SUMS(int64_t)
FARHOP_MESH_SUMS(uint64_t)
#undef FARHOP_MESH_SUMS

}  // namespace farhop::runtime
