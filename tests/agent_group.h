// A group of agents in one process, for tests: peers as threads.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/agent.h"

namespace farhop::rpc::testing {

using std::chrono::milliseconds;

inline Deadline soon(int ms = 20'000) { return Deadline::after(milliseconds(ms)); }

inline AgentOptions optionsFor(TransportKind kind, int rank, int size) {
  AgentOptions options;
  options.transport = kind;
  options.rank = rank;
  options.size = size;
  for (int i = 0; i < size; ++i) options.peers.push_back({i, 0, ""});
  options.jobId = "job";
  options.token = "secret";
  return options;
}

// Waits for one call's end.
struct Answer {
  absl::Status status;
  std::vector<Bytes> arrays;
};

class PendingAnswer {
 public:
  Agent::Completion completion() {
    return [state = state_](absl::Status status) { state->set_value(std::move(status)); };
  }
  std::shared_ptr<BytesSink> sink() { return sink_; }
  bool ready(int ms = 0) { return future_.wait_for(milliseconds(ms)) == std::future_status::ready; }
  Answer wait() {
    if (!ready(60'000)) return {absl::InternalError("the completion never ran"), {}};
    return {future_.get(), std::move(sink_->arrays)};
  }

 private:
  std::shared_ptr<std::promise<absl::Status>> state_ = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> future_ = state_->get_future();
  std::shared_ptr<BytesSink> sink_ = std::make_shared<BytesSink>();
};

inline PendingAnswer callAsync(Agent& agent, int peer, uint16_t method, std::vector<OutArray> arrays,
                               Deadline deadline = soon()) {
  PendingAnswer pending;
  agent.call(peer, method, std::move(arrays), deadline, pending.sink(), pending.completion());
  return pending;
}

inline Answer callNow(Agent& agent, int peer, uint16_t method, std::vector<OutArray> arrays,
                      Deadline deadline = soon()) {
  return callAsync(agent, peer, method, std::move(arrays), deadline).wait();
}

inline std::vector<OutArray> oneArray(std::string text) { return {OutArray::fromVector(std::move(text))}; }
inline std::string textOf(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Answers with the request's own arrays.
inline void echo(Request request, Responder responder) {
  std::vector<OutArray> arrays;
  for (Bytes& array : request.arrays) arrays.push_back(OutArray::fromBytes(std::move(array)));
  responder.reply(std::move(arrays));
}

// Connects all agents to each other at the same time; the statuses in rank order.
inline std::vector<absl::Status> connectAll(std::vector<std::unique_ptr<Agent>>& agents, Deadline deadline = soon()) {
  std::vector<std::string> addresses;
  for (auto& agent : agents) addresses.push_back(agent->address());
  std::vector<absl::Status> statuses(agents.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < agents.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = agents[i]->connect(addresses, deadline); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

inline std::vector<std::unique_ptr<Agent>> makeGroup(std::vector<AgentOptions> options) {
  std::vector<std::unique_ptr<Agent>> agents;
  for (AgentOptions& one : options) {
    auto agent = Agent::create(std::move(one));
    EXPECT_TRUE(agent.ok()) << agent.status();
    agents.push_back(*std::move(agent));
  }
  return agents;
}

inline std::vector<std::unique_ptr<Agent>> connectedGroup(TransportKind kind, int size,
                                                          void (*adjust)(AgentOptions&) = nullptr) {
  std::vector<AgentOptions> options;
  for (int rank = 0; rank < size; ++rank) {
    options.push_back(optionsFor(kind, rank, size));
    if (adjust != nullptr) adjust(options.back());
  }
  auto agents = makeGroup(std::move(options));
  for (const absl::Status& status : connectAll(agents)) EXPECT_TRUE(status.ok()) << status;
  return agents;
}

// Says farewell from all at once and expects that it works.
inline void leaveTogether(std::vector<std::unique_ptr<Agent>>& agents) {
  std::vector<std::thread> threads;
  for (auto& agent : agents) {
    threads.emplace_back([&agent] {
      const absl::Status status = agent->farewell(soon());
      EXPECT_TRUE(status.ok()) << status;
      agent->close(absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace farhop::rpc::testing
