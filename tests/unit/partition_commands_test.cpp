#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "launcher/degree_figures.h"
#include "launcher/inspect_command.h"
#include "launcher/partition_command.h"
#include "launcher/progress_display.h"
#include "launcher/progress_line.h"
#include "launcher/text_table.h"
#include "partition/graph_store.h"
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

// Degrees as a data set's edges give them, by relation.
struct Degrees {
  std::vector<uint32_t> in, out;
};

Degrees degreesOf(const partition::GraphStore& store, int r) {
  const partition::Relation& relation = store.schema().relations[static_cast<size_t>(r)];
  Degrees degrees;
  degrees.in.resize(store.schema().nodeTypes[static_cast<size_t>(relation.destination)].count);
  degrees.out.resize(store.schema().nodeTypes[static_cast<size_t>(relation.source)].count);
  const partition::IdArray sources = store.originalIdsByGid(relation.source).value();
  for (int k = 0; k < store.numPartitions(); ++k) {
    const partition::GraphShard shard = store.openPartition(k).value();
    const partition::RelationShard& edges = shard.relation(r);
    for (uint64_t row = 0; row < edges.rows(); ++row) {
      const uint64_t node = shard.originalIds(relation.destination)[row];
      for (uint64_t e = edges.indptr[row]; e < edges.indptr[row + 1]; ++e) {
        ++degrees.in[node];
        ++degrees.out[sources[edges.neighbors32[e]]];
      }
    }
  }
  return degrees;
}

void expectFigures(const nlohmann::json& figures, const std::vector<uint32_t>& degrees) {
  const auto largest = std::max_element(degrees.begin(), degrees.end());
  EXPECT_EQ(figures["largest"], *largest);
  EXPECT_EQ(figures["largest_node"], largest - degrees.begin());
  uint64_t nodes = 0;
  for (const nlohmann::json& bucket : figures["histogram"]) {
    const auto inside = std::count_if(degrees.begin(), degrees.end(), [&](uint32_t degree) {
      return degree >= bucket["from"] && degree <= bucket["to"];
    });
    EXPECT_EQ(bucket["nodes"], inside) << bucket;
    nodes += static_cast<uint64_t>(inside);
  }
  EXPECT_EQ(nodes, degrees.size());
}

