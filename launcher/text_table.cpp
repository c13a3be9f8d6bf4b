#include "launcher/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace farhop::launcher {

namespace {

// Whether everything below a column's heading is a number, or "-" for none.
bool holdsNumbers(const std::vector<std::vector<std::string>>& rows, size_t column) {
  for (size_t r = 1; r < rows.size(); ++r) {
    if (column >= rows[r].size() || rows[r][column].empty()) continue;
    const char first = rows[r][column][0];
    if (first != '-' && (first < '0' || first > '9')) return false;
  }
  return true;
}

}  // namespace

std::string formatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::vector<bool> rightAligned(widths.size());
  for (size_t c = 1; c < widths.size(); ++c) rightAligned[c] = holdsNumbers(rows, c);
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - row[c].size(), ' ');
      if (c > 0) line += "  ";
      line += rightAligned[c] ? blanks : row[c];
      line += rightAligned[c] ? row[c] : blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

std::string formatCount(uint64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string formatFixed(double value, int digits) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string formatBytes(uint64_t bytes) {
  const std::array<const char*, 5> units = {"kB", "MB", "GB", "TB", "PB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  return formatFixed(value, 1) + " " + units[unit];
}

std::string formatShare(uint64_t part, uint64_t of) {
  if (of == 0) return "-";
  return formatFixed(100 * static_cast<double>(part) / static_cast<double>(of), 1) + " %";
}

}  // namespace farhop::launcher
