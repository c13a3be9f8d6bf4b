// What a benchmark found: rows for people as a table, for programs as JSON (docs/benchmarks.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace farhop::benchmarks {

// One quantity, measured several times.
class Series {
 public:
  Series() = default;
  explicit Series(std::vector<double> values) : values_(std::move(values)) {}

  void add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  const std::vector<double>& values() const { return values_; }
  // Of an even number the mean of the two in the middle; 0 of none.
  double median() const;
  double min() const;
  double max() const;
  // max / min - 1: 0.1 when the best and the worst repetition differ by a tenth.
  double spread() const;

 private:
  std::vector<double> values_;
};

struct Row {
  std::string name;  // the case
  Series values;
  std::string unit;
  int threads = 1;
  std::optional<double> limit;  // what the machine itself can do, in the same unit
  std::optional<uint64_t> checksum;
};

struct GraphParameters {
  uint64_t nodes = 0;
  uint64_t edges = 0;
  uint64_t seed = 0;
  int parts = 1;
};

class Report {
 public:
  Report(std::string bench, std::optional<GraphParameters> graph, uint64_t seed, bool small)
      : bench_(std::move(bench)), graph_(graph), seed_(seed), small_(small) {}

  void add(Row row) { rows_.push_back(std::move(row)); }
  const std::vector<Row>& rows() const { return rows_; }

  // Aligned columns: case, value, unit, spread, limit, ratio, threads, checksum.
  std::string table() const;
  std::string json() const;

 private:
  std::string bench_;
  std::optional<GraphParameters> graph_;
  uint64_t seed_;
  bool small_;
  std::vector<Row> rows_;
};

// Prints the table; writes the JSON to `path` unless that is empty.
absl::Status publish(const Report& report, const std::string& path);

}  // namespace farhop::benchmarks
