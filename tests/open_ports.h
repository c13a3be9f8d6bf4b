// The TCP ports that a process listens on, and a stranger who sends rubbish to one.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace farhop::testing {

// From /proc; empty when the process is gone.
std::set<uint16_t> listeningPorts(int pid);

// How many TCP connections each two of the processes have with each other, by index into `pids`.
std::vector<std::vector<int>> connectionsBetween(const std::vector<int>& pids);

// Connects to 127.0.0.1:port a bounded number of times: a port scan (connect and close), random bytes, an HTTP
// request, a half-sent frame, a large blob. Errors are fine: the other side may refuse or close. Returns how many connections were made.
int pester(uint16_t port);

}  // namespace farhop::testing
