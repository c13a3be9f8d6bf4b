// Connections of Gloo's TCP transport between all ranks of a set of processes, and one operation over them:
// exchange. The collectives are built from it (mesh_operations.h).
//
// Why not Gloo's own collectives: in the Gloo of May 2022 that Debian ships, a thread that waits inside one is
// woken neither by closing the context's connections from another thread (it sleeps until its time-out) nor,
// when a peer dies in the middle of a message, by that message's failure. Its buffers, however, can be told
// to abort a wait, so whoever holds the buffers can be interrupted at once. A mesh holds them.
//
// Gloo listens on one port per peer while a mesh connects, and on none afterwards. A stranger that connects
// to such a port in that time takes the peer's place: the peers then fail to identify each other and
// connect() fails with an error that says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace farhop::runtime {

// Ignores SIGPIPE for the whole process where nothing else handles it. Neither Gloo nor libuv asks the kernel
// not to send it when they write to a connection that the peer has closed.
void ignoreBrokenPipes();

// How long Gloo may wait for `deadline`: to the end where that is less than a month. (Deadline::remainingMs()
// ends at an hour, for poll.)
std::chrono::milliseconds meshWait(Deadline deadline);

// Where the ranks leave their addresses for each other. Not a Gloo store (rpc::GlooStore): Gloo's own rendezvous,
// which takes one, gives everybody every address and cannot be interrupted, and the machine's mesh has no store.
struct MeshStore {
  std::function<absl::Status(const std::string& key, const std::string& value, Deadline)> set;
  std::function<absl::StatusOr<std::string>(const std::string& key, Deadline)> get;  // waits until it is set
};

struct GlooMeshOptions {
  std::string name;             // "group 0", "machine 1": part of the store's keys and of messages
  bool machine = false;         // the mesh of a machine, for the names of stages (rpc/stages.h)
  int rank = 0;
  std::vector<PeerName> peers;  // who the ranks are; its length is the mesh's size
  std::string bindAddress;      // numeric
  std::string secret;           // the same on all ranks, and only there
};

// One message out and one in, at the same time; rank -1 for none.
struct MeshExchange {
  int to = -1;
  std::span<const std::byte> out;
  int from = -1;
  std::span<std::byte> in;  // exactly as many bytes as the other end sends
};

// connect() and exchange() belong to one thread at a time; interrupt() may be called from any.
class GlooMesh {
 public:
  explicit GlooMesh(GlooMeshOptions options);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.peers.size()); }
  const PeerName& peer(int rank) const { return options_.peers[static_cast<size_t>(rank)]; }
  const std::string& name() const { return options_.name; }

  // Connects every rank with every other. Calls ignoreBrokenPipes().
  absl::Status connect(const MeshStore& store, Deadline deadline);

  // `step` tells apart the messages of one operation, at most 65,536; the ranks count operations with
  // beginOperation(), in the same order. Any failure breaks the mesh: DeadlineExceeded, Cancelled (after
  // interrupt()), or Unavailable with the peer on whose connection it showed, who need not be the culprit.
  void beginOperation() { ++operation_; }
  absl::Status exchange(const MeshExchange& exchange, uint64_t step, Deadline deadline);

  // Ends what is under way, and everything that follows, with Cancelled, and closes the connections hard.
  void interrupt();

 private:
  absl::Status makePairs(Deadline deadline);
  absl::Status connectPair(int rank, const std::string& address, Deadline deadline);
  absl::Status identify(Deadline deadline);
  absl::Status broken(int rank, const char* doing, const std::string& what, Deadline deadline);
  // "gloo/group 0/1>2": where rank `from` listens for rank `to`.
  std::string addressKey(int from, int to) const { return absl::StrCat("gloo/", name(), "/", from, ">", to); }
  void closePairs();

  const GlooMeshOptions options_;
  uint64_t operation_ = 0;
  std::shared_ptr<gloo::transport::Device> device_;

  std::mutex mutex_;
  bool interrupted_ = false;                            // guarded by mutex_
  std::shared_ptr<gloo::transport::Context> context_;   // guarded by mutex_ until connected, constant then
  gloo::transport::UnboundBuffer* sending_ = nullptr;   // guarded by mutex_: the wait under way
  gloo::transport::UnboundBuffer* receiving_ = nullptr; // guarded by mutex_
};

}  // namespace farhop::runtime
