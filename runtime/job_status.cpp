#include "runtime/job_status.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/socket.h"

namespace farhop::runtime {
namespace {

constexpr char kFirstLine[] = "farhop-status 1\n";
constexpr std::array<const char*, 6> kStateNames = {"starting", "waiting", "connecting", "ready", "training", "leaving"};
constexpr size_t kMaxWordBytes = 256;

std::string word(const std::string& text) {
  std::string plain = text.substr(0, kMaxWordBytes);
  std::replace_if(plain.begin(), plain.end(), [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return plain;
}

absl::Status malformed(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat("a process's status is malformed at '", word(std::string(name)), "'"));
}

template <typename Number>
bool readNumber(absl::string_view text, Number low, Number high, Number* number) {
  return absl::SimpleAtoi(text, number) && *number >= low && *number <= high;
}

bool readSeconds(absl::string_view text, double* seconds) {
  return absl::SimpleAtod(text, seconds) && std::isfinite(*seconds) && *seconds >= -1 && *seconds <= 1e12;
}

// Whether the field is unknown, or its value fits.
bool take(absl::string_view name, absl::string_view value, ProcessStatus* status) {
  if (name == "job") return (status->jobId = word(std::string(value))).size() > 0;
  if (name == "host") return (status->host = word(std::string(value))).size() > 0;
  if (name == "machine") return readNumber(value, 0, kMaxMachines - 1, &status->machine);
  if (name == "proc") return readNumber(value, 0, kMaxProcsPerMachine - 1, &status->proc);
  if (name == "machines") return readNumber(value, 1, kMaxMachines, &status->numMachines);
  if (name == "procs") return readNumber(value, 1, kMaxProcsPerMachine, &status->procsPerMachine);
  if (name == "pid") return readNumber<int64_t>(value, 1, INT32_MAX, &status->pid);
  if (name == "up") return readSeconds(value, &status->upSeconds);
  if (name == "gate") return readSeconds(value, &status->gateSeconds);
  if (name == "ready") return readSeconds(value, &status->readySeconds);
  if (name == "epoch") return readNumber<int64_t>(value, -1, INT64_MAX, &status->epoch);
  if (name == "batches") return readNumber<uint64_t>(value, 0, UINT64_MAX, &status->batches);
  if (name == "rate") return readSeconds(value, &status->batchesPerSecond);
  if (name == "resident") return readNumber<uint64_t>(value, 0, UINT64_MAX, &status->residentBytes);
  if (name == "peak") return readNumber<uint64_t>(value, 0, UINT64_MAX, &status->peakBytes);
  if (name == "state") {
    const auto state = stateOfName(value);
    if (state.ok()) status->state = *state;
    return state.ok();
  }
  return true;
}

std::string socketPrefix() { return absl::StrCat("farhop-status-", ::geteuid(), "-"); }

// One process that was asked.
struct Question {
  std::string socket;
  FileDescriptor fd;  // invalid once it is over
  std::string text;
  bool ended = false;  // the whole text has come
};

void readFrom(Question* question) {
  char buffer[kMaxStatusBytes];
  for (;;) {
    const ssize_t n = ::recv(question->fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    question->ended = n == 0;
    if (n > 0) question->text.append(buffer, static_cast<size_t>(n));
    if (n > 0 && question->text.size() <= kMaxStatusBytes) continue;
    question->fd.reset();
    return;
  }
}

}  // namespace

const char* stateName(ProcessState state) { return kStateNames[static_cast<size_t>(state)]; }

absl::StatusOr<ProcessState> stateOfName(absl::string_view name) {
  const auto found = std::find(kStateNames.begin(), kStateNames.end(), name);
  if (found == kStateNames.end()) return malformed(name);
  return static_cast<ProcessState>(found - kStateNames.begin());
}

std::string encodeProcessStatus(const ProcessStatus& status) {
  return absl::StrCat(
      kFirstLine, "job\t", word(status.jobId), "\nmachine\t", status.machine, "\nproc\t", status.proc, "\nmachines\t",
      status.numMachines, "\nprocs\t", status.procsPerMachine, "\npid\t", status.pid, "\nhost\t", word(status.host),
      "\nstate\t", stateName(status.state), absl::StrFormat("\nup\t%.3f\ngate\t%.3f\nready\t%.3f\nrate\t%.4f", status.upSeconds,
      status.gateSeconds, status.readySeconds, status.batchesPerSecond), "\nepoch\t", status.epoch, "\nbatches\t",
      status.batches, "\nresident\t", status.residentBytes, "\npeak\t", status.peakBytes, "\n");
}

absl::StatusOr<ProcessStatus> decodeProcessStatus(absl::string_view text) {
  const absl::string_view first(kFirstLine);
  if (text.size() > kMaxStatusBytes || text.substr(0, first.size()) != first || text.back() != '\n') {
    return malformed(text.substr(0, 20));
  }
  text.remove_prefix(first.size());
  text.remove_suffix(text.empty() ? 0 : 1);
  ProcessStatus status;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t tab = line.find('\t');
    if (tab == absl::string_view::npos || !take(line.substr(0, tab), line.substr(tab + 1), &status)) return malformed(line);
  }
  if (status.jobId.empty() || status.pid == 0 || status.machine >= status.numMachines ||
      status.proc >= status.procsPerMachine) {
    return malformed("machine");
  }
  return status;
}

std::string statusSocketName(const LaunchContract& contract) {
  // As the local channel's: of a long job id the end differs between jobs.
  std::string job = contract.jobId;
  if (job.size() > 60) job = job.substr(job.size() - 60);
  return absl::StrCat(socketPrefix(), job, "-m", contract.machine, "-p", contract.proc);
}

std::vector<std::string> listStatusSockets() {
  const std::string prefix = socketPrefix();
  std::vector<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    // The last column; an abstract socket's begins with '@'. Connections that are not accepted yet have it, too.
    const size_t at = line.rfind(" @");
    if (at != std::string::npos && line.compare(at + 2, prefix.size(), prefix) == 0) names.push_back(line.substr(at + 2));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<ProcessStatus> askProcesses(const std::vector<std::string>& sockets, Deadline deadline,
                                        std::vector<std::string>* missing) {
  std::vector<Question> questions;
  for (const std::string& name : sockets) {
    Question question{name, {}, {}, false};
    auto fd = connectAbstract(name, deadline, false);
    // A stranger may have taken a name that looks like ours.
    if (fd.ok() && sameUser(fd->get())) question.fd = *std::move(fd);
    questions.push_back(std::move(question));
  }
  const auto waiting = [](const Question& question) { return question.fd.valid(); };
  while (std::any_of(questions.begin(), questions.end(), waiting)) {
    std::vector<pollfd> entries;
    for (const Question& question : questions) entries.push_back({question.fd.get(), POLLIN, 0});  // -1 is ignored
    if (::poll(entries.data(), entries.size(), deadline.remainingMs()) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < questions.size(); ++i) {
      if (waiting(questions[i]) && entries[i].revents != 0) readFrom(&questions[i]);
    }
    if (deadline.expired()) break;
  }
  std::vector<ProcessStatus> result;
  for (const Question& question : questions) {
    auto status = question.ended ? decodeProcessStatus(question.text) : malformed(question.socket);
    if (status.ok()) {
      result.push_back(*std::move(status));
    } else if (missing != nullptr) {
      missing->push_back(question.socket);
    }
  }
  return result;
}

}  // namespace farhop::runtime
