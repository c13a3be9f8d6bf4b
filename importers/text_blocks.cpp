#include "importers/text_blocks.h"

#include <algorithm>

namespace farhop::importers {

absl::StatusOr<TextBlocks> TextBlocks::open(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::open(path));
  return TextBlocks(path, std::move(source));
}

absl::StatusOr<std::optional<TextBlock>> TextBlocks::next() {
  TextBlock block;
  block.firstLine = line_;
  block.text = std::exchange(rest_, std::string());
  size_t searched = block.text.size();  // `rest_` holds no newline
  for (;;) {
    const size_t before = block.text.size();
    block.text.resize(before + kBlockBytes);
    size_t got = 0;
    while (got < kBlockBytes) {
      FARHOP_ASSIGN_OR_RETURN(const size_t n, source_->read(block.text.data() + before + got, kBlockBytes - got));
      if (n == 0) break;
      got += n;
    }
    block.text.resize(before + got);
    if (got < kBlockBytes) break;  // the end of the file
    const size_t newline = block.text.rfind('\n');
    if (newline != std::string::npos && newline >= searched) {
      rest_ = block.text.substr(newline + 1);
      block.text.resize(newline + 1);
      break;
    }
    searched = block.text.size();
    if (block.text.size() > kMaxLineBytes) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ":", line_, ": the line is longer than ", kMaxLineBytes,
                                                     " bytes; is this a text file?"));
    }
  }
  if (block.text.empty()) return std::nullopt;
  line_ += static_cast<uint64_t>(std::count(block.text.begin(), block.text.end(), '\n'));
  return block;
}

}  // namespace farhop::importers
