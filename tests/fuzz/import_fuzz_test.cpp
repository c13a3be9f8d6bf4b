// Files of other systems, cut, flipped and made up: errors, never crashes, and no memory beyond what the file accounts for.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/random.h"
#include "importers/dgl_file.h"
#include "importers/fused_graph.h"
#include "importers/npz.h"
#include "importers/pickle.h"
#include "importers/torch_file.h"
#include "tests/temporary_directory.h"

namespace farhop::importers {
namespace {

constexpr int kRounds = 400;

std::string bytesOf(uint64_t value, size_t size) { return {reinterpret_cast<const char*>(&value), size}; }

// A pickle of {"a": tensor of 2 x 2 floats, "b": (1, 2.5, [None, True])} as torch.save's protocol 2 has it.
std::string samplePickle() {
  const auto text = [](const std::string& word) { return "X" + bytesOf(word.size(), 4) + word; };
  std::string pickle = "\x80\x02}q" + std::string(1, '\0') + "(" + text("a");
  pickle += "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu");
  pickle += std::string("K\x04tQK\0K\x02K\x02\x86K\x02K\x01\x86\x89", 17) + "ccollections\nOrderedDict\n)RtR" + text("b");
  pickle += std::string("K\x01G@\x04\0\0\0\0\0\0](N\x88\x65\x87u.", 19);
  return pickle;
}

std::string zipOf(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string zip, directory;
  for (const auto& [name, content] : entries) {
    const std::string sizes = bytesOf(0, 4) + bytesOf(content.size(), 4) + bytesOf(content.size(), 4);
    directory += "PK\x01\x02" + bytesOf(0, 6) + bytesOf(0, 6) + sizes + bytesOf(name.size(), 2) + bytesOf(0, 8) + bytesOf(0, 4) +
                 bytesOf(zip.size(), 4) + name;
    zip += "PK\x03\x04" + bytesOf(0, 6) + bytesOf(0, 4) + sizes + bytesOf(name.size(), 2) + bytesOf(0, 2) + name + content;
  }
  return zip + directory + "PK\x05\x06" + bytesOf(0, 4) + bytesOf(entries.size(), 2) + bytesOf(entries.size(), 2) +
         bytesOf(directory.size(), 4) + bytesOf(zip.size(), 4) + bytesOf(0, 2);
}

std::string mutated(std::string content, KeyedRandom& random) {
  for (uint64_t changes = 1 + random.below(4); changes > 0 && !content.empty(); --changes) {
    const size_t at = random.below(content.size());
    switch (random.below(5)) {
      case 0:
        content.resize(at);
        break;
      case 1:
        content.insert(at, content.substr(random.below(content.size()), random.below(40)));
        break;
      case 2:
        content.erase(at, 1 + random.below(8));
        break;
      case 3:
        for (size_t i = at; i < std::min(content.size(), at + 8); ++i) content[i] = static_cast<char>(0xFF);
        break;
      default:
        content[at] = static_cast<char>(random.below(256));
        break;
    }
  }
  return content;
}

// Reads every element that a value describes.
uint64_t touch(const ArrayView& view) {
  uint64_t sum = 0;
  std::vector<std::byte> row(view.rowElements() * dtypeBytes(view.dtype));
  for (uint64_t i = 0; i < view.rows(); ++i) {
    view.copyRow(i, row.data());
    for (const std::byte b : row) sum += static_cast<uint64_t>(b);
  }
  return sum;
}

absl::StatusOr<PickleDocument> read(const std::string& pickle, const std::string& memory) {
  PickleOptions options;
  options.origin = "fuzz";
  options.storage = [&](const StorageRequest&) -> absl::StatusOr<StorageMemory> {
    return StorageMemory{std::as_bytes(std::span(memory)), nullptr};
  };
  return readPickle(std::as_bytes(std::span(pickle)), options);
}

TEST(PickleFuzz, ReadsTheSample) {
  const std::string memory(16, '\1'), pickle = samplePickle();
  const auto document = read(pickle, memory);
  ASSERT_TRUE(document.ok()) << document.status();
  const PickleValue* tensor = document->root().find("a");
  ASSERT_NE(tensor, nullptr);
  ASSERT_TRUE(tensor->is(PickleValue::Kind::kTensor));
  EXPECT_EQ(tensor->tensor->shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(touch(*tensor->tensor), 16u);
  EXPECT_EQ(document->root().find("b")->items[1]->number, 2.5);
}

TEST(PickleFuzz, SurvivesDamage) {
  KeyedRandom random(combineKey(17, 1));
  const std::string memory(16, '\1'), sample = samplePickle();
  int sound = 0;
  for (int round = 0; round < 10 * kRounds; ++round) {
    const std::string pickle = mutated(sample, random);
    const auto document = read(pickle, memory);
    if (!document.ok()) continue;
    ++sound;
    const PickleValue* tensor = document->root().find("a");
    if (tensor != nullptr && tensor->tensor != nullptr) touch(*tensor->tensor);
  }
  EXPECT_GT(sound, 0);
}

TEST(PickleFuzz, SurvivesNoise) {
  KeyedRandom random(combineKey(17, 2));
  const std::string codes = "(.012FGIJKLMNQRTUXabcdeghjlpqrstu)]}\x80\x81\x85\x86\x87\x88\x8A\x8C\x8E\x8F\x93\x94\x95";
  for (int round = 0; round < 10 * kRounds; ++round) {
    std::string pickle;
    for (uint64_t i = random.below(200); i > 0; --i) {
      pickle += random.below(3) == 0 ? static_cast<char>(random.below(256)) : codes[random.below(codes.size())];
    }
    (void)read(pickle, "");
  }
}

TEST(PickleFuzz, BoundsWhatASmallPickleCanAskFor) {
  // A list that is put into records over and over, and a string that claims to be long.
  std::string pickle = "\x80\x02]q" + std::string(1, '\0') + "(";
  for (int i = 0; i < 2000; ++i) pickle += "N";
  pickle += "e0";
  for (int i = 0; i < 100000; ++i) pickle += std::string("ctorch\nSize\nh\0\x85R0", 17);
  pickle += "N.";
  EXPECT_FALSE(read(pickle, "").ok());
  EXPECT_FALSE(read("\x8E" + bytesOf(uint64_t{1} << 60, 8) + "x.", "").ok());
}

TEST(TorchFileFuzz, SurvivesDamage) {
  testing::TemporaryDirectory directory;
  const std::string path = directory / "x.pt";
  const std::string sample = zipOf({{"x/data.pkl", samplePickle()}, {"x/data/0", std::string(16, '\2')}, {"x/version", "3\n"}});
  std::ofstream(path, std::ios::binary) << sample;
  const auto whole = openTorchFile(path);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(touch(*whole->root().find("a")->tensor), 32u);
  KeyedRandom random(combineKey(17, 3));
  for (int round = 0; round < kRounds; ++round) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << mutated(sample, random);
    const auto document = openTorchFile(path);
    (void)openPickles(path);
    (void)openFusedGraph(path);
    if (!document.ok()) continue;
    const PickleValue* tensor = document->root().find("a");
    if (tensor != nullptr && tensor->tensor != nullptr) touch(*tensor->tensor);
  }
}

TEST(NpzFuzz, SurvivesDamage) {
  testing::TemporaryDirectory directory;
  const std::string path = directory / "x.npz";
  const uint64_t shape[] = {4, 2};
  const std::string sample = zipOf({{"x.npy", formatNpyHeader(DType::kInt32, shape) + std::string(32, '\3')}});
  KeyedRandom random(combineKey(17, 4));
  for (int round = 0; round < kRounds; ++round) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << (round == 0 ? sample : mutated(sample, random));
    const auto file = NpzFile::open(path);
    if (!file.ok()) continue;
    const auto array = file->array("x", directory.path());
    if (array.ok()) touch(*array);
    ASSERT_TRUE(round > 0 || array.ok()) << array.status();
  }
}

