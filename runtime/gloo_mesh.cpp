#include "runtime/gloo_mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/random.h"
#include "rpc/stages.h"

namespace farhop::runtime {
namespace {

// What each rank tells each other over a new connection. Little-endian.
struct Identity {
  uint64_t magic;
  uint64_t job;
  uint64_t rank;
};
constexpr uint64_t kMagic = 0x315F4853454D4846ULL;  // "FHMESH_1"

constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 30);

}  // namespace

std::chrono::milliseconds meshWait(Deadline deadline) {
  const Clock::time_point now = Clock::now();
  // In this order: the difference from a deadline at the clock's end does not fit.
  if (deadline.at() <= now) return std::chrono::milliseconds(0);
  if (deadline.at() > now + kLongestWait) return kLongestWait;
  return std::chrono::ceil<std::chrono::milliseconds>(deadline.at() - now);
}

void ignoreBrokenPipes() {
  struct sigaction action {};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

GlooMesh::GlooMesh(GlooMeshOptions options) : options_(std::move(options)) {}

GlooMesh::~GlooMesh() = default;

absl::Status GlooMesh::connect(const MeshStore& store, Deadline deadline) {
  if (size() == 1) return absl::OkStatus();
  ignoreBrokenPipes();
  FARHOP_RETURN_IF_ERROR(makePairs(deadline));
  rpc::reachStage(options_.machine ? "machine/listening" : "mesh/listening");
  // Every pair has a port of its own, and each address is for one rank only: together they are as many as the
  // pairs of ranks, too many to send to everyone.
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const std::vector<char> bytes = context_->getPair(other)->address().bytes();
    FARHOP_RETURN_IF_ERROR(store.set(addressKey(rank(), other), std::string(bytes.begin(), bytes.end()), deadline));
  }
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    FARHOP_ASSIGN_OR_RETURN(const std::string address, store.get(addressKey(other, rank()), deadline));
    rpc::reachStage(options_.machine ? "machine/connecting" : "mesh/connecting");
    FARHOP_RETURN_IF_ERROR(connectPair(other, address, deadline));
  }
  rpc::reachStage(options_.machine ? "machine/identify" : "mesh/identify");
  return identify(deadline);
}

absl::Status GlooMesh::makePairs(Deadline deadline) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options_.bindAddress;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    std::shared_ptr<gloo::transport::Context> context = device_->createContext(rank(), size());
    // Gloo waits five times this long for a connection.
    context->setTimeout(meshWait(deadline) / 5 + std::chrono::milliseconds(1));
    for (int other = 0; other < size(); ++other) {
      if (other != rank()) (void)context->createPair(other);
    }
    std::lock_guard lock(mutex_);
    if (interrupted_) return absl::CancelledError(absl::StrCat(name(), ": connecting was interrupted"));
    context_ = std::move(context);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat(name(), ": Gloo cannot use the address ", options_.bindAddress, ": ", error.what()));
  }
}

absl::Status GlooMesh::connectPair(int other, const std::string& address, Deadline deadline) {
  try {
    context_->getPair(other)->connect(std::vector<char>(address.begin(), address.end()));
  } catch (const std::exception& error) {
    return broken(other, "connecting to",
                  absl::StrCat(error.what(), " (it has died, or a stranger took its place at the open port, such as a "
                                             "port scan; start the job again)"),
                  deadline);
  }
  std::lock_guard lock(mutex_);
  if (interrupted_) return absl::CancelledError(absl::StrCat(name(), ": connecting was interrupted"));
  return absl::OkStatus();
}

