#include "rpc/transport_in_process.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/executor.h"

namespace farhop::rpc {
namespace {

using DescriptorDone = std::function<void(absl::StatusOr<MessageDescriptor>)>;

// A transport's callbacks; work for one that has shut down runs at once, so that each still runs once.
void runOn(const std::shared_ptr<Executor>& executor, std::function<void()> work) {
  if (!executor->post(work)) work();
}

// Both ends of a pipe. Side 0 dialled, side 1 accepted.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(std::shared_ptr<Executor> dialler, std::shared_ptr<Executor> accepter) {
    sides_[0].executor = std::move(dialler);
    sides_[1].executor = std::move(accepter);
  }

  void write(int side, OutMessage message, Pipe::Done done) {
    std::unique_lock lock(mutex_);
    if (closedBy_ >= 0) {
      const absl::Status status = closedStatus(side);
      lock.unlock();
      return runOn(sides_[side].executor, [done = std::move(done), status] { done(status); });
    }
    sides_[1 - side].inbox.push_back({std::move(message), std::move(done)});
    lock.unlock();
    offerDescriptor(1 - side);
  }

  void readDescriptor(int side, DescriptorDone done) {
    {
      std::lock_guard lock(mutex_);
      sides_[side].descriptorDone = std::move(done);
    }
    offerDescriptor(side);
  }

  // Copies on the reader's executor, as a socket's loop would.
  void read(int side, std::vector<void*> into, Pipe::Done done) {
    runOn(sides_[side].executor, [self = shared_from_this(), side, into = std::move(into), done = std::move(done)] {
      self->readNow(side, into, done);
    });
  }

  void close(int side) {
    std::array<std::deque<Letter>, 2> dropped;
    std::array<DescriptorDone, 2> waiting;
    {
      std::lock_guard lock(mutex_);
      if (closedBy_ >= 0) return;
      closedBy_ = side;
      for (int i = 0; i < 2; ++i) {
        if (!sides_[i].copying) dropped[i] = std::exchange(sides_[i].inbox, {});
        waiting[i] = std::exchange(sides_[i].descriptorDone, nullptr);
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (waiting[i]) {
        runOn(sides_[i].executor,
              [done = std::move(waiting[i]), status = closedStatus(i)] { done(status); });
      }
      for (Letter& letter : dropped[i]) finish(1 - i, std::move(letter), closedStatus(1 - i));
    }
  }

  // After close(): returns once no callback of `side` can be handed out any more.
  void awaitIdle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return !sides_[0].copying && !sides_[1].copying; });
  }

 private:
  struct Letter {
    OutMessage message;
    Pipe::Done done;
  };
  struct Side {
    std::shared_ptr<Executor> executor;
    std::deque<Letter> inbox;       // written by the other side, not yet read
    DescriptorDone descriptorDone;  // waits for the next message
    bool copying = false;           // inbox.front() is being read; close() leaves it alone
  };

  absl::Status closedStatus(int side) const {
    return closedBy_ == side ? absl::CancelledError("closed by this process")
                             : absl::UnavailableError("connection closed");
  }

  // Reports a letter's end to its writer; its arrays' owners go first.
  void finish(int writer, Letter letter, absl::Status status) {
    letter.message = {};
    runOn(sides_[writer].executor, [done = std::move(letter.done), status = std::move(status)] { done(status); });
  }

  void offerDescriptor(int side) {
    std::unique_lock lock(mutex_);
    Side& self = sides_[side];
    if (!self.descriptorDone || (closedBy_ < 0 && self.inbox.empty())) return;
    absl::StatusOr<MessageDescriptor> result = MessageDescriptor{};
    if (closedBy_ >= 0) {
      result = closedStatus(side);
    } else {
      result->metadata = self.inbox.front().message.metadata;
      for (const OutArray& array : self.inbox.front().message.arrays) result->arraySizes.push_back(array.bytes);
    }
    DescriptorDone done = std::exchange(self.descriptorDone, nullptr);
    lock.unlock();
    runOn(self.executor, [done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  }

  void readNow(int side, const std::vector<void*>& into, const Pipe::Done& done) {
    Side& self = sides_[side];
    Letter* letter = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (closedBy_ < 0 && !self.inbox.empty() && self.inbox.front().message.arrays.size() == into.size()) {
        letter = &self.inbox.front();
        self.copying = true;
      }
    }
    if (letter == nullptr) {
      return done(closedBy_ >= 0 ? closedStatus(side) : absl::InternalError("read without a message"));
    }
    for (size_t i = 0; i < into.size(); ++i) {
      const OutArray& array = letter->message.arrays[i];
      if (array.bytes > 0) std::memcpy(into[i], array.data, array.bytes);
    }
    // `copying` holds until the writer has been told: its transport may be waiting in awaitIdle().
    absl::Status status = absl::OkStatus();
    for (std::unique_lock lock(mutex_);;) {
      Letter finished = std::move(self.inbox.front());
      self.inbox.pop_front();
      lock.unlock();
      finish(1 - side, std::move(finished), std::exchange(status, closedStatus(1 - side)));
      lock.lock();
      if (closedBy_ >= 0 && !self.inbox.empty()) continue;
      self.copying = false;
      idle_.notify_all();
      break;
    }
    done(absl::OkStatus());
  }

  std::condition_variable idle_;
  std::mutex mutex_;
  std::array<Side, 2> sides_;      // guarded by mutex_, except executor
  std::atomic<int> closedBy_{-1};  // written under mutex_; the side that closed, or -1
};

