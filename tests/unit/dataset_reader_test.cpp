#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "partition/dataset.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using ::testing::HasSubstr;

// Five nodes of one type, three edges, one feature, one task.
constexpr char kSmall[] = R"(dataset_name: small
graph:
  nodes:
  - num: 5
  edges:
  - format: csv
    path: edges.csv
feature_data:
- domain: node
  name: x
  format: numpy
  path: x.npy
tasks:
- name: classify
  num_classes: 3
  train_set:
  - data:
    - name: seeds
      format: numpy
      path: train.npy
    - name: labels
      format: numpy
      path: train_labels.npy
- name: other
  test_set:
  - data:
    - name: seeds
      format: numpy
      path: other.npy
)";

class DatasetReader : public ::testing::Test {
 protected:
  void SetUp() override {
    text("metadata.yaml", kSmall);
    text("edges.csv", "0,1\n1,2\n4,4\n");
    numbers<float>("x.npy", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
    numbers<int32_t>("train.npy", {3, 0}, {2});
    numbers<uint8_t>("train_labels.npy", {2, 1}, {2});
    numbers<int64_t>("other.npy", {4}, {1});
  }
  void text(const std::string& name, const std::string& content) {
    std::ofstream(directory_ / name) << content;
  }
  template <typename T>
  void numbers(const std::string& name, const std::vector<T>& values, std::vector<uint64_t> shape) {
    ASSERT_TRUE(writeNpy<T>(directory_ / name, std::span<const T>(values), shape).ok());
  }
  // Replaces a piece of kSmall.
  void change(const std::string& from, const std::string& to) {
    std::string yaml = kSmall;
    const size_t at = yaml.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text("metadata.yaml", yaml.replace(at, from.size(), to));
  }
  absl::StatusOr<Dataset> read(const std::string& task = "") {
    return readDataset(directory_.path(), {task});
  }
  // The reader must fail and say `what`.
  void expectError(const std::string& what) {
    const auto dataset = read();
    ASSERT_FALSE(dataset.ok()) << "expected: " << what;
    EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(what));
    EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(directory_.path()));
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(DatasetReader, ReadsAHomogeneousGraph) {
  const auto dataset = read();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->name, "small");
  EXPECT_EQ(dataset->task, "classify");
  EXPECT_EQ(dataset->numClasses, 3);
  EXPECT_EQ(dataset->schema.relationText(0), "_N:_E:_N");
  ASSERT_EQ(dataset->edges[0].source.size(), 3u);
  EXPECT_EQ(dataset->edges[0].source[2], 4u);
  ASSERT_EQ(dataset->splits.size(), 1u);
  EXPECT_EQ(dataset->splits[0].name, "train");
  EXPECT_EQ(dataset->splits[0].ids, (std::vector<uint64_t>{0, 3}));
  const NodeType& type = dataset->schema.nodeTypes[0];
  ASSERT_EQ(type.features.size(), 2u);
  EXPECT_EQ(type.features[1].name, "label");
  EXPECT_EQ(type.features[1].dtype, DType::kInt64);
  const auto* labels = reinterpret_cast<const int64_t*>(dataset->nodeFeatures[0][1].data);
  EXPECT_EQ(std::vector<int64_t>(labels, labels + 5), (std::vector<int64_t>{1, -1, -1, 2, -1}));
}

TEST_F(DatasetReader, ReadsTheTaskThatIsNamed_OrNone) {
  auto other = read("other");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->splits[0].name, "test");
  auto none = read("none");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->splits.empty());
  EXPECT_THAT(std::string(read("third").status().message()),
              HasSubstr("there is no task 'third'; there are: 'classify', 'other'"));
}

