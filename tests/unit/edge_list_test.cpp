#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/npy.h"
#include "importers/import.h"
#include "tests/temporary_directory.h"

namespace farhop::importers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  std::string packed(text.size() + 1000, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

class EdgeLists : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    std::ofstream(directory_ / name, std::ios::binary) << content;
    return directory_ / name;
  }
  absl::StatusOr<DatasetDescription> import(ImportOptions options, std::vector<std::string> sources) {
    options.sources = std::move(sources);
    options.directory = out_;
    options.force = true;
    return importDataset(options);
  }
  // The message of a failure, which has left nothing.
  std::string refusal(const std::string& content, ImportOptions options = {}) {
    const auto result = import(std::move(options), {file("edges", content)});
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(pathExists(out_));
    std::string message(result.status().message());
    return message;
  }
  // source, destination, source, ...
  std::vector<int32_t> ends(const std::string& name = "edges._N._E._N.npy") {
    const auto array = NpyArray::open(out_ + "/" + name);
    EXPECT_TRUE(array.ok()) << array.status();
    EXPECT_TRUE(array->header().fortranOrder);
    EXPECT_EQ(array->shape()[0], 2u);
    const auto values = array->as<int32_t>();
    return {values->begin(), values->end()};
  }
  template <typename T>
  std::vector<T> values(const std::string& name) {
    const auto array = NpyArray::open(out_ + "/" + name);
    EXPECT_TRUE(array.ok()) << array.status();
    const auto span = array->as<T>();
    EXPECT_TRUE(span.ok()) << span.status();
    return {span->begin(), span->end()};
  }
  std::vector<int32_t> read(const std::string& content, ImportOptions options = {}) {
    const auto result = import(std::move(options), {file("edges", content)});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? ends() : std::vector<int32_t>();
  }

  testing::TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
};

TEST_F(EdgeLists, AreReadInAnyDialect) {
  EXPECT_THAT(read("1,2\n3,4\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read("\"1\", 2 ,x\r\n\r\n3,4"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read("src;dst\n1;2\n"), ElementsAre(1, 2));
  EXPECT_THAT(read("% sym\n1 2\n\n  3   4 0.5\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read("# Nodes: 4\n# FromNodeId\tToNodeId\n1\t2\r\n3\t4\r\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read(gzip("1 2\n3 4\n") + gzip("5 6\n")), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read(zstd("1 2\n3 4\n")), ElementsAre(1, 2, 3, 4));
  ImportOptions bar;
  bar.edges.delimiter = '|';
  bar.edges.sourceColumn = "2";
  EXPECT_THAT(read("9|2|1\n", bar), ElementsAre(1, 2));
}

TEST_F(EdgeLists, KeepColumnsAsFeatures) {
  ImportOptions options;
  options.edges.sourceColumn = "user";
  options.edges.destinationColumn = "item";
  options.edges.columns = {{"rating", "weight", DType::kFloat32, true}, {"when", "time", DType::kInt64, false},
                           {"score", "score", DType::kFloat64, false}};
  EXPECT_THAT(read("when,score,user,item,rating\n-5,0.1,0,1,4.5\n1289241911,nan,1,0,0\n", options), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(values<float>("edge._N._E._N.weight.npy"), ElementsAre(4.5F, 0));
  EXPECT_THAT(values<int64_t>("edge._N._E._N.time.npy"), ElementsAre(-5, 1289241911));
  EXPECT_EQ(values<double>("edge._N._E._N.score.npy")[0], 0.1);
}

TEST_F(EdgeLists, NumberIdsThatAreText_InOrderOfAppearance) {
  EXPECT_THAT(read("ann bob\nbob carl\nann ann\n"), ElementsAre(0, 1, 1, 2, 0, 0));
  EXPECT_EQ(readFile(out_ + "/ids._N.txt").value(), "ann\nbob\ncarl\n");
  ImportOptions options;
  options.edges.renumber = true;
  EXPECT_THAT(read("4000000000,7\n7,200000000000\n", options), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(values<int64_t>("ids._N.npy"), ElementsAre(4000000000, 7, 200000000000));
}

TEST_F(EdgeLists, ShareNodeTypesBetweenRelations) {
  ImportOptions options;
  options.edges.nodeCounts["item"] = 9;
  const auto result = import(options, {"user:likes:item=" + file("a.txt", "u1 5\n"), "item:like:item=" + file("b.txt", "1 8\n")});
  // One end is text, the other an integer: both are text by the first file, which the second is not.
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("b.txt has ids that are integers, an earlier file of the same"));
  const auto good = import(options, {"user:likes:item=" + file("a.txt", "1 5\n"), "item:like:item=" + file("b.txt", "1 8\n")});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->nodes[0].type, "user");
  EXPECT_EQ(good->nodes[0].count, 2u);
  EXPECT_EQ(good->nodes[1].count, 9u);
  EXPECT_THAT(ends("edges.item.like.item.npy"), ElementsAre(1, 8));
}

TEST_F(EdgeLists, TurnToWideIds_WhenOneNeedsIt) {
  const auto result = import({}, {file("edges", "1 2\n3 5000000000\n4 5\n")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->nodes[0].count, 5000000001u);
  EXPECT_THAT(values<int64_t>("edges._N._E._N.npy"), ElementsAre(1, 2, 3, 5000000000, 4, 5));
}

TEST_F(EdgeLists, AreTheSame_WhateverTheThreads) {
  std::string text;
  for (int i = 0; i < 900000; ++i) absl::StrAppend(&text, i % 1000, "\t", i % 777, "\n");  // several blocks
  ImportOptions options;
  const std::vector<int32_t> one = read(text, options);
  ASSERT_EQ(one.size(), 1800000u);
  EXPECT_EQ(one[1799998], 899999 % 1000);
  options.threads = 4;
  EXPECT_EQ(read(text, options), one);
  text += "12\n";
  std::filesystem::remove_all(out_);
  EXPECT_THAT(refusal(text, options), HasSubstr("edges:900001: the line is too short: '12' has 1 fields"));
}

TEST_F(EdgeLists, NameFileAndLine_WhenTheyAreBad) {
  EXPECT_THAT(refusal("1,2\n# fine\n3\n"), HasSubstr("edges:3: the line is too short"));
  EXPECT_THAT(refusal("1,2\n3,x\n"), HasSubstr("edges:2: 'x' is no integer node id; --ids string"));
  EXPECT_THAT(refusal("1,2\n3,4.5\n"), HasSubstr("edges:2: '4.5' is no integer"));
  EXPECT_THAT(refusal("1,2\n-3,4\n"), HasSubstr("edges:2: node id -3 is negative"));
  EXPECT_THAT(refusal("1,2\n,4\n"), HasSubstr("edges:2: '' is no integer"));
  EXPECT_THAT(refusal("1 2\n1 99999999999999999999\n"), HasSubstr("edges:2: node id 99999999999999999999 is too large"));
  EXPECT_THAT(refusal("1 2\n1 999999999999999\n"), HasSubstr("edges:2: node id 999999999999999 is out of range"));
  ImportOptions options;
  options.edges.nodeCounts["_N"] = 4;
  EXPECT_THAT(refusal("1,2\n3,4\n", options), HasSubstr("edges:2: node id 4 is out of range: type '_N' was said to have 4 nodes"));
  options = {};
  options.edges.columns = {{"2", "weight", DType::kFloat32, true}};
  for (const char* bad : {"nan", "-1", "inf", "1e60"}) {
    EXPECT_THAT(refusal(absl::StrCat("1,2,0\n1,2,", bad, "\n"), options), HasSubstr("edges:2: "));
  }
  EXPECT_THAT(refusal("1,2,0\n1,2,heavy\n", options), HasSubstr("edges:2: 'heavy' is no float32 (column '2')"));
  EXPECT_THAT(refusal("1,2\n", options), HasSubstr("edges:1: the line has 2 fields, so there is no column 2"));
  options.edges.columns[0].column = "w";
  EXPECT_THAT(refusal("a,b\n1,2\n", options), HasSubstr("edges:1: no column is called 'w'; there are: a, b"));
}

TEST_F(EdgeLists, AreRefused_WhenEmptyOrCutShort) {
  EXPECT_THAT(refusal(""), HasSubstr("holds no edge"));
  EXPECT_THAT(refusal("# nothing\n\n"), HasSubstr("holds no edge"));
  ImportOptions options;
  options.edges.heading = Heading::kYes;
  EXPECT_THAT(refusal("a,b\n", options), HasSubstr("holds no edge: there is nothing after its heading"));
  std::string text;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&text, i * 7919 % 5003, " ", i * 31 % 4999, "\n");
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    EXPECT_THAT(refusal(packed.substr(0, packed.size() / 2)), HasSubstr("it was cut short"));
    EXPECT_THAT(refusal(packed.substr(0, packed.size() - 1)), HasSubstr("it was cut short"));
  }
  std::string flipped = gzip(text);  // zstd keeps no checksum unless asked to
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x55);
  EXPECT_NE(refusal(flipped), "");
  const auto result = import({}, {file("edges.csv.gz", "1,2\n")});
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("does not begin as a .gz file does"));
  EXPECT_THAT(std::string(import({}, {directory_ / "nowhere.txt"}).status().message()), HasSubstr("nowhere.txt"));
}