// Whoever sits at the other end of a pair: is it the rank that we meant, in our job?
absl::Status GlooMesh::identify(Deadline deadline) {
  const uint64_t job = hashName(absl::StrCat(options_.secret, "\n", name()));
  const Identity own{kMagic, job, static_cast<uint64_t>(rank())};
  beginOperation();
  for (int distance = 1; distance < size(); ++distance) {
    MeshExchange exchange;
    Identity other{};
    exchange.to = (rank() + distance) % size();
    exchange.out = std::as_bytes(std::span(&own, 1));
    exchange.from = (rank() - distance + size()) % size();
    exchange.in = std::as_writable_bytes(std::span(&other, 1));
    FARHOP_RETURN_IF_ERROR(this->exchange(exchange, static_cast<uint64_t>(distance), deadline));
    if (other.magic != kMagic || other.job != job || other.rank != static_cast<uint64_t>(exchange.from)) {
      interrupt();
      return absl::PermissionDeniedError(absl::StrCat(name(), ": somebody else connected in place of ",
                                                      describePeer(peer(exchange.from)), "; start the job again"));
    }
  }
  return absl::OkStatus();
}

absl::Status GlooMesh::exchange(const MeshExchange& exchange, uint64_t step, Deadline deadline) {
  // What Gloo may wait for: when that is over it is this process's time that has run out, and no peer is to blame.
  deadline = Deadline::earliest(deadline, Deadline(Clock::now() + kLongestWait));
  const uint64_t slot = (operation_ << 16) | step;
  std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
  // Gloo's buffers do not tell const memory apart; a sending one is only read.
  if (exchange.to >= 0) {
    out = context_->createUnboundBuffer(const_cast<std::byte*>(exchange.out.data()), exchange.out.size());
  }
  if (exchange.from >= 0) in = context_->createUnboundBuffer(exchange.in.data(), exchange.in.size());
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) return absl::CancelledError(absl::StrCat(name(), ": interrupted"));
    sending_ = out.get();
    receiving_ = in.get();
  }
  absl::Status status;
  const char* doing = "receiving from";
  int rank = exchange.from;
  try {
    bool done = true;
    if (in) in->recv(exchange.from, slot);
    if (out) {
      doing = "sending to";
      rank = exchange.to;
      out->send(exchange.to, slot);
    }
    const auto left = [&] { return meshWait(deadline); };
    if (in) {
      doing = "receiving from";
      rank = exchange.from;
      done = in->waitRecv(left());
    }
    if (out && done) {
      doing = "sending to";
      rank = exchange.to;
      done = out->waitSend(left());
    }
    if (!done) status = absl::CancelledError(absl::StrCat(name(), ": interrupted"));
  } catch (const std::exception& error) {
    status = broken(rank, doing, error.what(), deadline);
  }
  {
    std::lock_guard lock(mutex_);
    sending_ = nullptr;
    receiving_ = nullptr;
  }
  return status;
}

absl::Status GlooMesh::broken(int rank, const char* doing, const std::string& what, Deadline deadline) {
  const std::string where = absl::StrCat(name(), ": ", doing, " ", describePeer(peer(rank)));
  bool wasInterrupted;
  {
    std::lock_guard lock(mutex_);
    wasInterrupted = interrupted_;
  }
  if (wasInterrupted) return absl::CancelledError(absl::StrCat(where, " was interrupted"));
  if (deadline.expired()) return absl::DeadlineExceededError(absl::StrCat(where, ": the deadline has passed"));
  return withPeer(absl::UnavailableError(absl::StrCat(where, ": ", what)), peer(rank));
}

void GlooMesh::interrupt() {
  {
    // The lock keeps the buffers alive; aborting takes no other lock than the buffer's.
    std::lock_guard lock(mutex_);
    if (interrupted_) return;
    interrupted_ = true;
    if (sending_ != nullptr) sending_->abortWaitSend();
    if (receiving_ != nullptr) receiving_->abortWaitRecv();
  }
  closePairs();
}

void GlooMesh::closePairs() {
  std::shared_ptr<gloo::transport::Context> context;
  {
    std::lock_guard lock(mutex_);
    context = context_;
  }
  if (context == nullptr) return;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    try {
      context->getPair(other)->close();
    } catch (const std::exception&) {
      // Closed already, from the other side.
    }
  }
}

}  // namespace farhop::runtime
