#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "launcher/inspect_command.h"
#include "launcher/partition_command.h"
#include "launcher/text_table.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int exitCode = -1;
  std::string out;
  std::string err;
};

// What `farhop ARGUMENTS` does, in this process. A usage error gives 2, as the program does.
Outcome farhop(std::vector<std::string> arguments) {
  CLI::App app("farhop");
  Outcome outcome;
  addPartitionCommand(app, &outcome.exitCode);
  addInspectCommand(app, &outcome.exitCode);
  std::reverse(arguments.begin(), arguments.end());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError&) {
    outcome.exitCode = 2;
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::FixtureOptions options;
    options.heterogeneous = true;
    testing::writeRawDataset(testing::makeFixtureDataset(options), raw_);
  }
  testing::TemporaryDirectory directory_;
  const std::string raw_ = directory_ / "raw";
  const std::string store_ = directory_ / "store";
};

TEST_F(Commands, PartitionThenInspect_PrintTheFigures) {
  const std::string json = directory_ / "out.json";
  Outcome outcome =
      farhop({"partition", raw_, "--out", store_, "--parts", "3", "--add-reverse", "--json", json});
  ASSERT_EQ(outcome.exitCode, 0) << outcome.err;
  for (const char* word : {"edge cut", "balance", "peak memory", "train seeds", "time"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
  const auto figures = nlohmann::json::parse(readFile(json).value());
  EXPECT_EQ(figures["parts"], 3);
  EXPECT_EQ(figures["forward_edges"], 1000);
  EXPECT_EQ(figures["edges"], 2000);
  EXPECT_GT(figures["cut_edges"], 0);
  EXPECT_GT(figures["peak_memory_bytes"], 1000000);
  EXPECT_EQ(figures["partitions"].size(), 3u);

  outcome = farhop({"inspect", store_, "--verify"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("the store is sound"));
  EXPECT_THAT(outcome.out, HasSubstr("item:rev_likes:user"));
  outcome = farhop({"inspect", store_, "--json", "--verify"});
  const auto inspected = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(inspected["cut_edges"], figures["cut_edges"]);
  EXPECT_EQ(inspected["verify"]["ok"], true);
  EXPECT_EQ(inspected["num_classes"], testing::kFixtureClasses);
}

TEST_F(Commands, PartitionTakesTheYamlFileAsWell) {
  EXPECT_EQ(farhop({"partition", raw_ + "/metadata.yaml", "--out", store_, "--parts", "1"}).exitCode, 0);
}

TEST_F(Commands, PartitionReplacesAStore_OnlyWithForce) {
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2"}).exitCode, 0);
  const Outcome refused = farhop({"partition", raw_, "--out", store_, "--parts", "3"});
  EXPECT_EQ(refused.exitCode, 1);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "3", "--force"}).exitCode, 0);
  EXPECT_THAT(farhop({"inspect", store_}).out, HasSubstr("partitions 3 by metis"));
}

TEST_F(Commands, UsageErrors_AreNoRuns) {
  EXPECT_EQ(farhop({"partition", raw_, "--out", store_}).exitCode, 2);
  EXPECT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "0"}).exitCode, 2);
  EXPECT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2", "--method", "magic"}).exitCode, 2);
  EXPECT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2", "--nonsense"}).exitCode, 2);
  EXPECT_EQ(farhop({"inspect"}).exitCode, 2);
}

