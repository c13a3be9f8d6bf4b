// Closes the port that a libfabric endpoint over TCP listens on, once all connections are made.
//
// libfabric has no call for that: the listener belongs to the layers below the endpoint, which keep its descriptor for as
// long as the endpoint lives. So the descriptor is pointed at something that never becomes ready; the kernel then closes
// the socket, and the library goes on to wait for it, and closes it in the end, as before.
#pragma once

#include <string_view>

#include "base/status.h"

namespace farhop::rpc {

// `name` is a socket address as fi_getname() gives it. Every socket of this process that listens on exactly that address
// is closed; returns how many. Not while another thread uses the endpoint.
absl::StatusOr<int> closeListenersOn(std::string_view name);

}  // namespace farhop::rpc