TEST_F(EdgeLists, TakeFeaturesSeedsAndLabelsAlong) {
  ASSERT_TRUE(writeNpy<float>(directory_ / "x.npy", std::vector<float>(12, 1.5F), {6, 2}).ok());
  ASSERT_TRUE(writeNpy<int32_t>(directory_ / "y.npy", std::vector<int32_t>{0, 1, 2, 0, 1, 3}).ok());
  ASSERT_TRUE(writeNpy<uint8_t>(directory_ / "train.npy", std::vector<uint8_t>{1, 0, 1, 0, 0, 1}).ok());
  ASSERT_TRUE(writeNpy<int64_t>(directory_ / "test.npy", std::vector<int64_t>{4, 6}).ok());
  ImportOptions options;
  options.nodeFeatures = {{"", "x", directory_ / "x.npy"}};
  options.labels = AttachedArray{"", "", directory_ / "y.npy"};
  options.seeds = {{"", "train", directory_ / "train.npy"}};
  const auto result = import(options, {file("edges", "1 2\n")});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->nodes[0].count, 6u);  // as the feature says
  EXPECT_EQ(result->tasks[0].numClasses, 4u);
  EXPECT_THAT(values<int64_t>("train._N.seeds.npy"), ElementsAre(0, 2, 5));
  EXPECT_THAT(values<int64_t>("train._N.labels.npy"), ElementsAre(0, 2, 3));
  std::filesystem::remove_all(out_);
  options.seeds.push_back({"", "test", directory_ / "test.npy"});
  EXPECT_THAT(refusal("1 2\n", options), HasSubstr("test.npy: seed 1 is 6, but type '_N' has 6 nodes"));
  options.seeds.pop_back();
  options.edges.nodeCounts["_N"] = 7;
  EXPECT_THAT(refusal("1 2\n", options), HasSubstr("x.npy has shape (6, 2), but _N has 7 nodes"));
}

}  // namespace
}  // namespace farhop::importers
