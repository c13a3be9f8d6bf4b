// The border between absl::Status inside and farhop::Error outside.
#pragma once

#include <utility>

#include "base/status.h"
#include "farhop/error.h"

namespace farhop::api {

Error toError(const absl::Status& status);

inline void okOrThrow(const absl::Status& status) {
  if (!status.ok()) throw toError(status);
}

template <typename T>
T valueOrThrow(absl::StatusOr<T> result) {
  if (!result.ok()) throw toError(result.status());
  return std::move(result).value();
}

}  // namespace farhop::api
