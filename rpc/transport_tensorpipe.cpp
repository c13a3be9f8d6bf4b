#include "rpc/transport_tensorpipe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <pthread.h>
#include <signal.h>
#include <sys/un.h>
#include <tensorpipe/tensorpipe.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "base/socket.h"
#include "rpc/transport_in_process.h"

namespace farhop::rpc {
namespace {

absl::Status toStatus(const tensorpipe::Error& error) {
  if (!error) return absl::OkStatus();
  if (error.isOfType<tensorpipe::EOFError>()) return absl::UnavailableError("connection closed");
  if (error.isOfType<tensorpipe::PipeClosedError>() || error.isOfType<tensorpipe::ContextClosedError>() ||
      error.isOfType<tensorpipe::ListenerClosedError>()) {
    return absl::CancelledError("closed by this process");
  }
  std::string text = error.what();
  text.resize(std::min(text.size(), text.find(" (this error originated")));
  // libuv's names, in the words that the other transports use.
  if (absl::StartsWith(text, "EOF:") || absl::StartsWith(text, "EPIPE:")) text = "connection closed";
  if (absl::StartsWith(text, "ECONNRESET:")) text = "connection reset";
  return absl::UnavailableError(text);
}

// TensorPipe's entry points throw on some system failures; none of that may leave this file.
template <typename Call>
auto withoutExceptions(const char* what, Call call) -> absl::StatusOr<decltype(call())> {
  try {
    return call();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(what, ": ", error.what()));
  }
}

// Blocks SIGPIPE in the threads that are started meanwhile: they inherit the mask. libuv writes to sockets
// without MSG_NOSIGNAL, so a peer's death could otherwise end this process by signal.
class SigPipeBlocked {
 public:
  SigPipeBlocked() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~SigPipeBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

class TensorPipePipe : public Pipe {
 public:
  explicit TensorPipePipe(std::shared_ptr<tensorpipe::Pipe> pipe) : pipe_(std::move(pipe)) {}
  ~TensorPipePipe() override { pipe_->close(); }

  void write(OutMessage message, Done done) override {
    tensorpipe::Message out;
    out.metadata = std::move(message.metadata);
    out.payloads.reserve(message.arrays.size());
    for (const OutArray& array : message.arrays) {
      out.payloads.push_back({const_cast<void*>(array.data), array.bytes, {}});
    }
    auto keep = std::make_shared<std::vector<OutArray>>(std::move(message.arrays));
    pipe_->write(std::move(out), [keep, done = std::move(done)](const tensorpipe::Error& error) mutable {
      keep.reset();
      done(toStatus(error));
    });
  }

  void readDescriptor(std::function<void(absl::StatusOr<MessageDescriptor>)> done) override {
    pipe_->readDescriptor([done = std::move(done)](const tensorpipe::Error& error, tensorpipe::Descriptor descriptor) {
      if (error) return done(toStatus(error));
      // We send no tensors and register no channel: whoever does is none of ours.
      if (!descriptor.tensors.empty()) return done(absl::InvalidArgumentError("malformed message: tensors"));
      MessageDescriptor result;
      result.metadata = std::move(descriptor.metadata);
      result.arraySizes.reserve(descriptor.payloads.size());
      for (const auto& payload : descriptor.payloads) result.arraySizes.push_back(payload.length);
      done(std::move(result));
    });
  }

  void read(std::vector<void*> into, Done done) override {
    tensorpipe::Allocation allocation;
    allocation.payloads.reserve(into.size());
    for (void* address : into) allocation.payloads.push_back({address});
    pipe_->read(std::move(allocation),
                [done = std::move(done)](const tensorpipe::Error& error) { done(toStatus(error)); });
  }

  void close() override { pipe_->close(); }

 private:
  const std::shared_ptr<tensorpipe::Pipe> pipe_;
};

// "127.0.0.1:80" or "[::1]:80" with a numeric host. TensorPipe ends the process on anything else.
bool isNumericHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) return false;
  std::string host(text.substr(0, colon));
  in_addr v4;
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return true;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  host = host.substr(1, host.size() - 2);
  in6_addr v6;
  return ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &v6) == 1;
}

// Whether this process still has a listening socket with the address (as TensorPipe prints it).
bool hasListeningSocket(TransportKind kind, const std::string& address) {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return false;
  bool found = false;
  while (dirent* entry = ::readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    int listening = 0;
    socklen_t size = sizeof(listening);
    if (entry->d_name[0] == '.' || ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0) continue;
    if (listening == 0) continue;
    sockaddr_storage name{};
    socklen_t length = sizeof(name);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) continue;
    if (kind == TransportKind::kShm && name.ss_family == AF_UNIX) {
      const auto* local = reinterpret_cast<sockaddr_un*>(&name);
      const size_t bytes = length - offsetof(sockaddr_un, sun_path);
      found = found || (bytes > 1 && std::string(local->sun_path + 1, bytes - 1) == address);
    } else if (kind == TransportKind::kUv && (name.ss_family == AF_INET || name.ss_family == AF_INET6)) {
      const absl::StatusOr<uint16_t> port = boundPort(fd);
      found = found || (port.ok() && absl::EndsWith(address, absl::StrCat(":", *port)));
    }
  }
  ::closedir(directory);
  return found;
}

class TensorPipeTransport : public Transport {
 public:
  explicit TensorPipeTransport(TransportKind kind)
      : kind_(kind), scheme_(kind == TransportKind::kShm ? "shm" : "uv") {}
  ~TensorPipeTransport() override { shutdown(); }

