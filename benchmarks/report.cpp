#include "benchmarks/report.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "benchmarks/commit_hash.h"
#include "benchmarks/machine.h"

namespace farhop::benchmarks {
namespace {

// Four significant digits, in thousands, millions or billions where that helps.
std::string shortNumber(double value) {
  const std::array<const char*, 4> suffixes = {"", " k", " M", " G"};
  size_t suffix = 0;
  while (value >= 10'000 && suffix + 1 < suffixes.size()) {
    value /= 1000;
    ++suffix;
  }
  std::array<char, 32> text;
  const int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
  std::snprintf(text.data(), text.size(), "%.*f%s", digits, value, suffixes[suffix]);
  return text.data();
}

std::string hexadecimal(uint64_t value) {
  std::array<char, 20> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::optional<double> ratio(const Row& row) {
  if (!row.limit || *row.limit == 0) return std::nullopt;
  return row.values.median() / *row.limit;
}

std::string formatTable(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& rightAligned) {
  std::vector<size_t> widths(rightAligned.size(), 0);
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - row[c].size(), ' ');
      absl::StrAppend(&line, c > 0 ? "  " : "", rightAligned[c] ? blanks : row[c], rightAligned[c] ? row[c] : blanks);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string utcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text;
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

nlohmann::json optionalNumber(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

double Series::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Series::min() const { return values_.empty() ? 0 : *std::min_element(values_.begin(), values_.end()); }
double Series::max() const { return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end()); }
double Series::spread() const { return min() > 0 ? max() / min() - 1 : 0; }

std::string Report::table() const {
  std::vector<std::vector<std::string>> lines = {
      {"case", "value", "unit", "spread", "limit", "ratio", "threads", "checksum"}};
  for (const Row& row : rows_) {
    const std::optional<double> share = ratio(row);
    lines.push_back({row.name, shortNumber(row.values.median()), row.unit,
                     row.values.size() > 1 ? shortNumber(row.values.spread()) : "-",
                     row.limit ? shortNumber(*row.limit) : "-", share ? shortNumber(*share) : "-",
                     std::to_string(row.threads), row.checksum ? hexadecimal(*row.checksum) : "-"});
  }
  return formatTable(lines, {false, true, false, true, true, true, true, false});
}

std::string Report::json() const {
  nlohmann::json run = {{"commit", commitHash()},   {"build", FARHOP_BUILD_TYPE}, {"time", utcNow()},
                        {"cpu", cpuModel()},        {"cores", usableCores().size()}, {"seed", seed_},
                        {"small", small_},          {"graph", nullptr}};
  utsname system{};
  if (::uname(&system) == 0) run["kernel"] = system.release;
  if (graph_) {
    run["graph"] = {{"kind", "rmat"},          {"nodes", graph_->nodes}, {"edges", graph_->edges},
                    {"seed", graph_->seed},    {"parts", graph_->parts}};
  }
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows_) {
    list.push_back({{"bench", bench_},
                    {"case", row.name},
                    {"value", row.values.median()},
                    {"unit", row.unit},
                    {"limit", optionalNumber(row.limit)},
                    {"ratio", optionalNumber(ratio(row))},
                    {"threads", row.threads},
                    {"median", row.values.median()},
                    {"min", row.values.min()},
                    {"max", row.values.max()},
                    {"spread", row.values.spread()},
                    {"repetitions", row.values.values()},
                    {"checksum", row.checksum ? nlohmann::json(hexadecimal(*row.checksum)) : nlohmann::json(nullptr)},
                    {"run", run}});
  }
  return list.dump(1);
}

absl::Status publish(const Report& report, const std::string& path) {
  const std::string table = report.table();
  std::fputs(table.c_str(), stdout);
  std::fflush(stdout);
  if (path.empty()) return absl::OkStatus();
  return writeFileAtomically(path, absl::StrCat(report.json(), "\n"));
}

}  // namespace farhop::benchmarks