class InProcessPipe : public Pipe {
 public:
  InProcessPipe(std::shared_ptr<Link> link, int side) : link_(std::move(link)), side_(side) {}
  ~InProcessPipe() override { link_->close(side_); }
  void write(OutMessage message, Done done) override { link_->write(side_, std::move(message), std::move(done)); }
  void readDescriptor(DescriptorDone done) override { link_->readDescriptor(side_, std::move(done)); }
  void read(std::vector<void*> into, Done done) override { link_->read(side_, std::move(into), std::move(done)); }
  void close() override { link_->close(side_); }

 private:
  const std::shared_ptr<Link> link_;
  const int side_;
};

// The links that end at one transport; closed together with it.
class LinkSet {
 public:
  void add(const std::shared_ptr<Link>& link, int side) {
    {
      std::lock_guard lock(mutex_);
      if (!closed_) return links_.emplace_back(link, side), void();
    }
    link->close(side);
  }
  void closeAll() {
    std::vector<std::pair<std::weak_ptr<Link>, int>> links;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      links.swap(links_);
    }
    for (auto& [weak, side] : links) {
      if (auto link = weak.lock()) {
        link->close(side);
        link->awaitIdle();
      }
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::weak_ptr<Link>, int>> links_;  // guarded by mutex_
  bool closed_ = false;                                     // guarded by mutex_
};

// Pairs incoming pipes with accepts.
class Listener {
 public:
  Listener(std::shared_ptr<Executor> executor, std::shared_ptr<LinkSet> links)
      : executor_(std::move(executor)), links_(std::move(links)) {}
  const std::shared_ptr<Executor>& executor() const { return executor_; }
  LinkSet& links() { return *links_; }

  void accept(Transport::Accepted done) {
    {
      std::lock_guard lock(mutex_);
      accepts_.push_back(std::move(done));
    }
    match();
  }
  void offer(std::shared_ptr<Pipe> pipe) {
    {
      std::lock_guard lock(mutex_);
      pipes_.push_back(std::move(pipe));
    }
    match();
  }
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    match();
  }

 private:
  void match() {
    std::deque<Transport::Accepted> refused;
    std::deque<std::shared_ptr<Pipe>> dropped;
    std::vector<std::function<void()>> matched;
    {
      std::lock_guard lock(mutex_);
      while (!closed_ && !accepts_.empty() && !pipes_.empty()) {
        matched.push_back([done = std::move(accepts_.front()), pipe = std::move(pipes_.front())] { done(pipe); });
        accepts_.pop_front();
        pipes_.pop_front();
      }
      if (closed_) {
        refused.swap(accepts_);
        dropped.swap(pipes_);
      }
    }
    for (auto& work : matched) runOn(executor_, std::move(work));
    for (Transport::Accepted& done : refused) {
      runOn(executor_, [done = std::move(done)] { done(absl::CancelledError("the listener is closed")); });
    }
  }

  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<LinkSet> links_;
  std::mutex mutex_;
  std::deque<Transport::Accepted> accepts_;    // guarded by mutex_
  std::deque<std::shared_ptr<Pipe>> pipes_;    // guarded by mutex_
  bool closed_ = false;                        // guarded by mutex_
};

// The open listeners of this process, by address.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Listener>> listeners;  // guarded by mutex
  uint64_t next = 0;                                         // guarded by mutex
};
Registry& registry() {
  static Registry* instance = new Registry;  // never destroyed: agents may outlive static destruction
  return *instance;
}

class InProcessTransport : public Transport {
 public:
  InProcessTransport() : executor_(std::make_shared<Executor>("fh-inproc", 1)) {}
  ~InProcessTransport() override { shutdown(); }

  absl::StatusOr<std::string> listen(const std::string&) override {
    auto listener = std::make_shared<Listener>(executor_, links_);
    {
      std::lock_guard lock(registry().mutex);
      address_ = absl::StrCat("inproc://", registry().next++);
      registry().listeners[address_] = listener;
    }
    std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
    return address_;
  }

  void accept(Accepted done) override {
    std::shared_ptr<Listener> listener;
    {
      std::lock_guard lock(mutex_);
      listener = listener_;
    }
    if (listener == nullptr) return done(absl::CancelledError("the listener is closed"));
    listener->accept(std::move(done));
  }

  absl::Status closeListener(Deadline) override {
    std::shared_ptr<Listener> listener;
    {
      std::lock_guard lock(mutex_);
      listener = std::exchange(listener_, nullptr);
    }
    if (listener == nullptr) return absl::OkStatus();
    {
      std::lock_guard lock(registry().mutex);
      registry().listeners.erase(address_);
    }
    listener->close();
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Pipe>> connect(const std::string& address) override {
    if (!absl::StartsWith(address, "inproc://")) {
      return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no in-process address (inproc://NAME)"));
    }
    std::shared_ptr<Listener> listener;
    {
      std::lock_guard lock(registry().mutex);
      auto found = registry().listeners.find(address);
      if (found != registry().listeners.end()) listener = found->second.lock();
    }
    auto link = std::make_shared<Link>(executor_, listener != nullptr ? listener->executor() : executor_);
    auto pipe = std::make_shared<InProcessPipe>(link, 0);
    links_->add(link, 0);
    if (listener == nullptr) {
      link->close(1);  // as a refused connection: the first operation fails
    } else {
      listener->links().add(link, 1);
      listener->offer(std::make_shared<InProcessPipe>(link, 1));
    }
    return pipe;
  }

  void shutdown() override {
    static_cast<void>(closeListener(Deadline()));
    links_->closeAll();
    executor_->shutdown();
  }

 private:
  const std::shared_ptr<Executor> executor_;
  const std::shared_ptr<LinkSet> links_ = std::make_shared<LinkSet>();
  std::string address_;
  std::mutex mutex_;
  std::shared_ptr<Listener> listener_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Transport> makeInProcessTransport() { return std::make_unique<InProcessTransport>(); }

}  // namespace farhop::rpc
