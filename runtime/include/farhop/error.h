// The one exception type of the public API.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

namespace farhop {

enum class ErrorCode {
  kInvalidArgument,     // a mistake in the call or in the environment; nothing was sent
  kNotFound,            // a file, host, feature, split or type that does not exist
  kFailedPrecondition,  // the call does not fit the state: runtime left, other store on a peer, other version
  kPermissionDenied,    // wrong token, unreadable file
  kUnavailable,         // a peer or a connection was lost
  kDeadlineExceeded,    // something did not happen in time
  kResourceExhausted,   // memory, descriptors, queue or message limits
  kDataLoss,            // a damaged file
  kInternal,            // a broken invariant: please report it
};

// The process that an error is about.
struct Peer {
  int machine = -1;
  int proc = -1;
  std::string address;  // "host:port"; may be empty
};

// Thrown by every function of the public API that says so. what() names what failed, where, and what to do.
// Copyable; safe to rethrow on another thread.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::optional<Peer> peer = std::nullopt)
      : std::runtime_error(message), code_(code), peer_(std::move(peer)) {}

  ErrorCode code() const { return code_; }
  // The lost or refusing process, where the error is about one.
  const std::optional<Peer>& peer() const { return peer_; }
  // True where the same call may succeed later without a change: deadlines and exhausted limits. A lost peer
  // is not retryable: the job has to be started again.
  bool retryable() const {
    return !peer_ && (code_ == ErrorCode::kDeadlineExceeded || code_ == ErrorCode::kResourceExhausted);
  }

 private:
  ErrorCode code_;
  std::optional<Peer> peer_;
};

}  // namespace farhop
