// What the parts of one agent share. Outlives the agent where a Responder does.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/executor.h"
#include "rpc/agent.h"
#include "rpc/timer.h"
#include "rpc/wire.h"

namespace farhop::rpc {

inline constexpr std::chrono::milliseconds kMinPeerTimeout{20};

struct AgentCore {
  explicit AgentCore(AgentOptions agentOptions)
      : options(std::move(agentOptions)),
        limits{options.maxMessageBytes, options.maxArraysPerMessage},
        beatPeriod(options.peerTimeout / 4),
        timer("fh-rpc-timer"),
        serving("fh-serve", options.servingThreads) {}

  std::shared_ptr<const Handler> handler(uint16_t method) {
    std::lock_guard lock(mutex);
    auto found = handlers.find(method);
    return found == handlers.end() ? nullptr : found->second;
  }
  // Wakes who waits for links to get somewhere (connect, farewell, close).
  void notifyProgress() {
    std::lock_guard lock(mutex);
    ++progress;
    changed.notify_all();
  }

  // A peer with a shorter peerTimeout needs heartbeats more often.
  void beatAtLeastEvery(std::chrono::milliseconds period) {
    std::lock_guard lock(mutex);
    beatPeriod = std::min(beatPeriod, period);
    beat.notify_all();
  }

  const AgentOptions options;
  const WireLimits limits;
  std::chrono::milliseconds beatPeriod;  // guarded by mutex
  Timer timer;
  Executor serving;

  std::mutex mutex;
  std::condition_variable changed;
  std::condition_variable beat;
  uint64_t progress = 0;                                        // guarded by mutex
  std::map<uint16_t, std::shared_ptr<const Handler>> handlers;  // guarded by mutex
  Agent::PeerLost peerLost;                                     // guarded by mutex
};

}  // namespace farhop::rpc