TEST_F(Commands, InspectShowsDegrees_AsTheEdgesGiveThem) {
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "3", "--add-reverse"}).exitCode, 0);
  const auto store = partition::GraphStore::open(store_).value();
  const auto json = nlohmann::json::parse(farhop({"inspect", store_, "--json"}).out)["degrees"];
  ASSERT_EQ(json["relations"].size(), 3u) << "reverse relations have the degrees of the forward ones, exchanged";
  std::vector<std::vector<bool>> connected;
  for (const partition::NodeType& type : store->schema().nodeTypes) connected.emplace_back(type.count, false);
  for (const nlohmann::json& relation : json["relations"]) {
    const int r = store->schema().relationIndex(relation["relation"]).value();
    const Degrees degrees = degreesOf(*store, r);
    expectFigures(relation["in"], degrees.in);
    expectFigures(relation["out"], degrees.out);
    const partition::Relation& ends = store->schema().relations[static_cast<size_t>(r)];
    for (size_t i = 0; i < degrees.in.size(); ++i) {
      if (degrees.in[i] > 0) connected[static_cast<size_t>(ends.destination)][i] = true;
    }
    for (size_t i = 0; i < degrees.out.size(); ++i) {
      if (degrees.out[i] > 0) connected[static_cast<size_t>(ends.source)][i] = true;
    }
  }
  for (size_t t = 0; t < connected.size(); ++t) {
    const auto isolated = std::count(connected[t].begin(), connected[t].end(), false);
    EXPECT_GT(isolated, 0);
    EXPECT_EQ(json["isolated"][store->schema().nodeTypes[t].name], isolated);
  }
  const std::string text = farhop({"inspect", store_}).out;
  for (const char* word : {"isolated", "largest", "4-7", "###", "halo / nodes", "balance    largest / mean: nodes 1."}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

// Whether python3 takes a file for XML whose root is an svg.
bool isSvg(const std::string& file) {
  const std::string program =
      "/usr/bin/python3 -c \"import sys, xml.etree.ElementTree as e; "
      "sys.exit(e.parse('" + file + "').getroot().tag != '{http://www.w3.org/2000/svg}svg')\"";
  return std::system(program.c_str()) == 0;
}

TEST_F(Commands, InspectDrawsDegreesAsSvg_WhateverTheNames) {
  const std::string svg = directory_ / "degrees.svg";
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2"}).exitCode, 0);
  EXPECT_EQ(farhop({"inspect", store_, "--svg", svg}).exitCode, 0);
  EXPECT_TRUE(isSvg(svg));
  EXPECT_THAT(readFile(svg).value(), HasSubstr("user:likes:item, in-degree"));
  EXPECT_EQ(farhop({"inspect", store_, "--svg", directory_ / "no/degrees.svg"}).exitCode, 1);

  partition::Schema schema;
  schema.nodeTypes = {{"a<b>&\"'\x01", 3, {}}};
  schema.relations = {{"]]>\xc3\xa9", 0, 0, 0, -1, {}}};
  StoreDegrees degrees;
  degrees.relations.push_back({0, {}, {}});
  for (const uint32_t degree : {0u, 1u, 4294967295u}) degrees.relations[0].in.add(degree, degree);
  ASSERT_TRUE(writeFileAtomically(svg, degreesSvg(schema, degrees)).ok());
  EXPECT_TRUE(isSvg(svg));
  ASSERT_TRUE(writeFileAtomically(svg, degreesSvg({}, {})).ok());
  EXPECT_TRUE(isSvg(svg)) << "a graph without relations";
}

TEST(DegreeFigures, KeepTheLowestNodeOfTheLargestDegree_HoweverTheyAreMerged) {
  const std::vector<uint32_t> degrees = {0, 3, 7, 8, 8, 0, 4294967295u, 4294967295u};
  for (size_t cut = 0; cut <= degrees.size(); ++cut) {
    DegreeFigures first, second;
    for (size_t i = 0; i < degrees.size(); ++i) (i < cut ? first : second).add(i, degrees[i]);
    first.merge(second);
    EXPECT_EQ(first.largest, 4294967295u);
    EXPECT_EQ(first.largestNode, 6u);
    EXPECT_EQ(first.nodes, 8u);
    EXPECT_EQ(first.buckets[0], 2u);
    EXPECT_EQ(first.buckets[2], 1u);
    EXPECT_EQ(first.buckets[3], 1u);
    EXPECT_EQ(first.buckets[4], 2u);
    EXPECT_EQ(first.usedBuckets(), 33u);
  }
  EXPECT_EQ(degreeRangeText(0), "0");
  EXPECT_EQ(degreeRangeText(1), "1");
  EXPECT_EQ(degreeRangeText(4), "8-15");
}

TEST_F(Commands, InspectShowsANode_WithTheSameNeighborsOnAnyPartitioning) {
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.edgeTimes = options.edgeSplits = true;
  testing::writeRawDataset(testing::makeFixtureDataset(options), raw_);
  const std::vector<std::string> declared = {"--times", "t", "--weights", "w", "--add-reverse", "--method", "random"};
  const auto partitionInto = [&](const std::string& store, const std::string& parts) {
    std::vector<std::string> arguments = {"partition", raw_, "--out", store, "--parts", parts};
    arguments.insert(arguments.end(), declared.begin(), declared.end());
    return farhop(arguments);
  };
  const std::string one = directory_ / "one";
  ASSERT_EQ(partitionInto(one, "1").exitCode, 0);
  ASSERT_EQ(partitionInto(store_, "3").exitCode, 0);
  const auto store = partition::GraphStore::open(store_).value();
  size_t neighborsSeen = 0;
  for (uint64_t id = 0; id < 60; id += 7) {
    const std::string name = "user:" + std::to_string(id);
    const auto show = [&](const std::string& directory) {
      return nlohmann::json::parse(farhop({"inspect", directory, "--node", name, "--json", "--neighbors", "1000"}).out);
    };
    auto node = show(store_), alone = show(one);
    EXPECT_EQ(node["original_id"], id);
    EXPECT_EQ(node["gid"], store->gidsByOriginalId(0).value()[id]);
    EXPECT_EQ(node["partition"], store->book().partitionOf(0, node["gid"]));
    EXPECT_EQ(node["features"][0]["name"], "x");
    for (uint64_t c = 0; c < 4; ++c) {
      EXPECT_EQ(node["features"][0]["first_values"][c].get<float>(), testing::fixtureFeature(0, id, c));
    }
    for (nlohmann::json* each : {&node, &alone}) {
      for (nlohmann::json& relation : (*each)["in_edges"]) {
        EXPECT_EQ(relation["first_neighbors"].size(), relation["degree"]);
        relation.erase("remote");
        for (nlohmann::json& neighbor : relation["first_neighbors"]) {
          EXPECT_TRUE(neighbor.contains("time") && neighbor.contains("weight"));
          neighbor.erase("gid");
          neighbor.erase("partition");
          ++neighborsSeen;
        }
      }
    }
    EXPECT_EQ(node["in_edges"], alone["in_edges"]);
    EXPECT_EQ(node["splits"], alone["splits"]);
    EXPECT_EQ(node["edge_splits"], alone["edge_splits"]);
    EXPECT_EQ(node["out_degrees"], alone["out_degrees"]);
  }
  EXPECT_GT(neighborsSeen, 20u);
}

TEST_F(Commands, InspectShowsANodeAsText_AndRefusesNodesThatAreNone) {
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "2"}).exitCode, 0);
  const Outcome shown = farhop({"inspect", store_, "--node", "user:0", "--neighbors", "2"});
  EXPECT_EQ(shown.exitCode, 0) << shown.err;
  for (const char* word : {"node       user:0\n", "owner      partition ", "feature    x float32 x 4: ", "feature    label int64: ",
                           "in-edges   user:follows:user: ", ", the first 2:\n", "out-edges  user:likes:item: "}) {
    EXPECT_THAT(shown.out, HasSubstr(word));
  }
  const auto refused = [&](const std::string& name) {
    const Outcome outcome = farhop({"inspect", store_, "--node", name});
    EXPECT_EQ(outcome.exitCode, 1) << name;
    return outcome.err;
  };
  EXPECT_THAT(refused("7"), HasSubstr("write TYPE:ID with one of user, item"));
  EXPECT_THAT(refused("user:60"), HasSubstr("node type 'user' has the ids 0 to 59"));
  EXPECT_THAT(refused("user:-1"), HasSubstr("has the ids 0 to 59"));
  EXPECT_THAT(refused("user:"), HasSubstr("has the ids 0 to 59"));
  EXPECT_THAT(refused("user:99999999999999999999999"), HasSubstr("has the ids 0 to 59"));
  EXPECT_THAT(refused("robot:1"), HasSubstr("robot"));
  EXPECT_EQ(farhop({"inspect", store_, "--node", "user:1", "--verify"}).exitCode, 2);
  EXPECT_EQ(farhop({"inspect", store_, "--neighbors", "3"}).exitCode, 2);
}

