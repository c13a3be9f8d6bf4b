#include "sampler/row_transport.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sampler/sized_sink.h"

namespace farhop::sampler {
namespace {

constexpr char kWrongSizes[] = "malformed feature reply: not the rows that were asked for";

class AgentRowTransport : public RowTransport {
 public:
  explicit AgentRowTransport(rpc::Agent* agent) : agent_(agent) {}

  void fetch(RowChunk chunk, Done done) override {
    auto sink = std::make_shared<SizedSink>(std::move(chunk.arrayBytes), kWrongSizes);
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
