// Text files in blocks of whole lines, parsed by several threads and handed on in the order of the file.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/executor.h"
#include "base/status.h"
#include "importers/byte_source.h"

namespace farhop::importers {

inline constexpr size_t kBlockBytes = size_t{4} << 20;
// The longest line; longer ones are an error, so that memory stays bounded whatever the file holds.
inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

struct TextBlock {
  std::string text;        // whole lines; only the file's last may lack its newline
  uint64_t firstLine = 1;  // number of the first of them in the file
};

// Not thread-safe.
class TextBlocks {
 public:
  static absl::StatusOr<TextBlocks> open(const std::string& path);

  // The next block; none at the end.
  absl::StatusOr<std::optional<TextBlock>> next();

  const std::string& path() const { return path_; }
  const ByteSource& source() const { return *source_; }

 private:
  TextBlocks(std::string path, std::unique_ptr<ByteSource> source)
      : path_(std::move(path)), source_(std::move(source)) {}

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string rest_;  // the begun line after the last block
  uint64_t line_ = 1;
};

// Calls parse(block) on `threads` threads and consume(result) on the calling one, in the order of the file, until the end
// or the first error in that order. At most 2 * threads + 1 blocks and their results are in memory. `parse` returns an
// absl::StatusOr<Parsed>.
template <typename Parsed, typename Parse, typename Consume>
absl::Status parseBlocks(TextBlocks* blocks, int threads, const Parse& parse, const Consume& consume) {
  const size_t most = 2 * static_cast<size_t>(threads);
  std::deque<std::future<absl::StatusOr<Parsed>>> underWay;
  // After the queue, so that all work has ended before what it writes to goes.
  Executor executor("import", threads);
  bool more = true;
  for (;;) {
    while (more && underWay.size() < most) {
      FARHOP_ASSIGN_OR_RETURN(std::optional<TextBlock> block, blocks->next());
      more = block.has_value();
      if (!more) break;
      auto shared = std::make_shared<TextBlock>(*std::move(block));
      auto promise = std::make_shared<std::promise<absl::StatusOr<Parsed>>>();
      underWay.push_back(promise->get_future());
      const bool posted = executor.post([promise, shared, &parse] {
        try {
          promise->set_value(parse(std::move(*shared)));
        } catch (const std::bad_alloc&) {
          promise->set_value(absl::ResourceExhaustedError("no memory for a block of text"));
        }
      });
      if (!posted) return absl::InternalError("the parsing threads have ended");
    }
    if (underWay.empty()) return absl::OkStatus();
    absl::StatusOr<Parsed> parsed = underWay.front().get();
    underWay.pop_front();
    FARHOP_RETURN_IF_ERROR(parsed.status());
    FARHOP_RETURN_IF_ERROR(consume(*std::move(parsed)));
  }
}

}  // namespace farhop::importers
