#include "benchmarks/exchange_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

namespace farhop::benchmarks {
namespace {

enum class FrameKind : uint32_t { kGather, kResult, kError };

struct FrameHeader {
  FrameKind kind = FrameKind::kGather;
  uint32_t bytes = 0;
};
struct Frame {
  FrameKind kind = FrameKind::kGather;
  std::string text;
};

// More than any result; a larger one is a broken child.
constexpr uint32_t kMaxFrameBytes = uint32_t{16} << 20;

absl::Status sendFrame(int fd, FrameKind kind, const std::string& text, Deadline deadline) {
  const FrameHeader header{kind, static_cast<uint32_t>(text.size())};
  FARHOP_RETURN_IF_ERROR(sendAll(fd, &header, sizeof(header), deadline));
  return sendAll(fd, text.data(), text.size(), deadline);
}

absl::StatusOr<Frame> receiveFrame(int fd, Deadline deadline) {
  FrameHeader header;
  FARHOP_RETURN_IF_ERROR(receiveAll(fd, &header, sizeof(header), deadline));
  if (header.bytes > kMaxFrameBytes) return absl::InternalError("a benchmark process sent a malformed frame");
  Frame frame{header.kind, std::string(header.bytes, '\0')};
  FARHOP_RETURN_IF_ERROR(receiveAll(fd, frame.text.data(), frame.text.size(), deadline));
  return frame;
}

std::string describeEnd(int waitStatus) {
  if (WIFSIGNALED(waitStatus)) return absl::StrCat("ended by signal ", WTERMSIG(waitStatus));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(waitStatus));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ProcessChannel::gather(const std::string& text) {
  const Deadline deadline = Deadline::after(roundTimeout_);
  FARHOP_RETURN_IF_ERROR(sendFrame(socket_.get(), FrameKind::kGather, text, deadline));
  std::vector<std::string> texts;
  uint32_t count = 0;
  FARHOP_RETURN_IF_ERROR(receiveAll(socket_.get(), &count, sizeof(count), deadline));
  while (texts.size() < count) {
    FARHOP_ASSIGN_OR_RETURN(Frame frame, receiveFrame(socket_.get(), deadline));
    texts.push_back(std::move(frame.text));
  }
  return texts;
}

// The parent's side.
class ProcessCrew {
 public:
  explicit ProcessCrew(std::chrono::milliseconds roundTimeout) : roundTimeout_(roundTimeout) {}
  ~ProcessCrew() {
    for (Member& member : members_) {
      if (!member.reaped) ::kill(member.pid, SIGKILL);  // not reaped, so the pid is still its own
    }
    for (Member& member : members_) {
      if (!member.reaped) ::waitpid(member.pid, nullptr, 0);
    }
  }
  ProcessCrew(const ProcessCrew&) = delete;
  ProcessCrew& operator=(const ProcessCrew&) = delete;

