// What `farhop run` and its agents say to each other: an agent is one process per machine, started over ssh, srun or
// as a child, and talks over its standard input and output.
//
// Frames, little-endian: u32 bytes of the payload, u8 kind, payload. Before its first frame an agent writes kMagic, so
// that whatever a login shell prints before it does no harm. Conversation, with L for the launcher and A for the agent:
//
//   A kHello                            versions; the launcher refuses another protocol
//   L kOrders                           what to run; the token travels here and nowhere else
//   A kPrepared | kRefused              files are there and, on machine 0, the ports are bound
//   L kStart                            where the groups meet; sent when all machines are prepared
//   A kStarted, kOutput, kEnded, kSaid  per trainer; kRefused when one cannot be executed
//   A kPreempted                        it was told to end itself, by a signal: it has passed SIGTERM on
//   L kSignal, kNews, kCredit           any time after kStart
//   L kFinish, A kDone                  end of the job: the agent kills what is left, passes on what the pipes held
//
// Both send kAlive every third of the time after which the other would give them up. Of output the agent sends
// no more than the window of kOrders ahead of kCredit; only what an ended trainer's pipes still hold goes beyond it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace farhop::launcher {

// Changes with every change of a frame: of farhop's version alone an agent of another build cannot be told.
inline constexpr uint32_t kAgentProtocol = 2;
inline constexpr char kAgentMagic[] = "\nFARHOP-AGENT\n";
// What may come before the magic.
inline constexpr size_t kMaxBannerBytes = size_t{64} << 10;
// Arguments and environment of a trainer: about what Linux allows a program to be started with.
inline constexpr size_t kMaxFrameBytes = size_t{4} << 20;
inline constexpr size_t kMaxOutputFrameBytes = size_t{64} << 10;
inline constexpr size_t kMaxWindowBytes = size_t{256} << 10;

enum class FrameKind : uint8_t {
  kHello = 1,
  kPrepared = 2,
  kRefused = 3,
  kStarted = 4,
  kOutput = 5,
  kEnded = 6,
  kSaid = 7,
  kDone = 8,
  kPreempted = 9,
  kOrders = 32,
  kStart = 33,
  kSignal = 34,
  kNews = 35,
  kCredit = 36,
  kFinish = 37,
  kAlive = 64,
};

struct Frame {
  FrameKind kind = FrameKind::kAlive;
  std::string payload;
};

struct AgentHello {
  uint32_t protocol = kAgentProtocol;
  std::string version;  // of the farhop program
  std::string host;     // as the machine calls itself
  uint32_t pid = 0;
};

struct AgentOrders {
  std::string jobId, token;
  uint32_t machine = 0, machines = 1, procs = 1, attempt = 0;
  std::string start;             // FARHOP_START
  std::string bind;              // FARHOP_BIND
  uint64_t memoryEstimateBytes = 0;  // FARHOP_MEMORY_ESTIMATE
  std::string graph;             // absolute, or empty
  std::string workingDirectory;  // absolute
  std::string masterAddr;        // machine 0: empty asks it to find the address by which others reach it
  std::string interface;         // machine 0: that of this network interface
  uint16_t masterPort = 0;       // 0: free ports are chosen
  uint32_t silenceMs = 0;        // gives up the launcher after this time without a frame; 0: never
  uint32_t graceMs = 0;          // between SIGTERM and SIGKILL, when the agent itself is told to end
  uint32_t windowBytes = 0;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> command;
};

// kPrepared; machine 0's says where the groups meet, the others' are empty.
struct AgentPrepared {
  std::string masterAddr;
  uint16_t masterPort = 0;
};

struct TrainerStarted {
  uint32_t proc = 0, pid = 0;
};

struct TrainerOutput {
  uint32_t proc = 0;
  uint8_t stream = 0;  // 0 output, 1 errors
  std::string bytes;   // none: the stream has ended
};

struct TrainerEnded {
  uint32_t proc = 0;
  bool signaled = false;
  uint32_t code = 0;
};

// Something that a trainer wrote to its launcher's socket (kEnvLauncherFd).
struct TrainerSaid {
  uint32_t proc = 0;
  std::string message;
};

std::string encode(const AgentHello& hello);
std::string encode(const AgentOrders& orders);
std::string encode(const AgentPrepared& prepared);  // also the payload of kStart
std::string encode(const TrainerStarted& started);
std::string encode(const TrainerOutput& output);
std::string encode(const TrainerEnded& ended);
std::string encode(const TrainerSaid& said);
std::string encodeRefusal(const absl::Status& status);
std::string encodeNumber(uint32_t number);  // kSignal, kCredit, kDone, kPreempted

// InvalidArgument for what an honest peer of this protocol version would not send. A hello of another version decodes as
// far as every version has it: protocol and program version.
absl::StatusOr<AgentHello> decodeHello(const std::string& payload);
absl::StatusOr<AgentOrders> decodeOrders(const std::string& payload);
absl::StatusOr<AgentPrepared> decodePrepared(const std::string& payload);
absl::StatusOr<TrainerStarted> decodeStarted(const std::string& payload);
absl::StatusOr<TrainerOutput> decodeOutput(const std::string& payload);
absl::StatusOr<TrainerEnded> decodeEnded(const std::string& payload);
absl::StatusOr<TrainerSaid> decodeSaid(const std::string& payload);
// The status that was refused with; InvalidArgument for nonsense.
absl::Status decodeRefusal(const std::string& payload);
absl::StatusOr<uint32_t> decodeNumber(const std::string& payload);

}  // namespace farhop::launcher
