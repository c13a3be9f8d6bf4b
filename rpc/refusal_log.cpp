#include "rpc/refusal_log.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace farhop::rpc {
namespace {

constexpr size_t kMaxReasonBytes = 300;

// Nothing that could forge a line or steer a terminal.
std::string printable(absl::string_view text) {
  std::string result;
  for (const char c : text) result += c >= ' ' && c < 127 ? c : '?';
  return result;
}

std::string claimOf(const PeerName& who) {
  std::string text = who.address.empty() ? "a process" : who.address;
  if (who.machine >= 0 || who.proc >= 0) {
    absl::StrAppend(&text, ", which says it is machine ", who.machine, who.proc < 0 ? "" : " process ",
                    who.proc < 0 ? "" : std::to_string(who.proc));
  }
  return text;
}

}  // namespace

void RefusalLog::note(const PeerName& who, const absl::Status& reason) {
  int leftOut = 0;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now - refilled_ >= kInterval) {
      room_ = std::min<int>(kBurst, room_ + static_cast<int>(std::min<int64_t>((now - refilled_) / kInterval, kBurst)));
      refilled_ = now;
    }
    if (room_ == 0) {
      ++leftOut_;
      return;
    }
    --room_;
    leftOut = std::exchange(leftOut_, 0);
  }
  std::string text = printable(reason.message().substr(0, kMaxReasonBytes));
  if (reason.message().size() > kMaxReasonBytes) text += "...";
  FARHOP_LOG(WARNING) << where_ << " refused " << claimOf(who) << ": " << text
                      << (leftOut > 0 ? absl::StrCat(" (and ", leftOut, " more before it)") : "");
}

}  // namespace farhop::rpc
