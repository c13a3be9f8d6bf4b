// Parts of one array of a message, behind each other: written, and taken out with every length checked before anything
// is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/status.h"
#include "rpc/bytes.h"
#include "sampler/partitioned_graph.h"

namespace farhop::sampler {

// How many of the rows that follow belong to a partition (and node type, where the message says so).
struct PartitionRun {
  uint32_t partition = 0;
  uint32_t count = 0;
};

// `message` names it in errors, e.g. "walk request"; it must outlive this, as must the bytes.
class WireReader {
 public:
  WireReader(const rpc::Bytes& bytes, const char* message) : data_(bytes.data()), left_(bytes.size()), message_(message) {}

  size_t left() const { return left_; }
  absl::Status malformed(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("malformed ", message_, ": ", what));
  }
  template <typename T>
  absl::Status take(uint64_t count, absl::string_view what, T* values) {
    if (count > left_ / sizeof(T)) return malformed(absl::StrCat("too short for ", count, " ", what));
    if (count == 0) return absl::OkStatus();
    std::memcpy(values, data_, count * sizeof(T));
    data_ += count * sizeof(T);
    left_ -= count * sizeof(T);
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status takeAll(uint64_t count, absl::string_view what, std::vector<T>* values) {
    if (count > left_ / sizeof(T)) return malformed(absl::StrCat("too short for ", count, " ", what));
    values->resize(count);
    return take(count, what, values->data());
  }
  absl::Status finish() const {
    return left_ == 0 ? absl::OkStatus() : malformed(absl::StrCat(left_, " bytes too long"));
  }

 private:
  const std::byte* data_;
  size_t left_;
  const char* message_;
};

// A message's array of its own, as values. InvalidArgument naming `message` unless it is a whole number of them.
template <typename T>
absl::Status copyArray(const rpc::Bytes& bytes, const char* message, std::vector<T>* values) {
  WireReader reader(bytes, message);
  FARHOP_RETURN_IF_ERROR(reader.takeAll(bytes.size() / sizeof(T), "values", values));
  return reader.finish();
}

// Builds one array of a message.
class WireWriter {
 public:
  explicit WireWriter(size_t bytes) : bytes_(rpc::Bytes::allocate(bytes)), at_(bytes_.data()) {}
  template <typename T>
  void put(const T* values, size_t count) {
    if (count > 0) std::memcpy(at_, values, count * sizeof(T));
    at_ += count * sizeof(T);
  }
  template <typename T>
  void putAll(const std::vector<T>& values) {
    put(values.data(), values.size());
  }
  // Everything must have been put.
  rpc::Bytes finish() { return std::move(bytes_); }

 private:
  rpc::Bytes bytes_;
  std::byte* at_;
};

inline std::vector<rpc::OutArray> oneArray(rpc::Bytes bytes) {
  std::vector<rpc::OutArray> arrays;
  arrays.push_back(rpc::OutArray::fromBytes(std::move(bytes)));
  return arrays;
}

// That a partition exists and is this machine's. FailedPrecondition or InvalidArgument otherwise.
absl::Status checkOwnPartition(uint32_t partition, const PartitionedGraph& graph);

// That runs of own partitions cover `rows` of a node type exactly, and that all rows exist.
absl::Status checkRuns(std::span<const PartitionRun> runs, std::span<const uint32_t> rows, int nodeType,
                       const PartitionedGraph& graph);

}  // namespace farhop::sampler
