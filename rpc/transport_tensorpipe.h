// Pipes over TensorPipe: TCP (uv) or the machine's shared memory (shm).
//
// No channel is registered: arrays travel as payloads on the pipe's own connection. TensorPipe throws on its
// own threads, which ends the process, when its listener reads anything that is not TensorPipe's, and when an
// address does not parse; hence addresses are checked here, and listeners are to be closed early.
#pragma once

#include <memory>

#include "rpc/transport.h"

namespace farhop::rpc {

// kUv or kShm.
std::unique_ptr<Transport> makeTensorPipeTransport(TransportKind kind);

}  // namespace farhop::rpc
