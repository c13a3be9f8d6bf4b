// graph.json comes from outside: no text may crash its parser, and what it accepts must be consistent.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "partition/layout.h"
#include "partition/manifest.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

constexpr uint64_t kSeed = 20240607;

std::string writtenManifest(bool heterogeneous) {
  testing::TemporaryDirectory directory;
  testing::FixtureOptions options;
  options.heterogeneous = heterogeneous;
  options.addReverse = true;
  options.edgeTimes = options.nodeTimes = options.declaredWeights = options.edgeSplits = true;
  options.cache.fraction = 0.5;
  options.nodes = 10;
  options.edges = 12;
  return readFile(testing::writeFixtureStore(options, 2, directory / "store") + "/" + kManifestFile).value();
}

const std::string& validManifest() {
  static const std::string text = writtenManifest(true);
  return text;
}

// Parses with the right checksum, so that the mutation gets past it.
void parseSealed(const std::string& text, int* accepted) {
  auto sealed = sealManifest(text);
  auto manifest = parseManifest(sealed.ok() ? *sealed : text);
  if (!manifest.ok()) return;
  ++*accepted;
  EXPECT_TRUE(checkManifest(*manifest).ok());
  EXPECT_TRUE(parseManifest(formatManifest(*manifest)).ok());
}

TEST(ManifestFuzz, SurvivesChangedBytes) {
  const std::string valid = validManifest();
  KeyedRandom random(kSeed);
  int accepted = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = valid;
    for (uint64_t change = 0; change <= random.below(3); ++change) {
      const size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text[at] = "0123456789-.\"{}[],:eE"[random.below(21)];
          break;
        case 2:
          text.erase(at, random.below(40));
          break;
        default:
          text.insert(at, text.substr(random.below(text.size()), random.below(60)));
          break;
      }
    }
    parseSealed(text, &accepted);
  }
  // Names and blanks may change; nearly nothing else may.
  EXPECT_LT(accepted, 1000);
}

TEST(ManifestFuzz, SurvivesValuesOfOtherTypesInEveryPlace) {
  const std::string valid = writtenManifest(false);
  int accepted = 0, rounds = 0;
  for (size_t at = valid.find(": "); at != std::string::npos; at = valid.find(": ", at + 1)) {
    size_t end = at + 2;
    const bool isText = valid[end] == '"';
    if (isText) end = valid.find('"', end + 1) + 1;
    while (!isText && end < valid.size() && std::string(",\n").find(valid[end]) == std::string::npos) ++end;
    for (const char* value :
         {"null", "true", "-1", "1e300", "18446744073709551615", "18446744073709551616", "0.5", "\"text\"",
          "[]", "{}", "[[[[]]]]", "9007199254740993", "[0, 18446744073709551615, 3]"}) {
      // Lists keep their opening bracket: replacing it tears the document, which is a case too.
      parseSealed(valid.substr(0, at + 2) + value + valid.substr(end), &accepted);
      ++rounds;
    }
  }
  EXPECT_GT(rounds, 500);
  EXPECT_LT(accepted, rounds / 4);
}

TEST(ManifestFuzz, SurvivesDeepNestingAndEmptyDocuments) {
  int accepted = 0;
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"), std::string(1 << 20, '['),
        std::string("{\"checksum\": \""), std::string("{\"format\": \"farhop-graph-store\"}"),
        std::string(
            "{\"format\": \"farhop-graph-store\", \"version\": 1, \"checksum\": \"0000000000000000\"}")}) {
    parseSealed(text, &accepted);
  }
  EXPECT_EQ(accepted, 0);
}

TEST(ManifestFuzz, RefusesCountsThatWrapRound) {
  const Manifest valid = parseManifest(validManifest()).value();
  auto refused = [](const Manifest& manifest) { return !parseManifest(formatManifest(manifest)).ok(); };
  Manifest m = valid;
  m.partitionEdges[0] = {UINT64_MAX, m.schema.relations[0].count + 1};
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.nodeTypes[0].features[0].rowShape = {uint64_t{1} << 40, uint64_t{1} << 40};
  EXPECT_TRUE(refused(m));
  m = valid;
  m.offsets[0] = {0, 11, 10};
  EXPECT_TRUE(refused(m));
  m = valid;
  m.files.erase(m.files.begin());
  m.files["../../etc/passwd"] = {1, 1};
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.relations[3].reverseOf = 1;
  EXPECT_TRUE(refused(m));
}

TEST(ManifestFuzz, RefusesTimesWeightsAndSeedEdgesThatDoNotFit) {
  const Manifest valid = parseManifest(validManifest()).value();
  auto refused = [](const Manifest& manifest) { return !parseManifest(formatManifest(manifest)).ok(); };
  ASSERT_FALSE(refused(valid));
  ASSERT_EQ(valid.edgeSplits.size(), 3u);
  Manifest m = valid;
  m.schema.relations[0].timeFeature = "w";  // float32
  m.schema.relations[3].timeFeature = "w";
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.relations[3].timeFeature = "";  // not as its forward relation
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.relations[3].weightFeature = "";
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.nodeTypes[0].timeFeature = "x";
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.nodeTypes[1].timeFeature = "no such";
  EXPECT_TRUE(refused(m));
  m = valid;
  m.schema.relations[1].weightFeature = m.schema.relations[4].weightFeature = "no such";
  EXPECT_TRUE(refused(m));
  m = valid;
  m.edgeSplits[0].relation = 3;  // a reverse one
  EXPECT_TRUE(refused(m));
  m = valid;
  m.edgeSplits[1] = m.edgeSplits[0];
  EXPECT_TRUE(refused(m));
  m = valid;
  m.edgeSplits[1].labels->rowShape = {uint64_t{1} << 40};
  EXPECT_TRUE(refused(m));
  m = valid;
  m.edgeSplits[1].labels.reset();  // files of labels that nothing calls for
  EXPECT_TRUE(refused(m));
  m = valid;
  m.edgeSplits[2].partitionCounts = {UINT64_MAX, m.edgeSplits[2].count + 1};
  EXPECT_TRUE(refused(m));
}

}  // namespace
}  // namespace farhop::partition