TEST_F(Commands, FailuresNameTheProblem_OnStandardError) {
  Outcome outcome = farhop({"partition", directory_ / "nowhere", "--out", store_, "--parts", "2"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, HasSubstr("farhop: " + (directory_ / "nowhere")));
  outcome = farhop({"inspect", directory_ / "nowhere"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, StartsWith("farhop: " + (directory_ / "nowhere")));
}

TEST_F(Commands, VerifyFails_WhenAByteIsFlipped) {
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2"}).exitCode, 0);
  const std::string victim = store_ + "/part-00001/nodes/user/feat/x.npy";
  std::string content = readFile(victim).value();
  content.back() = static_cast<char>(content.back() ^ 1);
  ASSERT_TRUE(writeFileAtomically(victim, content).ok());
  EXPECT_EQ(farhop({"inspect", store_}).exitCode, 0);
  const Outcome outcome = farhop({"inspect", store_, "--verify"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, HasSubstr("feat/x.npy is damaged"));
}

TEST(TextTable, FormatsNumbersForPeople) {
  EXPECT_EQ(formatCount(0), "0");
  EXPECT_EQ(formatCount(999), "999");
  EXPECT_EQ(formatCount(1234567), "1,234,567");
  EXPECT_EQ(formatBytes(999), "999 B");
  EXPECT_EQ(formatBytes(1500), "1.5 kB");
  EXPECT_EQ(formatBytes(999960), "1.0 MB");
  EXPECT_EQ(formatShare(1, 8), "12.5 %");
  EXPECT_EQ(formatShare(0, 0), "-");
  EXPECT_EQ(formatTable({{"a", "bb"}, {"ccc", "1"}}), "a    bb\nccc   1\n");
}

TEST_F(Commands, DeclareTimesAndWeights_AndShowThem) {
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.edgeTimes = options.nodeTimes = options.edgeSplits = true;
  testing::writeRawDataset(testing::makeFixtureDataset(options), raw_);
  Outcome outcome = farhop({"partition", raw_, "--out", store_, "--parts", "2", "--method", "random", "--add-reverse",
                            "--times", "t", "--node-times", "nt", "--weights", "w"});
  ASSERT_EQ(outcome.exitCode, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("item:rev_likes:user: the later of t and nt of item"));
  EXPECT_THAT(outcome.out, HasSubstr("user:follows:user: w, 1 of 400 edges have weight 0"));
  outcome = farhop({"inspect", store_, "--verify"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("the store is sound"));
  const auto inspected = nlohmann::json::parse(farhop({"inspect", store_, "--json"}).out);
  EXPECT_EQ(inspected["relations"][4]["name"], "item:rev_likes:user");
  EXPECT_EQ(inspected["relations"][4]["weights"], "w");
  EXPECT_EQ(inspected["edge_splits"][0]["relation"], "user:follows:user");
  EXPECT_EQ(inspected["edge_splits"][0]["seeds"], 81);
  EXPECT_EQ(inspected["edge_splits"][1]["labels"], true);
}

TEST_F(Commands, KeepCachesOfRemoteRows_AndSayWhatTheyWillSave) {
  const std::string json = directory_ / "out.json";
  Outcome outcome = farhop({"partition", raw_, "--out", store_, "--parts", "3", "--cache-fraction", "0.5",
                            "--cache-fanouts", "4,3", "--cache-batch", "5", "--json", json});
  ASSERT_EQ(outcome.exitCode, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("fraction 0.5 by vip; with fanouts 4,3 and batches of 5 expected to save "));
  const auto cache = nlohmann::json::parse(readFile(json).value())["cache"];
  EXPECT_GT(cache["expected_saved_share"], 0.1);
  EXPECT_LE(cache["expected_saved_share"], 1);
  EXPECT_EQ(cache["node_types"][0]["rows"], nlohmann::json::parse("[10, 10, 10]"));
  EXPECT_EQ(cache["node_types"][0]["features"], nlohmann::json::parse("[\"x\", \"label\"]"));
  outcome = farhop({"inspect", store_, "--verify"});
  EXPECT_EQ(outcome.exitCode, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("cache      "));
  EXPECT_THAT(outcome.out, HasSubstr("verify     caches: ok"));
  EXPECT_EQ(nlohmann::json::parse(farhop({"inspect", store_, "--json"}).out)["cache"], cache);
}

TEST_F(Commands, CacheOptionsThatFitNothing_AreRefusedBeforeAnyWork) {
  const std::vector<std::string> base = {"partition", raw_,    "--out",           store_, "--parts",
                                         "2",         "--task", "none", "--cache-fraction", "0.25"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return farhop(more);
  };
  EXPECT_THAT(run({}).err, HasSubstr("starts from the split 'train', which the data set has not; cache by degree"));
  EXPECT_THAT(run({"--cache-policy", "degree", "--cache-features", "y"}).err,
              HasSubstr("no node type has a feature 'y' to cache; there are: 'x' of user, "));
  EXPECT_THAT(run({"--cache-policy", "degree", "--cache-fanouts", "3,-2"}).err, HasSubstr("fanout -2 is out of range"));
  EXPECT_EQ(run({"--cache-policy", "hot"}).exitCode, 2);
  EXPECT_FALSE(std::filesystem::exists(store_));
  EXPECT_THAT(run({"--cache-policy", "degree"}).out, HasSubstr("fraction 0.25 by degree\n"));
}

TEST_F(Commands, RefuseTimesAndWeightsThatNothingHas_BeforeAnyWork) {
  Outcome outcome = farhop({"partition", raw_, "--out", store_, "--parts", "2", "--times", "when"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no relation has a time feature 'when'; there are: 'w' of user:follows:user"));
  EXPECT_EQ(outcome.err.find("assigning"), std::string::npos);
  outcome = farhop({"partition", raw_, "--out", store_, "--parts", "2", "--times", "w"});
  EXPECT_THAT(outcome.err, HasSubstr("feature 'w' holds float32; times must be integers"));
  EXPECT_FALSE(std::filesystem::exists(store_));
}

}  // namespace
}  // namespace farhop::launcher
