// One message to each of several machines, and what is to be done here meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/executor.h"
#include "base/task.h"
#include "rpc/agent.h"
#include "sampler/sampled_batch.h"

namespace farhop::sampler {

// What goes to a machine and what comes back.
struct MachineMessage {
  int machine = 0;
  std::vector<rpc::OutArray> request;
  std::shared_ptr<rpc::BytesSink> reply = std::make_shared<rpc::BytesSink>();
};

struct ExchangeOptions {
  rpc::Agent* agent = nullptr;  // may be null where nothing is sent
  Executor* executor = nullptr;
  uint16_t method = 0;
  Deadline deadline;
  BatchTraffic* traffic = nullptr;
};

// Sends every message, runs `ownWork`, and resumes on the executor when all replies are in; at once when nothing was
// sent. The first failure, also of `ownWork`; what has been sent is awaited all the same. `messages` and `options`
// must live until then.
Task<absl::Status> exchange(const ExchangeOptions* options, std::vector<MachineMessage>* messages,
                            std::function<absl::Status()> ownWork);

}  // namespace farhop::sampler
