// Inside of the rendezvous store's server: one thread, epoll, a small state machine per connection
// (rendezvous_server.cpp), and what the requests do (rendezvous_store.cpp).
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "rpc/byte_codec.h"
#include "rpc/refusal_log.h"
#include "rpc/rendezvous.h"
#include "rpc/rendezvous_protocol.h"

namespace farhop::rpc {

struct StoreConnection {
  uint64_t id = 0;
  FileDescriptor fd;
  PeerName peer;           // address from the socket; the rest from the hello
  bool welcome = false;    // said a good hello
  bool said = false;       // farewell
  bool closeWhenSent = false;
  bool writable = true;    // epoll waits for input (true) or output (false)
  std::string in, out;
  std::string waitingFor;  // the key of a parked get
  bool parked = false;
  Clock::time_point timer = Clock::time_point::max();  // hello timeout, or the parked get's deadline
};

class StoreServerImpl : public StoreServer {
 public:
  StoreServerImpl(FileDescriptor listener, FileDescriptor epoll, FileDescriptor wake, uint16_t port,
                  StoreServerOptions options)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        port_(port),
        maxStrangers_(std::max<size_t>(64, options_.maxConnections / 8)),
        refusals_(absl::StrCat("the rendezvous store of group ", options_.proc)) {}

  ~StoreServerImpl() override;

  void run();
  uint16_t port() const override { return port_; }

 private:
  using TimePoint = Clock::time_point;

  // Connections (rendezvous_server.cpp).
  void loop();
  void acceptAll();
  bool admit();
  void onReadable(StoreConnection& connection);
  void process(uint64_t id);
  bool takeFrame(StoreConnection& connection);
  void flush(StoreConnection& connection);
  void watch(StoreConnection& connection, bool forInput);
  void expire(TimePoint now);
  void setTimer(StoreConnection& connection, TimePoint at);
  void close(uint64_t id);

  // The store (rendezvous_store.cpp).
  void onFrame(StoreConnection& connection, StoreOperation operation, std::string_view body);
  void onHello(StoreConnection& connection, const StorePrefix& prefix, std::string_view body);
  void onSet(StoreConnection& connection, ByteReader in);
  void onGet(StoreConnection& connection, ByteReader in);
  void onAdd(StoreConnection& connection, ByteReader in);
  void reply(StoreConnection& connection, const absl::Status& status, std::string_view value = {});
  absl::Status put(const std::string& key, std::string value);
  void failStore(const PeerName& vanished);
  size_t maxBodyBytes(const StoreConnection& connection) const {
    return connection.welcome ? options_.maxKeyBytes + options_.maxValueBytes + 64 : kMaxStoreHelloBytes;
  }

  const StoreServerOptions options_;
  FileDescriptor listener_, epoll_, wake_;
  const uint16_t port_;
  const size_t maxStrangers_;
  RefusalLog refusals_;
  std::thread thread_;

  // Only the loop's thread touches what follows.
  uint64_t nextId_ = 2;  // 0: listener, 1: wake
  std::unordered_map<uint64_t, StoreConnection> connections_;
  std::list<uint64_t> strangers_;  // no hello yet, oldest first
  std::set<std::pair<TimePoint, uint64_t>> timers_;
  bool accepting_ = true;
  TimePoint acceptAgain_ = TimePoint::max();
  std::unordered_map<std::string, std::string> values_;
  size_t storedBytes_ = 0;
  std::multimap<std::string, uint64_t> waiting_;  // key -> connection with a parked get
  absl::Status failure_;
};

}  // namespace farhop::rpc
