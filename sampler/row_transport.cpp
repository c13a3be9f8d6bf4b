#include "sampler/row_transport.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace farhop::sampler {
namespace {

// Takes one array per feature, of exactly the size that the chunk's rows have.
class ChunkSink : public rpc::ReplySink {
 public:
  explicit ChunkSink(std::vector<size_t> expected) : expected_(std::move(expected)) {}

  absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) override {
    if (!std::equal(sizes.begin(), sizes.end(), expected_.begin(), expected_.end())) {
      return absl::InternalError("malformed feature reply: not the rows that were asked for");
    }
    std::vector<void*> addresses;
    for (size_t size : sizes) {
      arrays.push_back(rpc::Bytes::allocate(size));
      addresses.push_back(arrays.back().data());
    }
    return addresses;
  }

  std::vector<rpc::Bytes> arrays;

 private:
  std::vector<size_t> expected_;
};

class AgentRowTransport : public RowTransport {
 public:
  explicit AgentRowTransport(rpc::Agent* agent) : agent_(agent) {}

  void fetch(RowChunk chunk, Done done) override {
    auto sink = std::make_shared<ChunkSink>(std::move(chunk.arrayBytes));
    agent_->call(chunk.machine, kFeatureMethod, encodeFeatureRequest(std::move(chunk.request)), chunk.deadline, sink,
                 [sink, done = std::move(done)](absl::Status status) {
                   if (!status.ok()) {
                     done(std::move(status));
                     return;
                   }
                   FetchedRows rows;
                   for (const rpc::Bytes& array : sink->arrays) rows.arrays.push_back(array.data());
                   rows.owner = sink;
                   done(std::move(rows));
                 });
  }

 private:
  rpc::Agent* const agent_;
};

}  // namespace

size_t RowChunk::payloadBytes() const {
  return sizeof(FeatureRequestHeader) + request.features.size() * sizeof(uint32_t) + request.runs.size() * sizeof(FeatureRun) +
         request.rows.size() * sizeof(uint32_t) + request.parts.size() * sizeof(RowPart) +
         std::accumulate(arrayBytes.begin(), arrayBytes.end(), size_t{0});
}

std::unique_ptr<RowTransport> agentRowTransport(rpc::Agent* agent) { return std::make_unique<AgentRowTransport>(agent); }

}  // namespace farhop::sampler
