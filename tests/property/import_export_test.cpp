#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "importers/export.h"
#include "importers/import.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::importers {
namespace {

using partition::Dataset;
using partition::FeatureColumn;
using partition::FeatureSpec;

using Edge = std::tuple<uint64_t, uint64_t, std::string>;  // source, destination, its features' bytes

std::string rowOf(const FeatureSpec& spec, const FeatureColumn& column, uint64_t row) {
  return {reinterpret_cast<const char*>(column.data) + row * spec.rowBytes(), spec.rowBytes()};
}

// The edges with their features, in the order of the data set.
std::vector<Edge> edgesOf(const Dataset& dataset, size_t relation) {
  std::vector<Edge> edges;
  const auto& specs = dataset.schema.relations[relation].features;
  for (uint64_t e = 0; e < dataset.edges[relation].source.size(); ++e) {
    std::string features;
    for (size_t f = 0; f < specs.size(); ++f) features += specs[f].name + rowOf(specs[f], dataset.edgeFeatures[relation][f], e);
    edges.emplace_back(dataset.edges[relation].source[e], dataset.edges[relation].destination[e], std::move(features));
  }
  return edges;
}

void expectSame(const Dataset& found, const Dataset& expected) {
  EXPECT_EQ(found.name, expected.name);
  EXPECT_EQ(found.task, expected.task);
  EXPECT_EQ(found.numClasses, expected.numClasses);
  ASSERT_EQ(found.schema.nodeTypes.size(), expected.schema.nodeTypes.size());
  for (size_t t = 0; t < expected.schema.nodeTypes.size(); ++t) {
    const partition::NodeType& type = expected.schema.nodeTypes[t];
    EXPECT_EQ(found.schema.nodeTypes[t].name, type.name);
    EXPECT_EQ(found.schema.nodeTypes[t].count, type.count);
    ASSERT_EQ(found.schema.nodeTypes[t].features.size(), type.features.size());
    for (size_t f = 0; f < type.features.size(); ++f) {
      const FeatureSpec& spec = found.schema.nodeTypes[t].features[f];
      EXPECT_EQ(spec.name, type.features[f].name);
      EXPECT_EQ(spec.dtype, type.features[f].dtype);
      EXPECT_EQ(spec.rowShape, type.features[f].rowShape);
      EXPECT_EQ(std::memcmp(found.nodeFeatures[t][f].data, expected.nodeFeatures[t][f].data, type.count * spec.rowBytes()), 0);
    }
  }
  ASSERT_EQ(found.edges.size(), expected.edges.size());
  for (size_t r = 0; r < expected.edges.size(); ++r) {
    EXPECT_EQ(found.schema.relationText(static_cast<int>(r)), expected.schema.relationText(static_cast<int>(r)));
    EXPECT_EQ(edgesOf(found, r), edgesOf(expected, r));
  }
  ASSERT_EQ(found.splits.size(), expected.splits.size());
  for (const partition::SplitSeeds& split : expected.splits) {
    const auto same = std::find_if(found.splits.begin(), found.splits.end(), [&](const auto& s) {
      return s.name == split.name && s.nodeType == split.nodeType;
    });
    ASSERT_NE(same, found.splits.end()) << split.name;
    EXPECT_EQ(same->ids, split.ids);
  }
  ASSERT_EQ(found.edgeSplits.size(), expected.edgeSplits.size());
  for (const partition::EdgeSplitSeeds& split : expected.edgeSplits) {
    const auto same = std::find_if(found.edgeSplits.begin(), found.edgeSplits.end(), [&](const auto& s) {
      return s.name == split.name && s.relation == split.relation;
    });
    ASSERT_NE(same, found.edgeSplits.end()) << split.name;
    ASSERT_EQ(same->source.size(), split.source.size());
    ASSERT_EQ(same->labelSpec.has_value(), split.labelSpec.has_value());
    for (uint64_t i = 0; i < split.source.size(); ++i) {
      EXPECT_EQ(same->source[i], split.source[i]);
      EXPECT_EQ(same->destination[i], split.destination[i]);
      if (!split.labelSpec) continue;
      EXPECT_EQ(rowOf(*same->labelSpec, same->labels, i), rowOf(*split.labelSpec, split.labels, i));
    }
  }
}

testing::FixtureOptions optionsOf(int number) {
  testing::FixtureOptions options;
  options.seed = static_cast<uint64_t>(number) + 1;
  options.heterogeneous = number % 2 == 1;
  options.nodes = 20 + static_cast<uint64_t>(number) * 7;
  options.edges = static_cast<uint64_t>(number) * 60 + 1;
  options.featureDim = static_cast<uint64_t>(number % 4);
  options.edgeFeatures = number % 3 != 0;
  options.addReverse = number % 4 < 2;
  options.edgeTimes = number % 5 == 1;
  options.nodeTimes = number % 5 > 2;
  options.declaredWeights = options.edgeFeatures && number % 2 == 0;
  options.edgeSplits = number % 3 == 1;
  if (number % 4 == 2) options.cache.fraction = 0.5;
  return options;
}

TEST(ImportAndExport, GiveTheInputAgain_WithAllOptions) {
  for (int number = 0; number < 8; ++number) {
    SCOPED_TRACE(absl::StrCat("graph ", number));
    const testing::FixtureOptions options = optionsOf(number);
    const Dataset expected = testing::makeFixtureDataset(options);
    testing::TemporaryDirectory directory;

    testing::writeRawDataset(expected, directory / "raw");
    ImportOptions import;
    import.sources = {directory / "raw"};
    import.directory = directory / "imported";
    import.threads = 1 + number % 3;
    const auto imported = importDataset(import);
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto reread = partition::readDataset(directory / "imported");
    ASSERT_TRUE(reread.ok()) << reread.status();
    expectSame(*reread, expected);

    testing::writeFixtureStore(options, 1 + number % 4, directory / "store");
    const auto exported = exportStore({directory / "store", directory / "exported", false, {}});
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_EQ(exported->numPartitions, 1 + number % 4);
    const auto found = partition::readDataset(directory / "exported");
    ASSERT_TRUE(found.ok()) << found.status();
    expectSame(*found, expected);
  }
}

TEST(Export, LeavesNothing_WhenTheStoreIsDamaged) {
  testing::TemporaryDirectory directory;
  testing::writeFixtureStore({}, 2, directory / "store");
  const std::string victim = directory / "store/part-00001/edges/_N._E._N/edge_ids.npy";
  std::string content = readFile(victim).value();
  content.back() = 1;  // the last edge's id becomes huge
  ASSERT_TRUE(writeFileAtomically(victim, content).ok());
  const auto exported = exportStore({directory / "store", directory / "out", false, {}});
  EXPECT_THAT(std::string(exported.status().message()), ::testing::HasSubstr("partition 1, edges of _N:_E:_N has a row for id"));
  EXPECT_FALSE(pathExists(directory / "out"));
}

TEST(Export, ReplacesOnlyWhatItHasWritten) {
  testing::TemporaryDirectory directory;
  testing::writeFixtureStore({}, 2, directory / "store");
  testing::writeRawDataset(testing::makeFixtureDataset({}), directory / "mine");
  EXPECT_EQ(exportStore({directory / "store", directory / "mine", true, {}}).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(exportStore({directory / "store", directory / "out", false, {}}).ok());
  EXPECT_EQ(exportStore({directory / "store", directory / "out", false, {}}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(exportStore({directory / "store", directory / "out", true, {}}).ok());
}

}  // namespace
}  // namespace farhop::importers
