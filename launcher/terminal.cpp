#include "launcher/terminal.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace farhop::launcher {
namespace {

bool isWritable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Terminal::Terminal(int fd, std::chrono::milliseconds patience) : patience_(patience), shared_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    closed_ = true;
    return;
  }
  socket_ = S_ISSOCK(info.st_mode);
  if (S_ISFIFO(info.st_mode) || ::isatty(fd) == 1) {
    const std::string path = absl::StrCat("/proc/self/fd/", fd);
    own_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
  const char* noColor = std::getenv("NO_COLOR");
  colored_ = ::isatty(fd) == 1 && (noColor == nullptr || *noColor == '\0');
}

void Terminal::append(absl::string_view text) {
  if (closed_) return;
  if (pendingBytes() >= kHighWaterBytes && leavesOut()) {
    leftOutLines_ += static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    return;
  }
  appendOwn(text);
}

void Terminal::appendOwn(absl::string_view text) {
  if (closed_) return;
  if (written_ > 0 && written_ * 2 >= buffer_.size()) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
  buffer_.append(text.data(), text.size());
}

void Terminal::writeSome() {
  while (pending() && !closed_) {
    const char* data = buffer_.data() + written_;
    size_t bytes = buffer_.size() - written_;
    ssize_t n = 0;
    if (socket_) {
      n = ::send(shared_, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (own_.valid()) {
      n = ::write(own_.get(), data, bytes);
    } else {
      // A pipe that polls as writable takes PIPE_BUF bytes without blocking; files never block for long.
      if (!isWritable(shared_)) {
        if (!stuckSince_) stuckSince_ = Clock::now();
        return;
      }
      n = ::write(shared_, data, std::min<size_t>(bytes, PIPE_BUF));
    }
    if (n > 0) stuckSince_.reset();
    if (n >= 0) {
      written_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!stuckSince_) stuckSince_ = Clock::now();
      return;
    } else if (errno != EINTR) {
      closed_ = true;
    }
  }
  buffer_.clear();
  written_ = 0;
  stuckSince_.reset();
  if (const size_t lines = std::exchange(leftOutLines_, 0); lines > 0) {
    appendOwn(absl::StrCat("farhop: ", lines, " lines were left out here while nobody read; the logs have them\n"));
    writeSome();
  }
}

bool Terminal::same(int a, int b) {
  struct stat left {
  }, right{};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
         left.st_ino == right.st_ino;
}

Terminals::Terminals() : out(std::make_shared<Terminal>(STDOUT_FILENO)) {
  err = Terminal::same(STDOUT_FILENO, STDERR_FILENO) ? out : std::make_shared<Terminal>(STDERR_FILENO);
}

}  // namespace farhop::launcher
