#include "importers/number_table.h"

#include <cmath>
#include <limits>
#include <utility>

#include "importers/delimited.h"
#include "importers/growing_npy.h"
#include "importers/text_blocks.h"

namespace farhop::importers {
namespace {

struct NumberBlock {
  std::string values;
  uint64_t rows = 0;
  bool notInteger = false;  // a number that is none of int64: the file is read again
};

// The fields of the first line.
absl::StatusOr<std::vector<std::string>> firstRow(const std::string& path, char delimiter) {
  FARHOP_ASSIGN_OR_RETURN(TextBlocks blocks, TextBlocks::open(path));
  std::vector<std::string> fields;
  for (;;) {
    FARHOP_ASSIGN_OR_RETURN(std::optional<TextBlock> block, blocks.next());
    if (!block) return fields;
    FARHOP_RETURN_IF_ERROR(eachLine(block->text, block->firstLine, "", [&](absl::string_view line, uint64_t) {
      if (!fields.empty()) return absl::OkStatus();
      FieldReader reader(line, delimiter);
      for (absl::string_view field; reader.next(&field);) fields.emplace_back(field);
      return absl::OkStatus();
    }));
    if (!fields.empty()) return fields;
  }
}

class TableParser {
 public:
  TableParser(const std::string& path, DType dtype, char delimiter, uint64_t columns)
      : path_(path), dtype_(dtype), delimiter_(delimiter), columns_(columns) {}

  absl::StatusOr<NumberBlock> parse(const TextBlock& text) const {
    NumberBlock block;
    block.values.reserve(text.text.size());
    FARHOP_RETURN_IF_ERROR(eachLine(text.text, text.firstLine, "", [&](absl::string_view line, uint64_t number) {
      ++block.rows;
      return block.notInteger ? absl::OkStatus() : parseLine(line, number, &block);
    }));
    return block;
  }

 private:
  absl::Status parseLine(absl::string_view line, uint64_t number, NumberBlock* block) const {
    FieldReader reader(line, delimiter_);
    uint64_t fields = 0;
    for (absl::string_view field; reader.next(&field); ++fields) {
      if (fields == columns_) return wrongCount(line, number, "more than");
      if (appendNumber(field.empty() && dtype_ == DType::kFloat32 ? "nan" : field, dtype_, &block->values)) continue;
      double value = 0;
      const bool isNumber = field.empty() || parseNumber(field, &value);
      if (!isNumber) {
        return absl::InvalidArgumentError(absl::StrCat(path_, ":", number, ": '", shown(field), "' is no number"));
      }
      if (dtype_ == DType::kInt64) {
        block->notInteger = true;
        return absl::OkStatus();
      }
      // Too large or too small for a float.
      const float nearest = static_cast<float>(value);
      block->values.append(reinterpret_cast<const char*>(&nearest), sizeof(nearest));
    }
    return fields == columns_ ? absl::OkStatus() : wrongCount(line, number, "less than");
  }
  absl::Status wrongCount(absl::string_view line, uint64_t number, absl::string_view how) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", number, ": '", shown(line), "' has ", how, " the ", columns_,
                                                   " fields of the first line"));
  }

  const std::string& path_;
  const DType dtype_;
  const char delimiter_;
  const uint64_t columns_;
};

}  // namespace

absl::StatusOr<NumberTable> convertNumberTable(const std::string& text, const std::string& npy,
                                               const NumberTableOptions& options, const ProgressReport& progress) {
  FARHOP_ASSIGN_OR_RETURN(const std::vector<std::string> first, firstRow(text, options.delimiter));
  NumberTable table;
  table.columns = first.size();
  if (first.empty()) return absl::InvalidArgumentError(absl::StrCat(text, " is empty; a table of numbers is expected"));
  for (const std::string& field : first) {
    int64_t value = 0;
    if (!parseNumber(field, &value)) table.dtype = DType::kFloat32;
  }
  for (;;) {
    const std::vector<uint64_t> rowShape =
        options.squeeze && table.columns == 1 ? std::vector<uint64_t>() : std::vector<uint64_t>{table.columns};
    FARHOP_ASSIGN_OR_RETURN(GrowingNpy file, GrowingNpy::create(npy, table.dtype, rowShape));
    FARHOP_ASSIGN_OR_RETURN(TextBlocks blocks, TextBlocks::open(text));
    const TableParser parser(text, table.dtype, options.delimiter, table.columns);
    bool again = false;
    const absl::Status status = parseBlocks<NumberBlock>(
        &blocks, options.threads, [&](const TextBlock& block) { return parser.parse(block); },
        [&](const NumberBlock& block) -> absl::Status {
          if (progress) progress(absl::StrCat("reading ", text), blocks.source().bytesRead(), blocks.source().fileBytes());
          again = block.notInteger;
          if (again) return absl::CancelledError("to be read as floating numbers");
          return file.write(block.values.data(), block.values.size());
        });
    if (again) {
      table.dtype = DType::kFloat32;
      continue;
    }
    FARHOP_RETURN_IF_ERROR(status);
    table.rows = file.rows();
    FARHOP_RETURN_IF_ERROR(file.commit());
    return table;
  }
}

}  // namespace farhop::importers
