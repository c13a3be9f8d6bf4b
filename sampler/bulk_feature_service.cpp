#include "sampler/bulk_feature_service.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/executor.h"
#include "rpc/bulk_buffers.h"
#include "rpc/bulk_slots.h"
#include "sampler/bulk_wire.h"
#include "sampler/row_stream.h"

namespace farhop::sampler {
namespace {

constexpr size_t kIdleBuffers = 8;

class Service;

// One request, until it is answered.
class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(std::shared_ptr<Service> service, int peer, Deadline deadline, BulkPullRequest request, rpc::Responder responder)
      : service_(std::move(service)),
        peer_(peer),
        deadline_(deadline),
        workUntil_(Clock::now() + std::chrono::milliseconds(request.workMs)),
        request_(std::move(request)),
        responder_(std::move(responder)) {}
  ~Job();

  // Fills buffers and sends them off, as long as there are any free. On the service's executor.
  void pump();

 private:
  // A buffer under way.
  struct Load {
    std::shared_ptr<rpc::BulkRegion> buffer;
    size_t writes = 0;  // guarded by the job's mutex, as is
    bool failed = false;
  };

  absl::StatusOr<bool> sendNext();
  void send(std::shared_ptr<rpc::BulkRegion> buffer, const std::vector<RowPiece>& pieces);
  void written(const std::shared_ptr<Load>& load, const absl::Status& status);
  void stop(absl::Status status);
  void answerIfDone();

  const std::shared_ptr<Service> service_;
  const int peer_;
  const Deadline deadline_;
  const Clock::time_point workUntil_;
  const BulkPullRequest request_;
  std::optional<RowStream> stream_;  // of the executor's thread
  uint64_t begun_ = 0;               // of the executor's thread: writes

  std::mutex mutex_;
  rpc::Responder responder_;   // guarded by mutex_ until answered_
  BulkPullReply counts_;       // guarded by mutex_
  absl::Status status_;        // guarded by mutex_
  size_t loads_ = 0;           // guarded by mutex_; under way
  bool allBegun_ = false;      // guarded by mutex_
  bool answered_ = false;      // guarded by mutex_
};

class Service : public std::enable_shared_from_this<Service> {
 public:
  explicit Service(BulkServiceOptions options)
      : options_(std::move(options)),
        buffers_(options_.transport.get(), rpc::BulkAccess::kSource, options_.bufferBytes, kIdleBuffers),
        executor_("farhop-gather", 1) {}

  void handle(rpc::Request request, rpc::Responder responder) {
    auto decoded = decodeBulkPull(request.arrays, *options_.graph);
    if (!decoded.ok()) {
      responder.reply({encodeBulkPullReply({}, decoded.status())});
      return;
    }
    auto job = std::make_shared<Job>(shared_from_this(), request.peer, request.deadline, *std::move(decoded),
                                     std::move(responder));
    {
      std::lock_guard lock(mutex_);
      Peer& peer = peers_[request.peer];
      if (peer.running >= options_.pullsPerPeer) {
        peer.waiting.push_back(std::move(job));
        return;
      }
      ++peer.running;
    }
    post(std::move(job));
  }

  void post(std::shared_ptr<Job> job) {
    executor_.post([job = std::move(job)] { job->pump(); });
  }

  // A job of that peer's has ended.
  void ended(int number) {
    std::shared_ptr<Job> next;
    {
      std::lock_guard lock(mutex_);
      Peer& peer = peers_[number];
      if (peer.waiting.empty()) {
        --peer.running;
        return;
      }
      next = std::move(peer.waiting.front());
      peer.waiting.pop_front();
    }
    post(std::move(next));
  }

  const BulkServiceOptions& options() const { return options_; }
  rpc::BulkBuffers& buffers() { return buffers_; }

 private:
  struct Peer {
    size_t running = 0;
    std::deque<std::shared_ptr<Job>> waiting;
  };

