// Status values and the two macros that pass them on.
//
// Everything below the public API reports environment, peer, file and deadline failures as absl::Status;
// only the public API (runtime/include/farhop) turns them into farhop::Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#define FARHOP_CONCAT_INNER(a, b) a##b
#define FARHOP_CONCAT(a, b) FARHOP_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` is not OK.
#define FARHOP_RETURN_IF_ERROR(expr)                  \
  do {                                                \
    absl::Status farhopStatus_ = (expr);              \
    if (!farhopStatus_.ok()) return farhopStatus_;    \
  } while (0)

// FARHOP_ASSIGN_OR_RETURN(auto x, f()): x = *f(), or returns f()'s status.
#define FARHOP_ASSIGN_OR_RETURN(lhs, expr) \
  FARHOP_ASSIGN_OR_RETURN_INNER(FARHOP_CONCAT(farhopResult_, __LINE__), lhs, expr)
#define FARHOP_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return std::move(result).status();   \
  lhs = std::move(result).value()

namespace farhop {

// The process that a failure is about. Carried inside a Status as a payload, so that it survives being
// passed through layers that know nothing of peers.
struct PeerName {
  int machine = -1;
  int proc = -1;
  std::string address;  // "host:port" of the peer as this process reached it; may be empty
};

// "machine 1 process 0 (127.0.0.1:29500)".
std::string describePeer(const PeerName& peer);

// Attaches the peer to a non-OK status (no effect on an OK one).
absl::Status withPeer(absl::Status status, const PeerName& peer);

// The peer attached to `status`, if any.
std::optional<PeerName> peerOf(const absl::Status& status);

// The same code and payloads, with "prefix: " in front of the message.
absl::Status annotate(const absl::Status& status, absl::string_view prefix);

// A Status from the current errno: "what: No such file or directory".
absl::Status errnoStatus(absl::string_view what, int error);

}  // namespace farhop