TEST_F(DatasetReader, ReadsEdgesOfEveryShapeAndIntegerType) {
  change("format: csv\n    path: edges.csv", "format: numpy\n    path: edges.npy");
  auto expectEdges = [&](absl::string_view what) {
    const auto dataset = read();
    ASSERT_TRUE(dataset.ok()) << what << ": " << dataset.status();
    const EdgeList& edges = dataset->edges[0];
    ASSERT_EQ(edges.source.size(), 3u) << what;
    const uint64_t expected[3][2] = {{0, 1}, {1, 2}, {4, 4}};
    for (uint64_t e = 0; e < 3; ++e) {
      EXPECT_EQ(edges.source[e], expected[e][0]) << what;
      EXPECT_EQ(edges.destination[e], expected[e][1]) << what;
    }
  };
  numbers<int64_t>("edges.npy", {0, 1, 4, 1, 2, 4}, {2, 3});
  expectEdges("int64 (2, E)");
  numbers<int16_t>("edges.npy", {0, 1, 1, 2, 4, 4}, {3, 2});
  expectEdges("int16 (E, 2)");
  numbers<uint8_t>("edges.npy", {0, 1, 4, 1, 2, 4}, {2, 3});
  expectEdges("uint8 (2, E)");
  numbers<uint32_t>("edges.npy", {0, 1, 4, 1, 2, 4}, {2, 3});
  expectEdges("uint32 (2, E)");
  // numpy.asfortranarray of the (2, E) array: columns one after the other.
  numbers<int64_t>("edges.npy", {0, 1, 1, 2, 4, 4}, {2, 3});
  std::string file = readFile(directory_ / "edges.npy").value();
  file.replace(file.find("False,"), 6, "True, ");
  text("edges.npy", file);
  expectEdges("Fortran (2, E)");
}

TEST_F(DatasetReader, ReadsCsvWithHeadingAndCarriageReturns) {
  text("edges.csv", "src,dst\r\n0, 1\r\n1,2\r\n\r\n4,4");
  const auto dataset = read();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->edges[0].destination.size(), 3u);
}

TEST_F(DatasetReader, KeepsALabelFeature_OverLabelsInSets) {
  numbers<int64_t>("label.npy", {9, 8, 7, 6, 5}, {5});
  change("feature_data:\n", "feature_data:\n- {domain: node, name: label, format: numpy, path: label.npy}\n");
  const auto dataset = read();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->schema.nodeTypes[0].features.size(), 2u);
  EXPECT_EQ(reinterpret_cast<const int64_t*>(dataset->nodeFeatures[0][0].data)[0], 9);
}

TEST_F(DatasetReader, KeepsFloatingLabels_WithNanWhereAbsent) {
  numbers<float>("train_labels.npy", {0.5F, 0.25F, 1, 2}, {2, 2});
  const auto dataset = read();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto* labels = reinterpret_cast<const float*>(dataset->nodeFeatures[0][1].data);
  EXPECT_EQ(labels[0], 1);
  EXPECT_EQ(labels[6], 0.5F);
  EXPECT_TRUE(std::isnan(labels[2]));
}

TEST_F(DatasetReader, ReadsBackWhatTheFixtureWrites) {
  testing::FixtureOptions options;
  options.heterogeneous = true;
  options.edgeSplits = true;
  const Dataset written = testing::makeFixtureDataset(options);
  testing::writeRawDataset(written, directory_ / "raw");
  const auto dataset = readDataset(directory_ / "raw/metadata.yaml");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->schema.relations.size(), 3u);
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(dataset->schema.relationText(static_cast<int>(r)),
              written.schema.relationText(static_cast<int>(r)));
    ASSERT_EQ(dataset->edges[r].source.size(), written.edges[r].source.size());
    for (uint64_t e = 0; e < written.edges[r].source.size(); ++e) {
      ASSERT_EQ(dataset->edges[r].source[e], written.edges[r].source[e]);
      ASSERT_EQ(dataset->edges[r].destination[e], written.edges[r].destination[e]);
    }
  }
  ASSERT_EQ(dataset->splits.size(), written.splits.size());
  for (size_t s = 0; s < written.splits.size(); ++s) EXPECT_EQ(dataset->splits[s].ids, written.splits[s].ids);
  ASSERT_EQ(dataset->edgeSplits.size(), written.edgeSplits.size());
  for (size_t s = 0; s < written.edgeSplits.size(); ++s) {
    const EdgeSplitSeeds &got = dataset->edgeSplits[s], &wanted = written.edgeSplits[s];
    EXPECT_EQ(got.name, wanted.name);
    ASSERT_EQ(got.source.size(), wanted.source.size());
    ASSERT_EQ(got.labelSpec.has_value(), wanted.labelSpec.has_value());
    for (uint64_t i = 0; i < wanted.source.size(); ++i) {
      ASSERT_EQ(got.source[i], wanted.source[i]);
      ASSERT_EQ(got.destination[i], wanted.destination[i]);
    }
    if (!wanted.labelSpec) continue;
    EXPECT_EQ(std::memcmp(got.labels.data, wanted.labels.data, wanted.labels.rows * 8), 0);
  }
  EXPECT_EQ(std::memcmp(dataset->nodeFeatures[1][0].data, written.nodeFeatures[1][0].data,
                        written.schema.nodeTypes[1].count * 16),
            0);
}

