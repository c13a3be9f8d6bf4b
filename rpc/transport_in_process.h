// Pipes between agents of one process: queues, for tests and for groups that share a process.
//
// Addresses are "inproc://NAME". A write completes when the other side has read it, so that a side that does
// not read holds the writer back, as a full socket would.
#pragma once

#include <memory>

#include "rpc/transport.h"

namespace farhop::rpc {

std::unique_ptr<Transport> makeInProcessTransport();

}  // namespace farhop::rpc
