#include "sampler/bulk_puller.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "sampler/bulk_fetches.h"

namespace farhop::sampler {
namespace {

class BulkRowTransport : public RowTransport {
 public:
  BulkRowTransport(rpc::Agent* agent, BulkPullerOptions options)
      : puller_(std::make_shared<BulkFetches>(agent, std::move(options))) {}
  ~BulkRowTransport() override { puller_->stop(); }

  void fetch(RowChunk chunk, Done done) override { puller_->fetch(std::move(chunk), std::move(done)); }

  RowCut cut(std::span<const size_t> rowBytes, const std::vector<bool>& mayLand, size_t) const override {
    const BulkPullerOptions& options = puller_->options();
    size_t staged = 0, landed = 0;
    for (size_t i = 0; i < rowBytes.size(); ++i) {
      (mayLand[i] && rowBytes[i] >= options.landingRunBytes ? landed : staged) += rowBytes[i];
    }
    size_t rows = SIZE_MAX;
    if (staged > 0) {
      // Arrays are aligned in their buffer.
      const size_t slack = 64 * rowBytes.size();
      rows = std::min(rows, (options.stagingBytes - std::min(slack, options.stagingBytes)) / staged);
    }
    if (landed > 0) rows = std::min(rows, options.landingChunkBytes / landed);
    const bool reads = puller_->reads(rowBytes);
    if (reads) rows = std::min(rows, options.maxReadsPerChunk / rowBytes.size());
    if (staged + landed == 0) return {.chunkBytes = options.stagingBytes, .underWay = options.chunksPerPeer};
    return {.chunkBytes = std::max<size_t>(1, rows) * (staged + landed), .underWay = options.chunksPerPeer, .inAddressOrder = reads};
  }

 private:
  const std::shared_ptr<BulkFetches> puller_;
};

}  // namespace

absl::StatusOr<BulkReads> bulkReadsFromEnvironment() {
  const char* const value = std::getenv("FARHOP_FABRIC_READS");
  const absl::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "auto") return BulkReads::kAutomatic;
  if (text == "never") return BulkReads::kNever;
  if (text == "always") return BulkReads::kAlways;
  return absl::InvalidArgumentError(absl::StrCat("FARHOP_FABRIC_READS=", text, " is none of auto, never, always"));
}

std::unique_ptr<RowTransport> bulkRowTransport(rpc::Agent* agent, BulkPullerOptions options) {
  return std::make_unique<BulkRowTransport>(agent, std::move(options));
}

}  // namespace farhop::sampler
