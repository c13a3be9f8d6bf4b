#include "base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace farhop {
namespace {
constexpr char kPeerPayload[] = "farhop.peer";
}

std::string describePeer(const PeerName& peer) {
  std::string text = absl::StrCat("machine ", peer.machine, " process ", peer.proc);
  if (!peer.address.empty()) absl::StrAppend(&text, " (", peer.address, ")");
  return text;
}

absl::Status withPeer(absl::Status status, const PeerName& peer) {
  if (!status.ok()) {
    status.SetPayload(kPeerPayload, absl::Cord(absl::StrCat(peer.machine, "\n", peer.proc, "\n", peer.address)));
  }
  return status;
}

std::optional<PeerName> peerOf(const absl::Status& status) {
  auto payload = status.GetPayload(kPeerPayload);
  if (!payload) return std::nullopt;
  std::vector<std::string> parts = absl::StrSplit(std::string(*payload), '\n');
  PeerName peer;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &peer.machine) || !absl::SimpleAtoi(parts[1], &peer.proc)) {
    return std::nullopt;
  }
  peer.address = parts[2];
  return peer;
}

absl::Status annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

absl::Status errnoStatus(absl::string_view what, int error) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  switch (error) {
    case ENOENT: code = absl::StatusCode::kNotFound; break;
    case EACCES:
    case EPERM: code = absl::StatusCode::kPermissionDenied; break;
    case EEXIST: code = absl::StatusCode::kAlreadyExists; break;
    case ENOSPC:
    case ENOMEM:
    case EMFILE:
    case ENFILE: code = absl::StatusCode::kResourceExhausted; break;
    case ETIMEDOUT: code = absl::StatusCode::kDeadlineExceeded; break;
    default: break;
  }
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace farhop
