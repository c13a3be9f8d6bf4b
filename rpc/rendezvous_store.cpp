// What the requests to the rendezvous store do.
#include <algorithm>
#include <utility>
#include <vector>

#include "rpc/rendezvous_server.h"
#include "rpc/wire.h"

namespace farhop::rpc {

void StoreServerImpl::reply(StoreConnection& connection, const absl::Status& status, std::string_view value) {
  if (connection.parked) {
    auto [first, last] = waiting_.equal_range(connection.waitingFor);
    auto entry = std::find_if(first, last, [&](const auto& one) { return one.second == connection.id; });
    if (entry != last) waiting_.erase(entry);
    connection.parked = false;
  }
  if (connection.welcome) setTimer(connection, TimePoint::max());
  connection.out += storeFrame(StoreOperation::kReply, encodeStoreReply(status, value));
  flush(connection);
}

void StoreServerImpl::onHello(StoreConnection& connection, const StorePrefix& prefix, std::string_view body) {
  if (prefix.operation != StoreOperation::kHello) return close(connection.id);
  absl::Status refusal;
  PeerName claimed;
  if (prefix.version != kStoreVersion) {
    refusal = absl::FailedPreconditionError(absl::StrCat("this process speaks version ", prefix.version,
                                                         " of the rendezvous protocol, the store version ",
                                                         kStoreVersion, "; run the same Farhop everywhere"));
  } else {
    const absl::StatusOr<StoreHello> hello = decodeStoreHello(body);
    if (!hello.ok()) return close(connection.id);
    claimed = {hello->machine, hello->proc, ""};
    if (hello->jobId != options_.jobId) {
      refusal = absl::PermissionDeniedError(absl::StrCat("this process belongs to job '", hello->jobId,
                                                         "', the store to job '", options_.jobId, "'"));
    } else if (!equalInConstantTime(hello->token, options_.token)) {
      refusal = absl::PermissionDeniedError(absl::StrCat("this process's token is not that of job '", options_.jobId, "'"));
    } else if (hello->proc != options_.proc) {
      refusal = absl::FailedPreconditionError(absl::StrCat("this process is of group ", hello->proc,
                                                           ", the store of group ", options_.proc,
                                                           "; check the master port"));
    } else {
      connection.peer.machine = hello->machine;
      connection.peer.proc = hello->proc;
      connection.welcome = true;
      strangers_.remove(connection.id);
    }
  }
  connection.closeWhenSent = !refusal.ok();
  if (!refusal.ok()) refusals_.note({claimed.machine, claimed.proc, connection.peer.address}, refusal);
  std::string limits;
  ByteWriter writer(&limits);
  writer.u64(options_.maxKeyBytes);
  writer.u64(options_.maxValueBytes);
  reply(connection, refusal, limits);
}

void StoreServerImpl::onFrame(StoreConnection& connection, StoreOperation operation, std::string_view body) {
  switch (operation) {
    case StoreOperation::kFarewell:
      connection.said = true;
      return close(connection.id);
    case StoreOperation::kSet:
    case StoreOperation::kGet:
    case StoreOperation::kAdd:
      if (!failure_.ok()) return reply(connection, failure_);
      if (operation == StoreOperation::kSet) return onSet(connection, ByteReader(body));
      if (operation == StoreOperation::kGet) return onGet(connection, ByteReader(body));
      return onAdd(connection, ByteReader(body));
    case StoreOperation::kHello:
    case StoreOperation::kReply: return close(connection.id);
  }
}

absl::Status StoreServerImpl::put(const std::string& key, std::string value) {
  auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = key.size() + value.size();
  if ((found == values_.end() && values_.size() >= options_.maxKeys) ||
      storedBytes_ - before + after > options_.maxTotalBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the rendezvous store is full (", values_.size(), " keys, ",
                                                     storedBytes_, " bytes)"));
  }
  storedBytes_ += after - before;
  values_[key] = std::move(value);
  return absl::OkStatus();
}

void StoreServerImpl::onSet(StoreConnection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const std::string value(in.string(options_.maxValueBytes));
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  const absl::Status status = put(key, value);
  reply(connection, status);
  if (!status.ok()) return;
  std::vector<uint64_t> waiters;
  for (auto [entry, last] = waiting_.equal_range(key); entry != last; ++entry) waiters.push_back(entry->second);
  for (uint64_t id : waiters) {
    auto found = connections_.find(id);
    if (found != connections_.end()) reply(found->second, absl::OkStatus(), value);
  }
}

void StoreServerImpl::onGet(StoreConnection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const uint32_t timeoutMs = in.u32();
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  auto found = values_.find(key);
  if (found != values_.end()) return reply(connection, absl::OkStatus(), found->second);
  connection.waitingFor = key;
  connection.parked = true;
  waiting_.emplace(key, connection.id);
  setTimer(connection, Clock::now() + std::chrono::milliseconds(timeoutMs));
}

void StoreServerImpl::onAdd(StoreConnection& connection, ByteReader in) {
  const std::string key(in.string(options_.maxKeyBytes));
  const auto delta = static_cast<int64_t>(in.u64());
  if (!in.ok() || in.remaining() > 0) return close(connection.id);
  int64_t sum = 0;
  auto found = values_.find(key);
  if (found != values_.end()) {
    ByteReader old(found->second);
    sum = static_cast<int64_t>(old.u64());
    if (!old.ok() || old.remaining() > 0) {
      return reply(connection, absl::FailedPreconditionError(absl::StrCat("the key '", key, "' is no counter")));
    }
  }
  if (__builtin_add_overflow(sum, delta, &sum)) {
    return reply(connection, absl::OutOfRangeError(absl::StrCat("the counter '", key, "' would overflow")));
  }
  std::string value;
  ByteWriter(&value).u64(static_cast<uint64_t>(sum));
  const absl::Status status = put(key, value);
  reply(connection, status, value);
}

void StoreServerImpl::failStore(const PeerName& vanished) {
  if (!failure_.ok()) return;
  failure_ = withPeer(absl::UnavailableError(absl::StrCat(describePeer(vanished),
                                                          " left the rendezvous without a farewell; it has probably died")),
                      vanished);
  std::vector<uint64_t> waiters;
  for (const auto& [key, id] : waiting_) waiters.push_back(id);
  for (uint64_t id : waiters) {
    auto found = connections_.find(id);
    if (found != connections_.end()) reply(found->second, failure_);
  }
}

}  // namespace farhop::rpc
