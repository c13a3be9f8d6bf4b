// The local channel's key-values: kept by the hub, fetched by who needs them.
#include <algorithm>

#include "runtime/local_channel.h"

namespace farhop::runtime {

using Type = LocalMessage::Type;

namespace {

constexpr size_t kMaxKeyBytes = 256;
constexpr size_t kMaxValueBytes = size_t{512} << 10;
constexpr size_t kMaxValues = size_t{1} << 20;  // one for every pair of processes
constexpr size_t kMaxQuestions = 64;            // of one client, that wait for an answer

}  // namespace

absl::Status LocalChannel::keep(const std::string& key, const std::string& value) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("'", key.substr(0, 64), "' of ", value.size(),
                                                   " bytes is too large for the machine's local channel"));
  }
  if (values_.size() >= kMaxValues) return absl::ResourceExhaustedError("the local channel holds too many values");
  values_[key] = value;
  return absl::OkStatus();
}

// A value goes to those who ask for it, not to everyone: the pairs of the machine's mesh alone are P² addresses.
bool LocalChannel::answer(Connection& connection, const std::string& key) {
  const auto found = values_.find(key);
  if (found != values_.end()) {
    LocalMessage value;
    value.type = Type::kSet;
    value.key = key;
    value.value = found->second;
    send(connection, encodeLocalMessage(value));
    return true;
  }
  if (std::count(connection.wanted.begin(), connection.wanted.end(), key) > 0) return true;
  if (connection.wanted.size() >= kMaxQuestions) return false;
  connection.wanted.push_back(key);
  return true;
}

void LocalChannel::answerWaiters(const LocalMessage& value) {
  for (auto& connection : connections_) {
    if (std::erase(connection->wanted, value.key) > 0) send(*connection, encodeLocalMessage(value));
  }
}

absl::Status LocalChannel::set(const std::string& key, const std::string& value) {
  LocalMessage message;
  message.type = Type::kSet;
  message.key = key;
  message.value = value;
  {
    std::lock_guard lock(mutex_);
    FARHOP_RETURN_IF_ERROR(keep(key, value));
    if (isHub()) {
      answerWaiters(message);
    } else {
      publish(message, nullptr);
    }
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalChannel::get(const std::string& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!isHub() && values_.count(key) == 0) {
    LocalMessage question;
    question.type = Type::kGet;
    question.machine = contract_.machine;
    question.proc = contract_.proc;
    question.key = key;
    publish(question, nullptr);
  }
  changed_.wait_until(lock, deadline.at(), [&] { return values_.count(key) > 0 || monitor_->failed(); });
  if (absl::Status failure = monitor_->status(); !failure.ok()) return failure;
  const auto entry = values_.find(key);
  if (entry == values_.end()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no process of machine ", contract_.machine, " has set '", key, "' in time"));
  }
  return entry->second;
}

}  // namespace farhop::runtime
