// Aligned columns of text for people, and numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farhop::launcher {

// The first row is the heading. Columns of numbers are right-aligned, the first and those of text
// left-aligned; rows may be shorter than the heading. Ends with a newline.
std::string formatTable(const std::vector<std::vector<std::string>>& rows);

std::string formatCount(uint64_t count);              // "63,700"
std::string formatBytes(uint64_t bytes);              // "1.5 GB", powers of 1,000
std::string formatShare(uint64_t part, uint64_t of);  // "12.3 %"; "-" of nothing
std::string formatFixed(double value, int digits);

}  // namespace farhop::launcher
