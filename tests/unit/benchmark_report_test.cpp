#include "benchmarks/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace farhop::benchmarks {
namespace {

using ::testing::HasSubstr;

TEST(Series, HasAMedianThatOneSlowRepetitionDoesNotMove) {
  EXPECT_EQ(Series({3, 1, 2}).median(), 2);
  EXPECT_EQ(Series({3, 1, 2, 4}).median(), 2.5);
  EXPECT_EQ(Series({10, 11, 10, 1000, 10}).median(), 10);
}

TEST(Series, SaysHowFarApartBestAndWorstAre) {
  EXPECT_DOUBLE_EQ(Series({10, 12, 11}).spread(), 0.2);
  EXPECT_EQ(Series({5}).spread(), 0);
}

TEST(Series, IsAllZeros_WhenNothingWasMeasured) {
  const Series none;
  EXPECT_EQ(none.median(), 0);
  EXPECT_EQ(none.min(), 0);
  EXPECT_EQ(none.max(), 0);
  EXPECT_EQ(none.spread(), 0);
}

Report twoRows() {
  Report report("demo", GraphParameters{16, 40, 9, 2}, 7, false);
  report.add({"fast", Series({50e6, 40e6, 60e6}), "edges/s", 2, 200e6, 0xABCULL});
  report.add({"size", Series({12}), "bytes"});
  return report;
}

TEST(Report, WritesOneJsonObjectPerRow_WithWhatIdentifiesTheRun) {
  const nlohmann::json rows = nlohmann::json::parse(twoRows().json());
  ASSERT_TRUE(rows.is_array());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["bench"], "demo");
  EXPECT_EQ(rows[0]["case"], "fast");
  EXPECT_EQ(rows[0]["value"], 50e6);
  EXPECT_EQ(rows[0]["limit"], 200e6);
  EXPECT_EQ(rows[0]["ratio"], 0.25);
  EXPECT_EQ(rows[0]["threads"], 2);
  EXPECT_EQ(rows[0]["spread"], 0.5);
  EXPECT_EQ(rows[0]["checksum"], "0000000000000abc");
  EXPECT_EQ(rows[0]["run"]["seed"], 7);
  EXPECT_EQ(rows[0]["run"]["graph"]["nodes"], 16);
  EXPECT_EQ(rows[0]["run"]["graph"]["parts"], 2);
  EXPECT_FALSE(rows[0]["run"]["commit"].get<std::string>().empty());
  EXPECT_TRUE(rows[1]["limit"].is_null());
  EXPECT_TRUE(rows[1]["ratio"].is_null());
  EXPECT_TRUE(rows[1]["checksum"].is_null());
}

TEST(Report, AlignsItsColumns) {
  std::istringstream lines(twoRows().table());
  std::string heading, fast, size;
  std::getline(lines, heading);
  std::getline(lines, fast);
  std::getline(lines, size);
  EXPECT_THAT(fast, HasSubstr("50.00 M  edges/s"));
  EXPECT_EQ(heading.find("unit"), fast.find("edges/s"));
  EXPECT_EQ(heading.find("unit"), size.find("bytes"));
  EXPECT_EQ(heading.find("checksum"), fast.find("0000000000000abc"));
}

}  // namespace
}  // namespace farhop::benchmarks
