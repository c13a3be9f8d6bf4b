#include "launcher/line_channel.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace farhop::launcher {
namespace {

absl::Status waitFor(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.remainingMs());
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return errnoStatus("poll", errno);
    if (deadline.expired()) return absl::DeadlineExceededError("no answer in time");
  }
}

}  // namespace

absl::Status LineChannel::send(const std::string& line, Deadline deadline) {
  const std::string bytes = line + "\n";
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::write(out_.get(), bytes.data() + sent, bytes.size() - sent);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARHOP_RETURN_IF_ERROR(waitFor(out_.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return absl::UnavailableError("the connection has ended");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineChannel::receive(Deadline deadline) {
  for (size_t searched = 0;;) {
    if (const size_t end = received_.find('\n', searched); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    if (received_.size() > kMaxLineBytes) return absl::InvalidArgumentError("a line that never ends");
    char buffer[16'384];
    const ssize_t n = ::read(in_.get(), buffer, sizeof(buffer));
    if (n > 0) {
      received_.append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return absl::UnavailableError("the connection has ended");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARHOP_RETURN_IF_ERROR(waitFor(in_.get(), POLLIN, deadline));
    } else if (errno != EINTR) {
      return errnoStatus("read", errno);
    }
  }
}

}  // namespace farhop::launcher