  absl::Status start() {
    return withoutExceptions("starting TensorPipe", [&] {
             SigPipeBlocked blocked;
             context_ = std::make_unique<tensorpipe::Context>();
             std::shared_ptr<tensorpipe::transport::Context> transport;
             if (kind_ == TransportKind::kUv) transport = tensorpipe::transport::uv::create();
#if TENSORPIPE_HAS_SHM_TRANSPORT
             if (kind_ == TransportKind::kShm) transport = tensorpipe::transport::shm::create();
#endif
             if (transport == nullptr || !transport->isViable()) return false;
             context_->registerTransport(0, scheme_, std::move(transport));
             return true;
           })
        .status();
  }

  absl::StatusOr<std::string> listen(const std::string& bindAddress) override {
    FARHOP_ASSIGN_OR_RETURN(const std::string url, listenUrl(bindAddress));
    auto listener = withoutExceptions("listening", [&] { return context_->listen({url}); });
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    listenAddress_ = listener_->address(scheme_);
    if (listenAddress_.empty()) return absl::UnavailableError(absl::StrCat("cannot listen on ", url));
    return absl::StrCat(scheme_, "://", listenAddress_);
  }

  void accept(Accepted done) override {
    std::shared_ptr<tensorpipe::Listener> listener;
    {
      std::lock_guard lock(mutex_);
      listener = listener_;
    }
    if (listener == nullptr) return done(absl::CancelledError("the listener is closed"));
    listener->accept([done = std::move(done)](const tensorpipe::Error& error, std::shared_ptr<tensorpipe::Pipe> pipe) {
      if (error) return done(toStatus(error));
      done(std::make_shared<TensorPipePipe>(std::move(pipe)));
    });
  }

  absl::Status closeListener(Deadline deadline) override {
    std::shared_ptr<tensorpipe::Listener> listener;
    {
      std::lock_guard lock(mutex_);
      listener = std::exchange(listener_, nullptr);
    }
    if (listener == nullptr) return absl::OkStatus();
    listener->close();
    listener.reset();
    // TensorPipe closes in the background; garbage that still got through would end the process.
    while (hasListeningSocket(kind_, listenAddress_)) {
      if (deadline.expired()) {
        return absl::DeadlineExceededError(absl::StrCat("the listener on ", listenAddress_, " did not close in time"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Pipe>> connect(const std::string& address) override {
    const std::string prefix = absl::StrCat(scheme_, "://");
    const bool valid = absl::StartsWith(address, prefix) && address.size() <= 100 &&
                       (kind_ == TransportKind::kUv ? isNumericHostPort(absl::string_view(address).substr(prefix.size()))
                                                    : address.size() > prefix.size());
    if (!valid) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", address, "' is no address of the ", scheme_, " transport (", prefix,
                       kind_ == TransportKind::kUv ? "IP:PORT)" : "NAME)"));
    }
    auto pipe = withoutExceptions("connecting", [&] { return context_->connect(address); });
    if (!pipe.ok()) return annotate(pipe.status(), address);
    return std::make_shared<TensorPipePipe>(*std::move(pipe));
  }

  void shutdown() override {
    if (context_ == nullptr || stopped_.exchange(true)) return;
    std::shared_ptr<tensorpipe::Listener> listener;
    {
      std::lock_guard lock(mutex_);
      listener = std::exchange(listener_, nullptr);
    }
    if (listener != nullptr) listener->close();
    context_->close();
    context_->join();
  }

 private:
  absl::StatusOr<std::string> listenUrl(const std::string& bindAddress) {
    if (kind_ == TransportKind::kShm) return std::string("shm://");  // the kernel picks an abstract name
    const bool v6 = bindAddress.find(':') != std::string::npos;
    const std::string text = v6 ? absl::StrCat("[", bindAddress, "]:0") : absl::StrCat(bindAddress, ":0");
    if (!isNumericHostPort(text)) {
      return absl::InvalidArgumentError(absl::StrCat("bind address '", bindAddress, "' is not a numeric IP address"));
    }
    // A failing bind would end the process inside TensorPipe, so try one here.
    absl::StatusOr<FileDescriptor> probe = listenTcp({bindAddress, 0}, 1);
    if (!probe.ok()) {
      return annotate(probe.status(), absl::StrCat("bind address ", bindAddress, " is not usable on this machine"));
    }
    return absl::StrCat("uv://", text);
  }

  const TransportKind kind_;
  const std::string scheme_;
  std::unique_ptr<tensorpipe::Context> context_;
  std::string listenAddress_;
  std::mutex mutex_;
  std::shared_ptr<tensorpipe::Listener> listener_;  // guarded by mutex_
  std::atomic<bool> stopped_{false};
};

}  // namespace

std::unique_ptr<Transport> makeTensorPipeTransport(TransportKind kind) {
  auto transport = std::make_unique<TensorPipeTransport>(kind);
  return transport->start().ok() ? std::move(transport) : nullptr;
}

absl::StatusOr<std::unique_ptr<Transport>> makeTransport(TransportKind kind) {
  std::unique_ptr<Transport> transport =
      kind == TransportKind::kInProcess ? makeInProcessTransport() : makeTensorPipeTransport(kind);
  if (transport == nullptr) {
    return absl::UnavailableError(absl::StrCat("TensorPipe's ", kind == TransportKind::kShm ? "shm" : "uv",
                                               " transport does not work on this machine"));
  }
  return transport;
}

}  // namespace farhop::rpc
