#include "launcher/agent_protocol.h"

#include "base/byte_codec.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {
namespace {

constexpr size_t kMaxTextBytes = 4'096;  // names, paths, addresses
constexpr size_t kMaxListEntries = 100'000;

std::string text(ByteReader& reader, size_t maxBytes = kMaxTextBytes) {
  return std::string(reader.string(maxBytes));
}

absl::Status broken(const char* frame) {
  return absl::InvalidArgumentError(absl::StrCat("a broken ", frame, " frame"));
}

// At the end of a payload that must have been read exactly.
template <typename Message>
absl::StatusOr<Message> whole(const ByteReader& reader, Message message, const char* frame) {
  if (!reader.ok() || reader.remaining() > 0) return broken(frame);
  return message;
}

// A number of entries that the rest of the payload can hold at all.
bool plausibleCount(const ByteReader& reader, uint32_t entries) {
  return reader.ok() && entries <= kMaxListEntries && entries <= reader.remaining() / sizeof(uint32_t);
}

bool readCommand(ByteReader& reader, AgentOrders& orders) {
  const uint32_t variables = reader.u32();
  if (!plausibleCount(reader, variables)) return false;
  for (uint32_t i = 0; i < variables && reader.ok(); ++i) {
    std::string name = text(reader);
    orders.environment.emplace_back(std::move(name), text(reader, kMaxFrameBytes));
  }
  const uint32_t words = reader.u32();
  if (!plausibleCount(reader, words)) return false;
  for (uint32_t i = 0; i < words && reader.ok(); ++i) orders.command.push_back(text(reader, kMaxFrameBytes));
  return true;
}

}  // namespace

std::string encode(const AgentHello& hello) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(hello.protocol);
  writer.string(hello.version);
  writer.string(hello.host);
  writer.u32(hello.pid);
  return bytes;
}

absl::StatusOr<AgentHello> decodeHello(const std::string& payload) {
  ByteReader reader(payload);
  AgentHello hello;
  hello.protocol = reader.u32();
  hello.version = text(reader);
  if (!reader.ok()) return broken("hello");
  if (hello.protocol != kAgentProtocol) return hello;
  hello.host = text(reader);
  hello.pid = reader.u32();
  return whole(reader, std::move(hello), "hello");
}

std::string encode(const AgentOrders& orders) {
  std::string bytes;
  ByteWriter writer(&bytes);
  for (const std::string* field : {&orders.jobId, &orders.token, &orders.start, &orders.bind, &orders.graph, &orders.workingDirectory,
                                   &orders.masterAddr, &orders.interface}) {
    writer.string(*field);
  }
  for (const uint32_t number : {orders.machine, orders.machines, orders.procs, orders.attempt, orders.silenceMs,
                                orders.windowBytes}) {
    writer.u32(number);
  }
  writer.u64(orders.memoryEstimateBytes);
  writer.u16(orders.masterPort);
  writer.u32(static_cast<uint32_t>(orders.environment.size()));
  for (const auto& [name, value] : orders.environment) {
    writer.string(name);
    writer.string(value);
  }
  writer.u32(static_cast<uint32_t>(orders.command.size()));
  for (const std::string& word : orders.command) writer.string(word);
  return bytes;
}

absl::StatusOr<AgentOrders> decodeOrders(const std::string& payload) {
  ByteReader reader(payload);
  AgentOrders orders;
  for (std::string* field : {&orders.jobId, &orders.token, &orders.start, &orders.bind, &orders.graph, &orders.workingDirectory,
                             &orders.masterAddr, &orders.interface}) {
    *field = text(reader);
  }
  for (uint32_t* number : {&orders.machine, &orders.machines, &orders.procs, &orders.attempt, &orders.silenceMs,
                           &orders.windowBytes}) {
    *number = reader.u32();
  }
  orders.memoryEstimateBytes = reader.u64();
  orders.masterPort = reader.u16();
  if (!readCommand(reader, orders)) return broken("orders");
  const bool sane = orders.procs >= 1 && orders.procs <= static_cast<uint32_t>(runtime::kMaxProcsPerMachine) &&
                    orders.machine < orders.machines &&
                    orders.machines <= static_cast<uint32_t>(runtime::kMaxMachines) && !orders.command.empty() &&
                    orders.windowBytes >= 1 && orders.windowBytes <= kMaxWindowBytes &&
                    orders.masterPort + orders.procs <= 65'535 && orders.workingDirectory.rfind('/', 0) == 0;
  if (!sane) return broken("orders");
  return whole(reader, std::move(orders), "orders");
}

std::string encode(const AgentPrepared& prepared) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.string(prepared.masterAddr);
  writer.u16(prepared.masterPort);
  return bytes;
}

absl::StatusOr<AgentPrepared> decodePrepared(const std::string& payload) {
  ByteReader reader(payload);
  AgentPrepared prepared;
  prepared.masterAddr = text(reader);
  prepared.masterPort = reader.u16();
  return whole(reader, std::move(prepared), "prepared or start");
}

std::string encode(const TrainerStarted& started) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(started.proc);
  writer.u32(started.pid);
  return bytes;
}

absl::StatusOr<TrainerStarted> decodeStarted(const std::string& payload) {
  ByteReader reader(payload);
  TrainerStarted started;
  started.proc = reader.u32();
  started.pid = reader.u32();
  return whole(reader, started, "started");
}

std::string encode(const TrainerOutput& output) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(output.proc);
  writer.u8(output.stream);
  writer.raw(output.bytes);
  return bytes;
}

absl::StatusOr<TrainerOutput> decodeOutput(const std::string& payload) {
  ByteReader reader(payload);
  TrainerOutput output;
  output.proc = reader.u32();
  output.stream = reader.u8();
  if (output.stream > 1 || reader.remaining() > kMaxOutputFrameBytes) return broken("output");
  output.bytes = std::string(reader.raw(reader.remaining()));
  return whole(reader, std::move(output), "output");
}

std::string encode(const TrainerEnded& ended) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(ended.proc);
  writer.u8(ended.signaled ? 1 : 0);
  writer.u32(ended.code);
  return bytes;
}

absl::StatusOr<TrainerEnded> decodeEnded(const std::string& payload) {
  ByteReader reader(payload);
  TrainerEnded ended;
  ended.proc = reader.u32();
  ended.signaled = reader.u8() != 0;
  ended.code = reader.u32();
  if (ended.code > 255) return broken("ended");
  return whole(reader, ended, "ended");
}

std::string encode(const TrainerSaid& said) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(said.proc);
  writer.string(said.message);
  return bytes;
}

absl::StatusOr<TrainerSaid> decodeSaid(const std::string& payload) {
  ByteReader reader(payload);
  TrainerSaid said;
  said.proc = reader.u32();
  said.message = text(reader);
  return whole(reader, std::move(said), "said");
}

std::string encodeRefusal(const absl::Status& status) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.u32(static_cast<uint32_t>(status.raw_code()));
  writer.string(std::string(status.message()).substr(0, kMaxTextBytes));
  return bytes;
}

absl::Status decodeRefusal(const std::string& payload) {
  ByteReader reader(payload);
  const uint32_t code = reader.u32();
  const std::string message = text(reader);
  if (!reader.ok() || code == 0 || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return broken("refusal");
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

std::string encodeNumber(uint32_t number) {
  std::string bytes;
  ByteWriter(&bytes).u32(number);
  return bytes;
}

absl::StatusOr<uint32_t> decodeNumber(const std::string& payload) {
  ByteReader reader(payload);
  const uint32_t number = reader.u32();
  return whole(reader, number, "number");
}

}  // namespace farhop::launcher
