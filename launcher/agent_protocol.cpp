#include "launcher/agent_protocol.h"

#include <concepts>
#include <type_traits>

#include "base/byte_codec.h"
#include "runtime/launch_contract.h"

namespace farhop::launcher {
namespace {

constexpr size_t kMaxTextBytes = 4'096;  // names, paths, addresses
constexpr size_t kMaxListEntries = 100'000;

// A payload is written and read by one list of its fields (fieldsOf), so that the two cannot come to differ. Both have
// the same functions; those of Reading change what they are given.
class Writing {
 public:
  explicit Writing(std::string* bytes) : writer_(bytes) {}
  void number(const uint8_t& value) { writer_.u8(value); }
  void number(const uint16_t& value) { writer_.u16(value); }
  void number(const uint32_t& value) { writer_.u32(value); }
  void number(const uint64_t& value) { writer_.u64(value); }
  void flag(const bool& value) { writer_.u8(value ? 1 : 0); }
  void text(const std::string& value, size_t = kMaxTextBytes) { writer_.string(value); }
  void rest(const std::string& value) { writer_.raw(value); }
  template <typename Entry, typename Field>
  void list(const std::vector<Entry>& entries, const Field& field) {
    writer_.u32(static_cast<uint32_t>(entries.size()));
    for (const Entry& entry : entries) field(entry);
  }

 private:
  ByteWriter writer_;
};

class Reading {
 public:
  explicit Reading(const std::string& payload) : reader_(payload) {}
  const ByteReader& reader() const { return reader_; }
  void number(uint8_t& value) { value = reader_.u8(); }
  void number(uint16_t& value) { value = reader_.u16(); }
  void number(uint32_t& value) { value = reader_.u32(); }
  void number(uint64_t& value) { value = reader_.u64(); }
  void flag(bool& value) { value = reader_.u8() != 0; }
  void text(std::string& value, size_t maxBytes = kMaxTextBytes) { value = std::string(reader_.string(maxBytes)); }
  void rest(std::string& value) { value = std::string(reader_.raw(reader_.remaining())); }
  template <typename Entry, typename Field>
  void list(std::vector<Entry>& entries, const Field& field) {
    const uint32_t count = reader_.u32();
    // More than the rest of the payload can hold at all is refused before anything is kept.
    if (!reader_.ok() || count > kMaxListEntries || count > reader_.remaining() / sizeof(uint32_t)) {
      reader_.fail();
      return;
    }
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) field(entries.emplace_back());
  }

 private:
  ByteReader reader_;
};

// A message to be written, or one to be filled.
template <typename Given, typename Message>
concept Of = std::same_as<std::remove_const_t<Given>, Message>;

// What a hello of any protocol begins with.
template <typename Fields, Of<AgentHello> Hello>
void fieldsOfAnyHello(Fields& fields, Hello& hello) {
  fields.number(hello.protocol);
  fields.text(hello.version);
}

template <typename Fields, Of<AgentHello> Hello>
void fieldsOf(Fields& fields, Hello& hello) {
  fieldsOfAnyHello(fields, hello);
  fields.text(hello.host);
  fields.number(hello.pid);
}

template <typename Fields, Of<AgentOrders> Orders>
void fieldsOf(Fields& fields, Orders& orders) {
  for (auto* field : {&orders.jobId, &orders.token, &orders.start, &orders.bind, &orders.graph, &orders.workingDirectory,
                      &orders.masterAddr, &orders.interface}) {
    fields.text(*field);
  }
  for (auto* number : {&orders.machine, &orders.machines, &orders.procs, &orders.attempt, &orders.silenceMs, &orders.graceMs,
                       &orders.windowBytes}) {
    fields.number(*number);
  }
  fields.number(orders.memoryEstimateBytes);
  fields.number(orders.masterPort);
  fields.list(orders.environment, [&](auto& variable) {
    fields.text(variable.first);
    fields.text(variable.second, kMaxFrameBytes);
  });
  fields.list(orders.command, [&](auto& word) { fields.text(word, kMaxFrameBytes); });
}

template <typename Fields, Of<AgentPrepared> Prepared>
void fieldsOf(Fields& fields, Prepared& prepared) {
  fields.text(prepared.masterAddr);
  fields.number(prepared.masterPort);
}

template <typename Fields, Of<TrainerStarted> Started>
void fieldsOf(Fields& fields, Started& started) {
  fields.number(started.proc);
  fields.number(started.pid);
}

template <typename Fields, Of<TrainerOutput> Output>
void fieldsOf(Fields& fields, Output& output) {
  fields.number(output.proc);
  fields.number(output.stream);
  fields.rest(output.bytes);
}

template <typename Fields, Of<TrainerEnded> Ended>
void fieldsOf(Fields& fields, Ended& ended) {
  fields.number(ended.proc);
  fields.flag(ended.signaled);
  fields.number(ended.code);
}

template <typename Fields, Of<TrainerSaid> Said>
void fieldsOf(Fields& fields, Said& said) {
  fields.number(said.proc);
  fields.text(said.message);
}

struct Refusal {
  uint32_t code = 0;
  std::string message;
};
template <typename Fields, Of<Refusal> Refused>
void fieldsOf(Fields& fields, Refused& refusal) {
  fields.number(refusal.code);
  fields.text(refusal.message);
}

template <typename Fields, Of<uint32_t> Number>
void fieldsOf(Fields& fields, Number& number) {
  fields.number(number);
}

template <typename Message>
std::string written(const Message& message) {
  std::string bytes;
  Writing writing(&bytes);
  fieldsOf(writing, message);
  return bytes;
}

absl::Status broken(const char* frame) {
  return absl::InvalidArgumentError(absl::StrCat("a broken ", frame, " frame"));
}

template <typename Message>
absl::StatusOr<Message> readWhole(const std::string& payload, const char* frame) {
  Reading reading(payload);
  Message message{};
  fieldsOf(reading, message);
  if (!reading.reader().ok() || reading.reader().remaining() > 0) return broken(frame);
  return message;
}

bool isSane(const AgentOrders& orders) {
  return orders.procs >= 1 && orders.procs <= static_cast<uint32_t>(runtime::kMaxProcsPerMachine) &&
         orders.machine < orders.machines && orders.machines <= static_cast<uint32_t>(runtime::kMaxMachines) &&
         !orders.command.empty() && orders.windowBytes >= 1 && orders.windowBytes <= kMaxWindowBytes &&
         orders.masterPort + orders.procs <= 65'535 && orders.workingDirectory.rfind('/', 0) == 0;
}

}  // namespace