TEST_F(DatasetReader, RefusesBadYaml_WithFileAndLine) {
  text("metadata.yaml", "dataset_name: x\ngraph: [1, 2\nfoo: }\n");
  expectError("metadata.yaml:3: ");
  text("metadata.yaml", "just words\n");
  expectError("metadata.yaml:1: this is not a mapping");
  text("metadata.yaml", "");
  expectError("metadata.yaml");
  text("metadata.yaml", std::string(100000, '['));
  expectError("metadata.yaml");
  text("metadata.yaml", "graph_topology:\n  type: FusedCSCSamplingGraph\n");
  expectError("preprocessed");
}

TEST_F(DatasetReader, RefusesMissingKeys_WithTheirLine) {
  change("  - num: 5", "  - type: _N");
  expectError("metadata.yaml:4: the key 'num' is missing");
  change("    path: edges.csv\n", "");
  expectError("metadata.yaml:6: the key 'path' is missing");
  change("  edges:\n  - format: csv\n    path: edges.csv\n", "");
  expectError("the key 'edges' is missing");
  change("    - name: seeds\n      format: numpy\n      path: train.npy\n", "");
  expectError("this set has no 'seeds'");
}

TEST_F(DatasetReader, RefusesWrongValues) {
  change("num: 5", "num: -5");
  expectError("metadata.yaml:4: 'num' is '-5', not a count");
  change("num: 5", "num: [5]");
  expectError("metadata.yaml:4: 'num' is not a single value");
  change("format: csv", "format: parquet");
  expectError("edges.csv: format 'parquet' is not read");
  change("domain: node", "domain: cloud");
  expectError("metadata.yaml:9: domain 'cloud'");
  change("  - format: csv", "  - type: \"_N:_E:planet\"\n    format: csv");
  expectError("metadata.yaml:6: no node type 'planet'");
  change("  - format: csv", "  - type: follows\n    format: csv");
  expectError("not of the form source:relation:destination");
  change("nodes:\n  - num: 5", "nodes:\n  - num: 5\n  - num: 6");
  expectError("node type '_N' is listed twice");
}

TEST_F(DatasetReader, RefusesEndpointsOutOfRange) {
  text("edges.csv", "0,1\n1,5\n");
  expectError("edges.csv: the destination of edge 1 of _N:_E:_N is 5, but type '_N' has 5 nodes");
  text("edges.csv", "0,1\n-1,2\n");
  expectError("edges.csv:2: a node id is negative");
  text("edges.csv", "0,1\n1;2\n");
  expectError("edges.csv:2: '1;2' is not an edge");
  change("format: csv\n    path: edges.csv", "format: numpy\n    path: edges.npy");
  numbers<int8_t>("edges.npy", {0, -1, 4, 1, 2, 4}, {2, 3});
  expectError("edges.npy: the source of edge 1 of _N:_E:_N is -1");
  numbers<float>("edges.npy", {0, 1, 4, 1, 2, 4}, {2, 3});
  expectError("edges.npy holds float32");
  numbers<int64_t>("edges.npy", {0, 1, 4, 1, 2, 4}, {6});
  expectError("edges.npy has shape (6)");
}

TEST_F(DatasetReader, RefusesFeaturesThatDoNotFit) {
  numbers<float>("x.npy", {0, 1, 2, 3}, {4});
  expectError("x.npy: feature 'x' has 4 rows, but node type '_N' has 5");
  numbers<float>("x.npy", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
  std::string file = readFile(directory_ / "x.npy").value();
  text("x.npy", file.substr(0, file.size() - 3));
  expectError("x.npy is 3 bytes short");
  file.replace(file.find("False,"), 6, "True, ");
  text("x.npy", file);
  expectError("x.npy is in Fortran order");
  std::filesystem::remove(directory_ / "x.npy");
  expectError("x.npy");
}

TEST_F(DatasetReader, RefusesSeedsAndLabelsThatDoNotFit) {
  numbers<int32_t>("train.npy", {3, 5}, {2});
  expectError("train.npy: seed 1 is 5, but type '_N' has 5 nodes");
  numbers<int32_t>("train.npy", {3, -2}, {2});
  expectError("train.npy: seed 1 is -2");
  numbers<int32_t>("train.npy", {3, 2, 1}, {3});
  expectError("train_labels.npy has 2 labels for 3 seeds");
  numbers<int32_t>("train.npy", {3, 3}, {2});
  expectError("train_labels.npy: node 3 has got another label before");
  numbers<int32_t>("train.npy", {3, 3, 1, 2, 0, 4}, {2, 3});
  expectError("train.npy has shape (2, 3); seeds are nodes of one dimension, or edges of shape (n, 2)");
}

TEST_F(DatasetReader, SaysWhatADataSetIs_WhenThereIsNone) {
  const auto dataset = readDataset(directory_ / "nowhere");
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr("nowhere does not exist"));
}

