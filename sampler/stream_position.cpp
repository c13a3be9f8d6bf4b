#include "sampler/stream_position.h"

#include <algorithm>

#include "base/random.h"
#include "rpc/byte_codec.h"

namespace farhop::sampler {
namespace {

constexpr char kMagic[] = "FHPLOAD2";
constexpr size_t kMagicBytes = 8, kPositionBytes = 64;

uint64_t checkOf(const StreamPosition& position) {
  uint64_t key = hashName(kMagic);
  for (uint64_t part : {position.fingerprint, position.seed, static_cast<uint64_t>(position.numMachines),
                        static_cast<uint64_t>(position.procsPerMachine), position.epoch, position.step}) {
    key = combineKey(key, part);
  }
  return key;
}

std::string processesText(const StreamPosition& position) {
  return absl::StrCat(position.numMachines, " x ", position.procsPerMachine);
}

}  // namespace

std::string encodePosition(const StreamPosition& position) {
  std::string bytes;
  rpc::ByteWriter writer(&bytes);
  writer.raw(std::string_view(kMagic, kMagicBytes));
  writer.u64(position.fingerprint);
  writer.u64(position.seed);
  writer.u32(static_cast<uint32_t>(position.numMachines));
  writer.u32(static_cast<uint32_t>(position.procsPerMachine));
  writer.u64(position.epoch);
  writer.u64(position.step);
  writer.u64(0);  // reserved
  writer.u64(checkOf(position));
  return bytes;
}

absl::StatusOr<StreamPosition> decodePosition(const std::string& bytes) {
  const absl::Status refused =
      absl::InvalidArgumentError(absl::StrCat("these ", bytes.size(), " bytes are no loader's state"));
  if (bytes.size() != kPositionBytes) return refused;
  rpc::ByteReader reader(bytes);
  if (reader.raw(kMagicBytes) != std::string_view(kMagic, kMagicBytes)) return refused;
  StreamPosition position;
  position.fingerprint = reader.u64();
  position.seed = reader.u64();
  position.numMachines = static_cast<int>(reader.u32());
  position.procsPerMachine = static_cast<int>(reader.u32());
  position.epoch = reader.u64();
  position.step = reader.u64();
  const uint64_t reserved = reader.u64();
  if (reserved != 0 || reader.u64() != checkOf(position) || position.epoch > INT64_MAX || position.step > INT64_MAX) {
    return refused;
  }
  return position;
}

absl::StatusOr<StreamPosition> continuePosition(const StreamPosition& saved, const StreamPosition& own,
                                                const SeedDealer& dealer, Resized resized) {
  if (saved.seed != own.seed || saved.fingerprint != own.fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state is of another store, other seeds or other loader options",
        saved.seed == own.seed ? "" : absl::StrCat(" (their seed is ", saved.seed, ", this loader's is ", own.seed, ")"),
        "; continue with the same, or start anew"));
  }
  StreamPosition result = own;
  result.epoch = saved.epoch;
  result.step = saved.step;
  const bool sameDeal = dealer.options().deal == Deal::kGlobal
                            ? saved.numProcesses() == own.numProcesses()
                            : saved.numMachines == own.numMachines && saved.procsPerMachine == own.procsPerMachine;
  if (!sameDeal && saved.step > 0) {
    if (resized == Resized::kRefuse) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the state is of ", processesText(saved), " processes (machines x processes of each), in the middle of epoch ",
          saved.epoch, ", and this job has ", processesText(own),
          ": the rest of an epoch can only be dealt to as many (of seeds dealt by owner: to machines of as many); start "
          "such a job, or ask for the next whole epoch"));
    }
    ++result.epoch;
    result.step = 0;
  }
  if (result.step > dealer.numSteps()) {
    if (dealer.options().tail != Tail::kUneven) {
      return absl::InvalidArgumentError(absl::StrCat("the state's step ", saved.step, " is beyond the epoch's ",
                                                     dealer.numSteps(), " batches"));
    }
    result.step = dealer.numSteps();  // others have more
  }
  return result;
}

}  // namespace farhop::sampler