  const BulkServiceOptions options_;
  rpc::BulkBuffers buffers_;
  std::mutex mutex_;
  std::map<int, Peer> peers_;  // guarded by mutex_
  Executor executor_;
};

Job::~Job() { service_->ended(peer_); }

void Job::stop(absl::Status status) {
  std::lock_guard lock(mutex_);
  allBegun_ = true;
  if (status_.ok()) status_ = std::move(status);
}

void Job::pump() {
  try {
    for (;;) {
      {
        std::lock_guard lock(mutex_);
        if (allBegun_ || loads_ >= service_->options().buffersPerPull) break;
      }
      if (Clock::now() >= workUntil_) {
        stop(absl::DeadlineExceededError("the rows could not be sent before the deadline"));
        break;
      }
      const absl::StatusOr<bool> more = sendNext();
      if (!more.ok() || !*more) {
        stop(more.status());
        break;
      }
    }
  } catch (const std::exception& error) {
    stop(absl::ResourceExhaustedError(absl::StrCat("gathering rows failed: ", error.what())));
  }
  answerIfDone();
}

// False when no rows are left.
absl::StatusOr<bool> Job::sendNext() {
  if (!stream_) {
    FARHOP_ASSIGN_OR_RETURN(RowStream stream, RowStream::make(request_, *service_->options().graph));
    stream_.emplace(std::move(stream));
  }
  if (stream_->atEnd()) return false;
  FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<rpc::BulkRegion> buffer, service_->buffers().take());
  std::vector<RowPiece> pieces;
  const size_t bytes = stream_->fill(buffer->memory(), &pieces);
  service_->options().metrics->featureBytesRead.add(static_cast<double>(bytes));
  send(std::move(buffer), pieces);
  return true;
}

void Job::send(std::shared_ptr<rpc::BulkRegion> buffer, const std::vector<RowPiece>& pieces) {
  auto load = std::make_shared<Load>();
  load->buffer = std::move(buffer);
  load->writes = pieces.size();
  {
    std::lock_guard lock(mutex_);
    ++loads_;
  }
  size_t offset = 0;
  for (const RowPiece& piece : pieces) {
    rpc::BulkTransfer transfer;
    transfer.peer = peer_;
    transfer.local = load->buffer;
    transfer.localOffset = offset;
    transfer.bytes = piece.bytes;
    transfer.remote = request_.targets[piece.feature].region();
    transfer.remoteOffset = piece.offset;
    transfer.data = rpc::BulkSlots::dataOf(request_.slot, begun_++);
    transfer.deadline = deadline_;
    offset += piece.bytes;
    service_->options().transport->write(std::move(transfer), [self = shared_from_this(), load](absl::Status status) {
      self->written(load, status);
    });
  }
}

void Job::written(const std::shared_ptr<Load>& load, const absl::Status& status) {
  bool goOn = false;
  {
    std::lock_guard lock(mutex_);
    if (status.ok()) {
      ++counts_.writes;
    } else {
      // Nothing more is begun, and the fabric may still read the buffer: it is not used again.
      ++counts_.uncertain;
      load->failed = true;
      allBegun_ = true;
      if (status_.ok()) status_ = status;
    }
    if (--load->writes > 0) return;
    --loads_;
    goOn = !allBegun_;
  }
  if (!load->failed) service_->buffers().give(std::move(load->buffer));
  load->buffer.reset();
  if (goOn) {
    service_->post(shared_from_this());
  } else {
    answerIfDone();
  }
}

void Job::answerIfDone() {
  std::optional<rpc::Responder> responder;
  rpc::OutArray reply;
  {
    std::lock_guard lock(mutex_);
    if (!allBegun_ || loads_ > 0 || answered_) return;
    answered_ = true;
    responder.emplace(std::move(responder_));
    reply = encodeBulkPullReply(counts_, status_);
  }
  responder->reply({std::move(reply)});
}

}  // namespace

void registerBulkFeatureService(rpc::Agent* agent, BulkServiceOptions options) {
  agent->handle(kBulkPullMethod,
                [service = std::make_shared<Service>(std::move(options))](rpc::Request request, rpc::Responder responder) {
                  service->handle(std::move(request), std::move(responder));
                });
}

}  // namespace farhop::sampler