TEST_F(DatasetReader, TakesPairsAsEdgesOfTheOnlyRelation_WithTheirLabels) {
  numbers<int32_t>("train.npy", {3, 0, 1, 1, 4, 2}, {3, 2});
  numbers<float>("train_labels.npy", {1, 0, 0.5F}, {3});
  const auto dataset = read();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE(dataset->splits.empty());
  ASSERT_EQ(dataset->edgeSplits.size(), 1u);
  const EdgeSplitSeeds& split = dataset->edgeSplits[0];
  EXPECT_EQ(split.name, "train");
  EXPECT_EQ(split.relation, 0);
  ASSERT_EQ(split.source.size(), 3u);
  EXPECT_EQ(split.source[0], 3u);
  EXPECT_EQ(split.destination[0], 0u);
  EXPECT_EQ(split.source[2], 4u);
  EXPECT_EQ(split.destination[2], 2u);
  ASSERT_TRUE(split.labelSpec.has_value());
  EXPECT_EQ(split.labelSpec->dtype, DType::kFloat32);
  EXPECT_EQ(reinterpret_cast<const float*>(split.labels.data)[2], 0.5F);
  // Labels of edges are no node feature.
  EXPECT_EQ(findFeature(dataset->schema.nodeTypes[0].features, "label"), nullptr);
}

TEST_F(DatasetReader, JoinsSetsOfTheSameEdges_InTheirOrder) {
  const std::string set = "  - type: \"_N:_E:_N\"\n    data:\n    - {name: node_pairs, format: numpy, path: ";
  change("- name: other\n  test_set:\n", "- name: other\n  test_set:\n" + set + "late.npy}\n" + set + "early.npy}\n");
  numbers<int64_t>("late.npy", {4, 3, 2, 1}, {2, 2});
  numbers<int64_t>("early.npy", {0, 1}, {1, 2});
  const auto dataset = read("other");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->edgeSplits.size(), 1u);
  EXPECT_EQ(dataset->splits.size(), 1u) << "the node seeds of the task are there too";
  const EdgeSplitSeeds& split = dataset->edgeSplits[0];
  ASSERT_EQ(split.source.size(), 3u);
  EXPECT_EQ(split.source[0], 4u);
  EXPECT_EQ(split.destination[1], 1u);
  EXPECT_EQ(split.destination[2], 1u);
  EXPECT_FALSE(split.labelSpec.has_value());
}

TEST_F(DatasetReader, RefusesSeedEdgesThatAreNone_NamingFileAndRow) {
  numbers<float>("train_labels.npy", {1, 0}, {2});
  numbers<int32_t>("train.npy", {3, 0, 5, 1}, {2, 2});
  expectError("train.npy: the source of seed 1 is 5, but type '_N' has 5 nodes");
  numbers<int32_t>("train.npy", {3, -2, 4, 1}, {2, 2});
  expectError("train.npy: the destination of seed 0 is -2, but type '_N' has 5 nodes");
  numbers<int32_t>("train.npy", {3, 0, 1, 1, 2, 2}, {3, 2});
  expectError("train_labels.npy has 2 labels for 3 seeds");
  numbers<float>("train.npy", {3, 0}, {1, 2});
  expectError("train.npy holds float32; node ids must be integers");
}

TEST_F(DatasetReader, RefusesSeedsThatAreNotWhatTheirTypeSays) {
  change("  - data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n",
         "  - type: \"_N:_E:_N\"\n    data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n");
  expectError("train.npy is of one dimension; seeds of '_N:_E:_N' are edges, of shape (n, 2)");
  change("  - data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n",
         "  - type: _N\n    data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n");
  numbers<int32_t>("train.npy", {3, 0, 1, 1}, {2, 2});
  expectError("train.npy holds pairs of nodes, so 'type' must be a relation (source:relation:destination), not the node "
              "type '_N'");
  change("  - data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n",
         "  - type: \"_N:nothing:_N\"\n    data:\n    - name: seeds\n      format: numpy\n      path: train.npy\n");
  expectError("no relation '_N:nothing:_N'; there are: _N:_E:_N");
}

}  // namespace
}  // namespace farhop::partition