TEST(DglFileFuzz, SurvivesDamage) {
  const auto array = [](size_t count) {
    return bytesOf(0xDD5E40F096B4A13F, 8) + bytesOf(0, 8) + bytesOf(1, 8) + bytesOf(1, 4) + bytesOf(0, 1) + bytesOf(64, 1) +
           bytesOf(1, 2) + bytesOf(count, 8) + bytesOf(count * 8, 8) + std::string(count * 8, '\0');
  };
  const auto named = [&](size_t count) { return bytesOf(1, 8) + bytesOf(3, 8) + "_ID" + array(count); };
  const std::string tensors = bytesOf(0xDD5A9FBE3FA2443F, 8) + bytesOf(1, 8) + named(5);
  const auto matrix = [&](uint64_t magic, size_t first, size_t second, size_t tail) {
    return bytesOf(magic, 8) + bytesOf(0, 8) + bytesOf(0, 8) + array(first) + array(second) + array(0) + std::string(tail, '\0');
  };
  std::string graph = bytesOf(0xDD2E4FF046B4A13F, 8) + bytesOf(2, 8) + bytesOf(2, 8) + bytesOf(1, 8);
  graph.resize(4096);
  graph += bytesOf(4112, 8) + bytesOf(0, 8) + bytesOf(0xDD589FBE35224ABF, 8) + bytesOf(0xDD3C5FFE20046ABF, 8) +
           matrix(0xDD6CD31205DFF127, 2, 1, 1) + bytesOf(1, 8) + bytesOf(0xDD2E60F0F6B4A127, 8) + bytesOf(uint64_t{5} | uint64_t{1} << 32, 8) +
           bytesOf(7, 8) + matrix(0xDD61FFD305DFF127, 6, 6, 2) + matrix(0xDD6CD31205DFF127, 3, 6, 1) + bytesOf(1, 8) + bytesOf(2, 8) +
           bytesOf(1, 8) + named(2) + bytesOf(1, 8) + named(6);
  testing::TemporaryDirectory directory;
  const std::string path = directory / "x.dgl";
  const auto write = [&](const std::string& content) { std::ofstream(path, std::ios::binary | std::ios::trunc) << content; };
  write(tensors);
  EXPECT_EQ(openDglTensors(path)->at("_ID").rows(), 5u);
  write(graph);
  const auto whole = openDglGraph(path);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->numNodes, 2u);
  KeyedRandom random(combineKey(17, 5));
  for (int round = 0; round < kRounds; ++round) {
    write(mutated(tensors, random));
    const auto found = openDglTensors(path);
    for (const auto& [name, view] : found.ok() ? *found : TensorMap()) touch(view);
    // Most of the head is unused: damage goes behind it.
    write(graph.substr(0, 4096) + mutated(graph.substr(4096), random));
    const auto opened = openDglGraph(path);
    if (opened.ok()) (void)opened->eachEdge([](uint64_t, uint64_t, uint64_t) { return absl::OkStatus(); });
  }
}

}  // namespace
}  // namespace farhop::importers