std::string encode(const AgentHello& hello) { return written(hello); }
std::string encode(const AgentOrders& orders) { return written(orders); }
std::string encode(const AgentPrepared& prepared) { return written(prepared); }
std::string encode(const TrainerStarted& started) { return written(started); }
std::string encode(const TrainerOutput& output) { return written(output); }
std::string encode(const TrainerEnded& ended) { return written(ended); }
std::string encode(const TrainerSaid& said) { return written(said); }
std::string encodeNumber(uint32_t number) { return written(number); }
std::string encodeRefusal(const absl::Status& status) {
  return written(Refusal{static_cast<uint32_t>(status.raw_code()), std::string(status.message()).substr(0, kMaxTextBytes)});
}

absl::StatusOr<AgentHello> decodeHello(const std::string& payload) {
  Reading reading(payload);
  AgentHello hello;
  fieldsOfAnyHello(reading, hello);
  if (!reading.reader().ok()) return broken("hello");
  if (hello.protocol != kAgentProtocol) return hello;
  return readWhole<AgentHello>(payload, "hello");
}

absl::StatusOr<AgentOrders> decodeOrders(const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(AgentOrders orders, readWhole<AgentOrders>(payload, "orders"));
  if (!isSane(orders)) return broken("orders");
  return orders;
}

absl::StatusOr<AgentPrepared> decodePrepared(const std::string& payload) {
  return readWhole<AgentPrepared>(payload, "prepared or start");
}

absl::StatusOr<TrainerStarted> decodeStarted(const std::string& payload) {
  return readWhole<TrainerStarted>(payload, "started");
}

absl::StatusOr<TrainerOutput> decodeOutput(const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(TrainerOutput output, readWhole<TrainerOutput>(payload, "output"));
  if (output.stream > 1 || output.bytes.size() > kMaxOutputFrameBytes) return broken("output");
  return output;
}

absl::StatusOr<TrainerEnded> decodeEnded(const std::string& payload) {
  FARHOP_ASSIGN_OR_RETURN(const TrainerEnded ended, readWhole<TrainerEnded>(payload, "ended"));
  if (ended.code > 255) return broken("ended");
  return ended;
}

absl::StatusOr<TrainerSaid> decodeSaid(const std::string& payload) {
  return readWhole<TrainerSaid>(payload, "said");
}

absl::Status decodeRefusal(const std::string& payload) {
  const auto refusal = readWhole<Refusal>(payload, "refusal");
  if (!refusal.ok()) return refusal.status();
  if (refusal->code == 0 || refusal->code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) return broken("refusal");
  return absl::Status(static_cast<absl::StatusCode>(refusal->code), refusal->message);
}

absl::StatusOr<uint32_t> decodeNumber(const std::string& payload) {
  return readWhole<uint32_t>(payload, "number");
}

}  // namespace farhop::launcher