  absl::Status start(int count, const ProcessBody& body) {
    std::fflush(nullptr);  // what stands in the buffers would be written by every child
    const pid_t parent = ::getpid();
    for (int rank = 0; rank < count; ++rank) {
      std::array<int, 2> ends{};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
        return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
      }
      FileDescriptor own(ends[0]), childs(ends[1]);
      const pid_t pid = ::fork();
      if (pid < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
      if (pid == 0) {
        own.reset();
        for (Member& member : members_) member.socket.reset();
        runChild(parent, rank, std::move(childs), body);
      }
      members_.push_back({pid, std::move(own), false});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> run() {
    for (;;) {
      const Deadline deadline = Deadline::after(roundTimeout_);
      FARHOP_ASSIGN_OR_RETURN(std::vector<Frame> frames, receiveRound(deadline));
      std::vector<std::string> texts;
      size_t results = 0;
      for (Frame& frame : frames) {
        results += frame.kind == FrameKind::kResult ? 1 : 0;
        texts.push_back(std::move(frame.text));
      }
      if (results == frames.size()) return texts;
      if (results > 0) return absl::InternalError("benchmark processes disagree on how often they meet");
      const uint32_t count = static_cast<uint32_t>(texts.size());
      for (Member& member : members_) {
        FARHOP_RETURN_IF_ERROR(sendAll(member.socket.get(), &count, sizeof(count), deadline));
        for (const std::string& text : texts) {
          FARHOP_RETURN_IF_ERROR(sendFrame(member.socket.get(), FrameKind::kGather, text, deadline));
        }
      }
    }
  }

 private:
  struct Member {
    pid_t pid = -1;
    FileDescriptor socket;
    bool reaped = false;
  };

  [[noreturn]] void runChild(pid_t parent, int rank, FileDescriptor socket, const ProcessBody& body) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    ::signal(SIGPIPE, SIG_IGN);
    ProcessChannel channel(std::move(socket), roundTimeout_);
    absl::StatusOr<std::string> result;
    try {
      result = body(rank, channel);
    } catch (const std::exception& error) {  // out of memory
      result = absl::ResourceExhaustedError(error.what());
    }
    const FrameKind kind = result.ok() ? FrameKind::kResult : FrameKind::kError;
    const std::string text = result.ok() ? *result : std::string(result.status().message());
    const absl::Status sent = sendFrame(channel.socket_.get(), kind, text, Deadline::after(roundTimeout_));
    std::fflush(nullptr);
    ::_exit(sent.ok() && result.ok() ? 0 : 1);
  }

  // One frame of each, in the order in which they come, so that a failure is seen at once although others
  // wait.
  absl::StatusOr<std::vector<Frame>> receiveRound(Deadline deadline) {
    std::vector<Frame> frames(members_.size());
    std::vector<bool> here(members_.size(), false);
    for (size_t received = 0; received < members_.size();) {
      std::vector<pollfd> polled;
      for (size_t i = 0; i < members_.size(); ++i) {
        polled.push_back({here[i] ? -1 : members_[i].socket.get(), POLLIN, 0});
      }
      const int ready = ::poll(polled.data(), polled.size(), deadline.remainingMs());
      if (ready < 0 && errno == EINTR) continue;
      if (ready < 0) return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
      if (ready == 0) {
        return absl::DeadlineExceededError(absl::StrCat("the benchmark's processes did not get on within ",
                                                        roundTimeout_.count() / 1000, " s"));
      }
      for (size_t i = 0; i < members_.size(); ++i) {
        if (polled[i].revents == 0) continue;
        absl::StatusOr<Frame> frame = receiveFrame(members_[i].socket.get(), deadline);
        if (!frame.ok()) return lost(i, frame.status());
        if (frame->kind == FrameKind::kError) {
          return absl::InternalError(absl::StrCat("process ", i, ": ", frame->text));
        }
        frames[i] = *std::move(frame);
        here[i] = true;
        ++received;
      }
    }
    return frames;
  }

  absl::Status lost(size_t rank, const absl::Status& status) {
    int waitStatus = 0;
    // The end of its channel comes a moment before its end; a child that still lives has only broken off.
    for (int tries = 0; tries < 100; ++tries) {
      if (::waitpid(members_[rank].pid, &waitStatus, WNOHANG) == members_[rank].pid) {
        members_[rank].reaped = true;
        return absl::UnavailableError(absl::StrCat("process ", rank, " ", describeEnd(waitStatus)));
      }
      ::usleep(10'000);
    }
    return annotate(status, absl::StrCat("process ", rank));
  }

  std::chrono::milliseconds roundTimeout_;
  std::vector<Member> members_;
};

absl::StatusOr<std::vector<std::string>> runProcesses(int count, std::chrono::milliseconds roundTimeout,
                                                      const ProcessBody& body) {
  ProcessCrew crew(roundTimeout);
  FARHOP_RETURN_IF_ERROR(crew.start(count, body));
  return crew.run();
}

}  // namespace farhop::benchmarks
