#include "runtime/api/status_error.h"

#include <string>

namespace farhop::api {
namespace {

ErrorCode codeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return ErrorCode::kInvalidArgument;
    case absl::StatusCode::kNotFound: return ErrorCode::kNotFound;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition: return ErrorCode::kFailedPrecondition;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied: return ErrorCode::kPermissionDenied;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable: return ErrorCode::kUnavailable;
    case absl::StatusCode::kDeadlineExceeded: return ErrorCode::kDeadlineExceeded;
    case absl::StatusCode::kResourceExhausted: return ErrorCode::kResourceExhausted;
    case absl::StatusCode::kDataLoss: return ErrorCode::kDataLoss;
    default: return ErrorCode::kInternal;
  }
}

}  // namespace

Error toError(const absl::Status& status) {
  std::optional<Peer> peer;
  if (auto name = peerOf(status)) peer = Peer{name->machine, name->proc, name->address};
  return Error(codeOf(status.code()), std::string(status.message()), std::move(peer));
}

}  // namespace farhop::api
