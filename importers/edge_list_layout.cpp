// What an edge list's first lines say of the rest.
#include <algorithm>

#include "importers/delimited.h"
#include "importers/edge_list.h"
#include "importers/text_blocks.h"

namespace farhop::importers {
namespace {

struct FirstLine {
  std::string text;
  uint64_t number = 0;
};

absl::StatusOr<std::vector<FirstLine>> firstLines(const std::string& path, const std::string& comments) {
  FARHOP_ASSIGN_OR_RETURN(TextBlocks blocks, TextBlocks::open(path));
  std::vector<FirstLine> lines;
  while (lines.size() < 2) {
    FARHOP_ASSIGN_OR_RETURN(std::optional<TextBlock> block, blocks.next());
    if (!block) break;
    FARHOP_RETURN_IF_ERROR(
        eachLine(block->text, block->firstLine, comments, [&](absl::string_view line, uint64_t number) {
          if (lines.size() < 2) lines.push_back({std::string(line), number});
          return absl::OkStatus();
        }));
  }
  return lines;
}

std::vector<absl::string_view> fieldsOf(const std::string& line, char delimiter) {
  std::vector<absl::string_view> fields;
  FieldReader reader(line, delimiter);
  for (absl::string_view field; reader.next(&field);) fields.push_back(field);
  return fields;
}

char tellDelimiter(const std::string& line) {
  for (const char candidate : {'\t', ',', ';'}) {
    if (line.find(candidate) != std::string::npos) return candidate;
  }
  return 0;
}

bool isNumber(absl::string_view text) {
  int64_t value = 0;
  return parseNumber(text, &value);
}

// The column of a name or number; error() gives the message's beginning.
absl::StatusOr<size_t> columnIndex(const std::string& wanted, const std::vector<absl::string_view>& fields,
                                   bool heading, const std::string& where) {
  size_t index = 0;
  if (heading) {
    const auto named = std::find(fields.begin(), fields.end(), wanted);
    if (named != fields.end()) return static_cast<size_t>(named - fields.begin());
  }
  if (!parseNumber(wanted, &index)) {
    std::string known;
    if (heading) {
      for (const absl::string_view field : fields) absl::StrAppend(&known, known.empty() ? "" : ", ", shown(field));
    }
    return absl::InvalidArgumentError(
        heading ? absl::StrCat(where, ": no column is called '", wanted, "'; there are: ", known)
                : absl::StrCat(where, ": there is no heading, so column '", wanted,
                               "' cannot be found by name; give its number (from 0)"));
  }
  if (index >= fields.size()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": the line has ", fields.size(), " fields, so there is no column ",
                                                   index, " (numbered from 0); is the delimiter right?"));
  }
  return index;
}

}  // namespace

absl::StatusOr<EdgeListLayout> tellLayout(const std::string& path, const EdgeListOptions& options) {
  FARHOP_ASSIGN_OR_RETURN(const std::vector<FirstLine> lines, firstLines(path, options.comments));
  if (lines.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no edge: there is no line but comments and empty ones"));
  }
  const std::string where = absl::StrCat(path, ":", lines[0].number);
  EdgeListLayout layout;
  layout.delimiter = options.delimiter.value_or(tellDelimiter(lines[0].text));
  const std::vector<absl::string_view> first = fieldsOf(lines[0].text, layout.delimiter);
  // Columns asked for by a name that is none of the numbers need a heading.
  bool byName = !isNumber(options.sourceColumn) || !isNumber(options.destinationColumn);
  for (const EdgeColumn& column : options.columns) byName = byName || !isNumber(column.column);
  layout.heading = options.heading == Heading::kYes || (options.heading == Heading::kAuto && byName);
  const auto find = [&]() -> absl::Status {
    FARHOP_ASSIGN_OR_RETURN(layout.source, columnIndex(options.sourceColumn, first, layout.heading, where));
    FARHOP_ASSIGN_OR_RETURN(layout.destination, columnIndex(options.destinationColumn, first, layout.heading, where));
    return absl::OkStatus();
  };
  FARHOP_RETURN_IF_ERROR(find());
  const auto integerEnds = [&](const std::vector<absl::string_view>& fields) {
    return std::max(layout.source, layout.destination) < fields.size() && isNumber(fields[layout.source]) &&
           isNumber(fields[layout.destination]);
  };
  const bool secondIsInteger = lines.size() > 1 && integerEnds(fieldsOf(lines[1].text, layout.delimiter));
  if (options.heading == Heading::kAuto && !layout.heading) {
    layout.heading = options.ids != IdKind::kString && !integerEnds(first) && secondIsInteger;
    FARHOP_RETURN_IF_ERROR(find());
  }
  if (layout.heading && lines.size() == 1) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no edge: there is nothing after its heading"));
  }
  layout.ids = options.ids;
  if (layout.ids == IdKind::kAuto) {
    const bool integer = layout.heading ? secondIsInteger : integerEnds(first);
    layout.ids = integer ? IdKind::kInteger : IdKind::kString;
  }
  for (const EdgeColumn& column : options.columns) {
    FARHOP_ASSIGN_OR_RETURN(const size_t index, columnIndex(column.column, first, layout.heading, where));
    layout.columns.push_back(index);
  }
  return layout;
}

}  // namespace farhop::importers
