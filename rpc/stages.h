// Named points on the way of a process from its start to its end, at which a test may stop it.
//
// Fault tests kill processes in the middle of a handshake or of a farewell; these points say where that is,
// instead of sleeps that hope for it. Without a hook a point costs one load.
#pragma once

#include <atomic>

namespace farhop::rpc {

// Runs on whichever thread comes to the point; may block there for good.
using StageHook = void (*)(const char* stage);

inline std::atomic<StageHook> stageHook{nullptr};

inline void reachStage(const char* stage) {
  if (StageHook hook = stageHook.load(std::memory_order_acquire)) hook(stage);
}

}  // namespace farhop::rpc