TEST_F(Commands, InspectOfANodeWithADamagedNeighbor_IsAnError) {
  ASSERT_EQ(farhop({"partition", raw_, "--out", store_, "--parts", "1"}).exitCode, 0);
  const std::string victim = store_ + "/part-00000/edges/user.follows.user/neighbors.npy";
  std::string content = readFile(victim).value();
  // The first neighbour follows the header of 128 bytes at most; all of them are spoilt.
  for (size_t i = content.size() - 1600; i < content.size(); ++i) content[i] = '\x7f';
  ASSERT_TRUE(writeFileAtomically(victim, content).ok());
  const Outcome outcome = farhop({"inspect", store_, "--node", "user:0"});
  EXPECT_EQ(outcome.exitCode, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the store is damaged, farhop inspect --verify says where"));
}

partition::ProgressMeter::Snapshot stepAt(uint64_t done, uint64_t number = 1) {
  return {"a:b:c: sorting", "edges", number, done, 1000000};
}

TEST(ProgressLine, ShowsStepShareRateAndTimeLeft_WithinTheWidth) {
  EXPECT_EQ(progressLine(stepAt(250000), 2, 80),
            "a:b:c: sorting  [#######.....................]   25 %  125,000 edges/s  6 s left");
  EXPECT_EQ(progressLine(stepAt(250000), 2, 44), "a:b:c: sor   25 %  125,000 edges/s  6 s left");
  EXPECT_EQ(progressLine(stepAt(999999), 1000, 200).substr(47), "]   99 %  999 edges/s  1 s left");
  for (size_t columns = 0; columns < 120; ++columns) {
    for (const uint64_t done : {uint64_t{0}, uint64_t{1}, uint64_t{999999}, uint64_t{1000000}, uint64_t{2000000}}) {
      EXPECT_LE(columnsOf(progressLine(stepAt(done), 1e6, columns)), columns);
      EXPECT_LE(columnsOf(progressLine(stepAt(done), 0, columns)), columns);
    }
  }
  EXPECT_THAT(progressLine(stepAt(0), 10, 80), ::testing::EndsWith("  0 %")) << "no rate from nothing";
  EXPECT_EQ(plainProgressLine(stepAt(500000), 100), "a:b:c: sorting:  50 %  5,000 edges/s  1:40 left");
}

TEST(ProgressLine, CutsNamesBetweenCharacters_AndKeepsControlCharactersOut) {
  EXPECT_EQ(fitColumns("\xc3\xa9\xc3\xa9\xc3\xa9", 2), "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(fitColumns("a\x1b[2Jb\n", 99), "a?[2Jb?");
  EXPECT_EQ(columnsOf("\xe2\x82\xac 1"), 3u);
  EXPECT_EQ(durationText(0.2), "1 s");
  EXPECT_EQ(durationText(61), "1:01");
  EXPECT_EQ(durationText(7500), "2:05:00");
  EXPECT_EQ(durationText(1e300), "more than 99 h");
}

TEST(PlainLinePace, PrintsAtTenths_AtMostOnceASecond_AndNothingOfShortSteps) {
  PlainLinePace pace;
  EXPECT_FALSE(pace.due(stepAt(0), 100));
  EXPECT_FALSE(pace.due(stepAt(900000), 100.5)) << "within a second of the step's begin";
  EXPECT_TRUE(pace.due(stepAt(910000), 101.1));
  EXPECT_FALSE(pace.due(stepAt(990000), 109)) << "no further tenth";
  EXPECT_FALSE(pace.due(stepAt(1000000), 120)) << "it has ended";
  EXPECT_FALSE(pace.due(stepAt(500000, 2), 121)) << "another step";
  EXPECT_TRUE(pace.due(stepAt(500001, 2), 122.5));
  EXPECT_FALSE(pace.due({"x", "rows", 3, 0, 0}, 200));
}

TEST(ProgressDisplay, PrintsPlainLinesAndBars_AsItsStyleSays) {
  const auto output = [](ProgressStyle style) {
    ::testing::internal::CaptureStderr();
    {
      ProgressDisplay display("farhop test", style);
      display.line("one");
      display.meter()->begin("step", "rows", 100);
      display.meter()->advance(50);
      std::this_thread::sleep_for(std::chrono::milliseconds(350));
      display.line("two");
    }
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(output(ProgressStyle::kNone), "");
  EXPECT_EQ(output(ProgressStyle::kPlainLines), "farhop test: one\nfarhop test: two\n");
  const std::string bar = output(ProgressStyle::kBar);
  EXPECT_THAT(bar, HasSubstr("\rstep  ["));
  EXPECT_THAT(bar, HasSubstr("]   50 %"));
  EXPECT_THAT(bar, HasSubstr(" \rfarhop test: two\n")) << "lines come above the bar, which is drawn again";
}

// Standard error is a terminal of 33 columns while this lives.
class TerminalOnStderr {
 public:
  TerminalOnStderr() : before_(::dup(STDERR_FILENO)) {
    winsize size{};
    size.ws_col = 33;
    size.ws_row = 10;
    opened_ = ::openpty(&controller_, &terminal_, nullptr, nullptr, &size) == 0;
    if (opened_) ::dup2(terminal_, STDERR_FILENO);
  }
  ~TerminalOnStderr() {
    ::dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, controller_, terminal_}) ::close(fd);
  }
  bool opened() const { return opened_; }

 private:
  int before_;
  int controller_ = -1, terminal_ = -1;
  bool opened_ = false;
};

TEST(ProgressDisplay, DrawsBarsOnlyWhereALineCanBeWrittenOver) {
  const char* kind = std::getenv("TERM");
  const std::string before = kind == nullptr ? "" : kind;
  {
    const TerminalOnStderr terminal;
    ASSERT_TRUE(terminal.opened());
    EXPECT_EQ(terminalColumns(), 33u);
    ::setenv("TERM", "xterm", 1);
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kBar);
    ::setenv("TERM", "dumb", 1);
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines);
    ::unsetenv("TERM");
    EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines);
  }
  ::setenv("TERM", "xterm", 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(progressStyleOfStderr(), ProgressStyle::kPlainLines) << "a file";
  EXPECT_EQ(terminalColumns(), 80u);
  ::testing::internal::GetCapturedStderr();
  if (kind == nullptr) ::unsetenv("TERM"); else ::setenv("TERM", before.c_str(), 1);
}

TEST_F(Commands, PartitionSaysNothingOnTheWay_WhenAskedTo) {
  const std::string json = directory_ / "out.json";
  const Outcome quiet = farhop({"partition", raw_, "--out", store_, "--parts", "2", "--no-progress", "--json", json});
  EXPECT_EQ(quiet.exitCode, 0);
  EXPECT_EQ(quiet.err, "");
  const Outcome plain = farhop({"partition", raw_, "--out", store_, "--parts", "2", "--force"});
  EXPECT_THAT(plain.err, StartsWith("farhop partition: reading "));
  EXPECT_EQ(plain.err.find('\r'), std::string::npos) << "captured output is no terminal";
  EXPECT_TRUE(nlohmann::json::accept(readFile(json).value()));
}

}  // namespace
}  // namespace farhop::launcher
