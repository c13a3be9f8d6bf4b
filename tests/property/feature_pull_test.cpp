// What pulls bring: features of every dtype, parts of rows, numbers widened as they land, and what was started early.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "base/random.h"
#include "partition/store_writer.h"
#include "sampler/pending_pull.h"
#include "sampler/prefetcher.h"
#include "sampler/row_format.h"
#include "tests/fixture_graphs.h"
#include "tests/sampling_cluster.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using sampler::RowCopy;
using sampler::RowFormat;
using sampler::RowPart;
using std::chrono::milliseconds;

constexpr DType kDTypes[] = {DType::kInt8,   DType::kUInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64,
                             DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kBool};
constexpr uint64_t kNodes = 60;
constexpr uint64_t kColumns = 5;

// The value of a stored number, exact (all integers here are below 2^53, or compared as such).
long double valueOf(DType dtype, const std::byte* at) {
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<long double>(value);
  };
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: return as(uint8_t{});
    case DType::kInt8: return as(int8_t{});
    case DType::kInt16: return as(int16_t{});
    case DType::kUInt16: return as(uint16_t{});
    case DType::kInt32: return as(int32_t{});
    case DType::kUInt32: return as(uint32_t{});
    case DType::kInt64: return as(int64_t{});
    case DType::kUInt64: return as(uint64_t{});
    case DType::kFloat32: return as(float{});
    case DType::kFloat64: return as(double{});
    case DType::kFloat16:
    case DType::kBFloat16: break;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  const int mantissaBits = dtype == DType::kFloat16 ? 10 : 7, exponentBits = 15 - mantissaBits;
  const int exponent = (bits >> mantissaBits) & ((1 << exponentBits) - 1), bias = (1 << (exponentBits - 1)) - 1;
  const int mantissa = bits & ((1 << mantissaBits) - 1);
  const long double sign = (bits >> 15) != 0 ? -1.0L : 1.0L;
  if (exponent == (1 << exponentBits) - 1) return mantissa == 0 ? sign * HUGE_VALL : std::nanl("");
  if (exponent == 0) return sign * std::ldexp(static_cast<long double>(mantissa), 1 - bias - mantissaBits);
  return sign * std::ldexp(static_cast<long double>(mantissa + (1 << mantissaBits)), exponent - bias - mantissaBits);
}

void expectSameValue(DType from, const std::byte* stored, DType to, const std::byte* landed) {
  const long double expected = valueOf(from, stored), found = valueOf(to, landed);
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(found));
    return;
  }
  ASSERT_EQ(expected, found) << dtypeName(from) << " as " << dtypeName(to);
  ASSERT_EQ(std::signbit(expected), std::signbit(found)) << dtypeName(from) << " as " << dtypeName(to);
}

TEST(Widening, KeepsEveryValueOfEveryPair) {
  std::mt19937_64 random(20'261'130);
  int pairs = 0;
  for (DType from : kDTypes) {
    for (DType to : kDTypes) {
      if (from == to || !sampler::canWiden(from, to)) continue;
      ++pairs;
      const size_t bytes = dtypeBytes(from);
      // All numbers of 8 and 16 bits, and as many of the others.
      std::vector<std::byte> stored(65'536 * bytes);
      for (uint64_t i = 0; i < 65'536; ++i) {
        uint64_t bits = bytes <= 2 ? i : random();
        if (from == DType::kBool) bits &= 1;
        std::memcpy(stored.data() + i * bytes, &bits, bytes);
      }
      const partition::FeatureSpec spec{"x", from, {65'536}};
      std::vector<std::byte> landed(65'536 * dtypeBytes(to));
      const auto copy = RowCopy::make(spec, {{}, to});
      ASSERT_TRUE(copy.ok()) << copy.status();
      ASSERT_EQ(copy->destinationBytes(), landed.size());
      copy->copy(stored.data(), landed.data(), 1);
      for (uint64_t i = 0; i < 65'536; ++i) {
        ASSERT_NO_FATAL_FAILURE(expectSameValue(from, stored.data() + i * bytes, to, landed.data() + i * dtypeBytes(to)));
      }
    }
  }
  // To float32 and float64 from the two 16-bit floats, 3 integers of 8 bits and int16 (12), float32 and int32 to float64
  // (2), and among integers: 3 of 8 bits to 3, int16 to 2, int32 to 1 (12).
  EXPECT_EQ(pairs, 26);
}

TEST(Widening, IsRefused_WhereValuesWouldBeLost) {
  for (const auto& [from, to] : {std::pair{DType::kFloat32, DType::kFloat16}, {DType::kInt64, DType::kFloat64},
                                 {DType::kInt32, DType::kFloat32}, {DType::kFloat16, DType::kInt32},
                                 {DType::kInt8, DType::kUInt8}, {DType::kFloat64, DType::kFloat32}}) {
    EXPECT_FALSE(sampler::canWiden(from, to)) << dtypeName(from) << " as " << dtypeName(to);
    const auto copy = RowCopy::make({"x", from, {2}}, {{}, to});
    EXPECT_EQ(copy.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(copy.status().message().find("'x'"), absl::string_view::npos) << copy.status();
  }
}

TEST(RowFormats, AreRefused_WhenTheyDoNotFitTheRow) {
  const partition::FeatureSpec spec{"x", DType::kFloat32, {4}};
  for (const RowPart& part : {RowPart{0, 20}, RowPart{16, 4}, RowPart{2, 4}, RowPart{4, 6}, RowPart{~uint64_t{0} - 3, 8}}) {
    EXPECT_FALSE(RowCopy::make(spec, {part, {}}).ok()) << part.firstByte << " " << part.bytes;
  }
  EXPECT_TRUE(RowCopy::make(spec, {RowPart{16, 0}, {}}).ok());
}

// Random bits as numbers of every dtype.
class FeaturePulls : public ::testing::Test {
 protected:
  void SetUp() override {
    partition::Dataset dataset = makeFixtureDataset({});
    for (DType dtype : kDTypes) add(dtype, std::string(dtypeName(dtype)), {kColumns}, &dataset);
    add(DType::kInt16, "grid", {3, 4}, &dataset);
    add(DType::kUInt8, "one", {}, &dataset);
    partition::StoreWriterOptions writer;
    writer.directory = directory_ / "store";
    const auto written = partition::writeStore(
        dataset, *partition::assignPartitions(dataset, {5, partition::PartitionMethod::kRandom, 0, true}), writer);
    ASSERT_TRUE(written.ok()) << written;
  }

  void add(DType dtype, const std::string& name, std::vector<uint64_t> shape, partition::Dataset* dataset) {
    const partition::FeatureSpec spec{name, dtype, shape};
    std::vector<std::byte>& rows = stored_[name];
    rows.resize(kNodes * spec.rowBytes());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = std::byte(mix64(combineKey(hashName(name), i)) & (dtype == DType::kBool ? 1 : 255));
    }
    dataset->schema.nodeTypes[0].features.push_back(spec);
    dataset->nodeFeatures[0].push_back({rows.data(), kNodes, nullptr, "test"});
  }

  std::unique_ptr<SamplingCluster> cluster(int machines, size_t chunkBytes) {
    return std::make_unique<SamplingCluster>(directory_ / "store", machines, rpc::TransportKind::kInProcess, chunkBytes);
  }

  struct Wanted {
    std::string name;
    RowFormat format;
  };
  // Pulls from machine 0, all features in one pull; one array each.
  absl::Status pull(SamplingCluster& cluster, const std::vector<uint64_t>& gids, const std::vector<Wanted>& wanted,
                    std::vector<std::vector<std::byte>>* landed) {
    const sampler::PartitionedGraph& graph = *cluster.machine(0).graph;
    sampler::PullRequest request;
    request.gids = gids;
    request.deadline = Deadline::after(milliseconds(20'000));
    for (const Wanted& feature : wanted) {
      const uint32_t index = *sampler::featureIndex(graph, 0, feature.name);
      const auto copy = RowCopy::make(sampler::featureSpec(graph, 0, index), feature.format);
      if (!copy.ok()) return copy.status();
      landed->emplace_back(gids.size() * copy->destinationBytes(), std::byte(0xEE));
      request.targets.push_back({index, landed->back().data(), feature.format});
    }
    std::promise<absl::Status> done;
    cluster.machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  const std::byte* storedRow(const SamplingCluster& cluster, const std::string& name, uint64_t gid) const {
    const std::vector<std::byte>& rows = stored_.at(name);
    return rows.data() + cluster.originalId(0, gid) * (rows.size() / kNodes);
  }

  TemporaryDirectory directory_;
  std::map<std::string, std::vector<std::byte>> stored_;
};

TEST_F(FeaturePulls, BringEveryDTypeUnchanged_OwnAndRemote) {
  std::vector<uint64_t> gids(kNodes);
  std::iota(gids.begin(), gids.end(), 0);
  for (const auto& [machines, chunkBytes] : {std::pair{1, size_t{100}}, {3, size_t{1}}, {5, size_t{1} << 20}}) {
    const auto machinesOfJob = cluster(machines, chunkBytes);
    std::vector<Wanted> wanted;
    for (const auto& [name, rows] : stored_) wanted.push_back({name, {}});
    std::vector<std::vector<std::byte>> landed;
    const absl::Status status = pull(*machinesOfJob, gids, wanted, &landed);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t f = 0; f < wanted.size(); ++f) {
      const size_t rowBytes = stored_[wanted[f].name].size() / kNodes;
      for (size_t i = 0; i < gids.size(); ++i) {
        ASSERT_EQ(std::memcmp(landed[f].data() + i * rowBytes, storedRow(*machinesOfJob, wanted[f].name, gids[i]), rowBytes), 0)
            << wanted[f].name << " of node " << gids[i] << " on " << machines << " machines";
      }
    }
  }
}

TEST_F(FeaturePulls, BringPartsOfRows_AndWiderNumbers_AsTheWholeRowHasThem) {
  std::mt19937 random(7);
  for (const auto& [machines, chunkBytes] : {std::pair{1, size_t{100}}, {3, size_t{1}}, {2, size_t{100}}, {5, size_t{1} << 20}}) {
    const auto machinesOfJob = cluster(machines, chunkBytes);
    for (int round = 0; round < 30; ++round) {
      std::vector<uint64_t> gids(random() % 40);
      for (uint64_t& gid : gids) gid = random() % kNodes;
      std::vector<Wanted> wanted;
      std::vector<DType> from;
      for (uint32_t f = 0, count = 1 + random() % 4; f < count; ++f) {
        const DType dtype = kDTypes[random() % std::size(kDTypes)];
        const uint64_t begin = random() % (kColumns + 1), end = begin + random() % (kColumns + 1 - begin);
        RowFormat format;
        if (random() % 4 != 0) format.part = RowPart{begin * dtypeBytes(dtype), (end - begin) * dtypeBytes(dtype)};
        const DType to = kDTypes[random() % std::size(kDTypes)];
        if (sampler::canWiden(dtype, to)) format.as = to;
        wanted.push_back({std::string(dtypeName(dtype)), format});
        from.push_back(dtype);
      }
      std::vector<std::vector<std::byte>> landed;
      const absl::Status status = pull(*machinesOfJob, gids, wanted, &landed);
      ASSERT_TRUE(status.ok()) << status;
      for (size_t f = 0; f < wanted.size(); ++f) {
        const DType to = wanted[f].format.as.value_or(from[f]);
        const RowPart part = wanted[f].format.part.value_or(RowPart{0, kColumns * dtypeBytes(from[f])});
        const size_t columns = part.bytes / dtypeBytes(from[f]);
        for (size_t i = 0; i < gids.size() * columns; ++i) {
          const std::byte* const row = storedRow(*machinesOfJob, wanted[f].name, gids[i / columns]) + part.firstByte;
          ASSERT_NO_FATAL_FAILURE(expectSameValue(from[f], row + (i % columns) * dtypeBytes(from[f]), to,
                                                  landed[f].data() + i * dtypeBytes(to)));
        }
      }
    }
  }
}

TEST_F(FeaturePulls, MoveOnlyTheBytesOfTheirColumns) {
  const auto machines = cluster(3, size_t{1} << 20);
  std::vector<uint64_t> gids(kNodes);
  std::iota(gids.begin(), gids.end(), 0);
  const auto moved = [&](const RowFormat& format, double* sent) {
    double read = 0, before = 0;
    for (int m = 0; m < 3; ++m) before += machines->machine(m).metrics->featureBytesRead.value();
    const double sentBefore = machines->machine(0).metrics->featureBytes.value();
    std::vector<std::vector<std::byte>> landed;
    EXPECT_TRUE(pull(*machines, gids, {{"float64", format}}, &landed).ok());
    for (int m = 0; m < 3; ++m) read += machines->machine(m).metrics->featureBytesRead.value();
    *sent = machines->machine(0).metrics->featureBytes.value() - sentBefore;
    return read - before;
  };
  double whole, part, remote = 0;
  for (int k = 0; k < 5; ++k) {
    if (!machines->machine(0).graph->isOwn(k)) remote += static_cast<double>(machines->store().book().count(0, k));
  }
  EXPECT_EQ(moved({}, &whole), kNodes * kColumns * 8);
  EXPECT_EQ(moved({RowPart{16, 8}, {}}, &part), kNodes * 8);
  EXPECT_EQ(whole - part, remote * (kColumns - 1) * 8 - 2 * sizeof(RowPart));
  double read = 0;
  for (int m = 0; m < 3; ++m) read -= machines->machine(m).metrics->featureBytesRead.value();
  std::vector<std::vector<std::byte>> landed;
  ASSERT_TRUE(pull(*machines, gids, {{"float16", {{}, DType::kFloat32}}}, &landed).ok());
  for (int m = 0; m < 3; ++m) read += machines->machine(m).metrics->featureBytesRead.value();
  EXPECT_EQ(read, kNodes * kColumns * 2);  // it travels narrow
}

TEST_F(FeaturePulls, RefuseFormatsBeforeAnythingIsSent) {
  const auto machines = cluster(2, 100);
  std::vector<uint64_t> gids = {0, 59};
  std::vector<std::byte> room(1000);
  sampler::PullRequest request;
  request.gids = gids;
  request.targets = {{*sampler::featureIndex(*machines->machine(0).graph, 0, "float32"), room.data(), {RowPart{16, 8}, {}}}};
  request.deadline = Deadline::after(milliseconds(20'000));
  std::promise<absl::Status> done;
  machines->machine(0).puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(machines->machine(0).metrics->featureBytes.value(), 0);
}

// Holds replies back until told to let them go. Rows are fetched by a transport of the agent's.
class HeldTransport : public sampler::RowTransport {
 public:
  explicit HeldTransport(rpc::Agent* agent) : real_(sampler::agentRowTransport(agent)) {}

  void fetch(sampler::RowChunk chunk, Done done) override {
    real_->fetch(std::move(chunk), [this, done = std::move(done)](absl::StatusOr<sampler::FetchedRows> rows) {
      auto arrived = std::make_shared<absl::StatusOr<sampler::FetchedRows>>(std::move(rows));
      std::function<void()> deliver = [done, arrived] { done(std::move(*arrived)); };
      {
        std::lock_guard lock(mutex_);
        ++fetched_;
        if (!open_) {
          held_.push_back(std::move(deliver));
          return;
        }
      }
      deliver();
    });
  }
  int fetched() const {
    std::lock_guard lock(mutex_);
    return fetched_;
  }
  // Lets go of what is held, and of all to come.
  void open() {
    std::vector<std::function<void()>> held;
    {
      std::lock_guard lock(mutex_);
      open_ = true;
      held.swap(held_);
    }
    for (const auto& deliver : held) deliver();
  }

 private:
  const std::unique_ptr<sampler::RowTransport> real_;
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> held_;  // guarded by mutex_, as are the rest
  bool open_ = false;
  int fetched_ = 0;
};

template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

// Machine 0 of three, whose replies are held back.
class HeldPulls : public FeaturePulls {
 protected:
  void SetUp() override {
    FeaturePulls::SetUp();
    machines_ = cluster(3, 100);
    TestMachine& self = machines_->machine(0);
    auto transport = std::make_unique<HeldTransport>(self.agent.get());
    transport_ = transport.get();
    self.puller = std::make_unique<sampler::FeaturePuller>(self.graph, std::move(transport), self.metrics, 20);
  }
  sampler::FeaturePuller& puller() { return *machines_->machine(0).puller; }

  // A pull of "float32" of all nodes; its memory is held by the pull alone.
  std::shared_ptr<sampler::PendingPull> start(std::weak_ptr<void>* memory) {
    auto rows = std::make_shared<std::vector<std::byte>>(kNodes * kColumns * 4);
    *memory = rows;
    std::vector<sampler::PullMemory> memories = {{rows->data(), rows}};
    rows.reset();
    auto pending = std::make_shared<sampler::PendingPull>(std::move(memories));
    std::vector<uint64_t> gids(kNodes);
    std::iota(gids.begin(), gids.end(), 0);
    sampler::PullRequest request;
    request.gids = gids;
    request.targets = {{*sampler::featureIndex(*machines_->machine(0).graph, 0, "float32"), pending->memory()[0].data}};
    request.keepAlive = pending;
    request.cancelled = pending->cancelled();
    request.deadline = Deadline::after(milliseconds(20'000));
    puller().pull(std::move(request), [pending](absl::Status status) { pending->finish(std::move(status)); });
    return pending;
  }

  std::unique_ptr<SamplingCluster> machines_;
  HeldTransport* transport_ = nullptr;
};

TEST_F(HeldPulls, AskForNothingMore_WhenNobodyWantsThem_AndKeepTheirMemoryUntilRepliesHaveLanded) {
  std::weak_ptr<void> memory;
  {
    auto hold = std::make_unique<sampler::PullHold>(start(&memory));
    ASSERT_TRUE(eventually([&] { return transport_->fetched() == 4; }));  // two chunks of two machines
    EXPECT_FALSE(hold->pull().done());
  }
  EXPECT_FALSE(memory.expired());
  transport_->open();
  EXPECT_TRUE(eventually([&] { return memory.expired(); }));
  EXPECT_EQ(transport_->fetched(), 4);
}

TEST_F(HeldPulls, EndWithAllRows_WhenSomebodyStillWantsThem) {
  std::weak_ptr<void> memory;
  auto first = std::make_shared<sampler::PullHold>(start(&memory));
  const auto second = first;
  first.reset();
  transport_->open();
  ASSERT_TRUE(second->pull().waitFor(milliseconds(20'000)));
  EXPECT_TRUE(second->pull().status().ok()) << second->pull().status();
  for (uint64_t gid = 0; gid < kNodes; ++gid) {
    ASSERT_EQ(std::memcmp(second->pull().memory()[0].data + gid * kColumns * 4, storedRow(*machines_, "float32", gid), kColumns * 4), 0);
  }
}

// Batches of given nodes, in place of sampled ones.
sampler::SampledBatch batchOf(uint64_t step, std::vector<uint64_t> nodes) {
  sampler::SampledBatch batch;
  batch.epoch = 3;
  batch.step = step;
  batch.seeds = {nodes.front(), nodes.back(), nodes.front()};
  batch.nodes.resize(1);
  batch.nodes[0].append(nodes.data(), nodes.size());
  return batch;
}

class Prefetching : public HeldPulls {
 protected:
  static constexpr size_t kBatchBytes = 20 * (kColumns * 4 + 1) + 3 * kColumns * 4;

  std::unique_ptr<sampler::Prefetcher> make(size_t maxBytes) {
    sampler::PrefetchOptions options;
    const sampler::PartitionedGraph& graph = *machines_->machine(0).graph;
    const uint32_t wide = *sampler::featureIndex(graph, 0, "float32");
    options.features = {{0, wide, false}, {0, *sampler::featureIndex(graph, 0, "one"), false}, {0, wide, true}};
    options.maxBytes = maxBytes;
    options.allocate = [this](size_t index, size_t rows) {
      const size_t bytes = rows * (index == 1 ? 1 : kColumns * 4);
      live_ += bytes;
      peak_ = std::max<size_t>(peak_, live_);
      auto memory = std::shared_ptr<std::vector<std::byte>>(new std::vector<std::byte>(bytes), [this, bytes](auto* freed) {
        delete freed;
        live_ -= bytes;
      });
      return absl::StatusOr<sampler::PullMemory>(sampler::PullMemory{memory->data(), memory});
    };
    return std::make_unique<sampler::Prefetcher>(&puller(), machines_->machine(0).graph, std::move(options));
  }

  static std::vector<uint64_t> nodes(uint64_t step) {
    std::vector<uint64_t> nodes(20);
    // Of every machine's nodes some; the first ones are machine 0's own.
    for (uint64_t i = 0; i < 20; ++i) nodes[i] = (25 + step * 7 + i) % kNodes;
    return nodes;
  }

  void expectRows(const std::vector<sampler::Prefetched>& pulls, uint64_t step) {
    ASSERT_EQ(pulls.size(), 3u);
    for (const sampler::Prefetched& pull : pulls) {
      sampler::PendingPull& pending = pull.hold->pull();
      ASSERT_TRUE(pending.waitFor(milliseconds(20'000)));
      ASSERT_TRUE(pending.status().ok()) << pending.status();
      const std::string name = pull.index == 1 ? "one" : "float32";
      const size_t rowBytes = pull.index == 1 ? 1 : kColumns * 4;
      const sampler::SampledBatch batch = batchOf(step, nodes(step));
      const std::vector<uint64_t> gids = pull.index == 2 ? batch.seeds : nodes(step);
      for (size_t i = 0; i < gids.size(); ++i) {
        ASSERT_EQ(std::memcmp(pending.memory()[pull.part].data + i * rowBytes, storedRow(*machines_, name, gids[i]), rowBytes), 0);
      }
    }
  }

  std::atomic<size_t> live_{0}, peak_{0};
};

TEST_F(Prefetching, KeepsToItsBytes_AndGoesOnWhenBatchesAreHandedOut) {
  const auto prefetcher = make(2 * kBatchBytes + kBatchBytes / 2);
  for (uint64_t step : {0, 1, 2, 3}) prefetcher->add(batchOf(step, nodes(step)));
  ASSERT_TRUE(eventually([&] { return live_ == 2 * kBatchBytes; }));
  EXPECT_EQ(prefetcher->bytes(), 2 * kBatchBytes);
  std::vector<sampler::Prefetched> first = prefetcher->take(3, 0);
  EXPECT_EQ(first.size(), 3u);
  EXPECT_FALSE(first[0].hold->pull().done());
  // Room for one more, while the first is in the trainer's hands.
  ASSERT_TRUE(eventually([&] { return live_ == 3 * kBatchBytes; }));
  EXPECT_TRUE(prefetcher->take(3, 3).empty());  // handed out before there was room
  transport_->open();
  ASSERT_NO_FATAL_FAILURE(expectRows(first, 0));
  ASSERT_NO_FATAL_FAILURE(expectRows(prefetcher->take(3, 1), 1));
  ASSERT_NO_FATAL_FAILURE(expectRows(prefetcher->take(3, 2), 2));
  first.clear();
  EXPECT_TRUE(prefetcher->take(3, 9).empty());
  EXPECT_LE(prefetcher->peakBytes(), 2 * kBatchBytes);
  EXPECT_EQ(prefetcher->bytes(), 0u);
  EXPECT_TRUE(eventually([&] { return live_ == 0; }));
}

TEST_F(Prefetching, LeavesToTheTrainer_WhatIsLargerThanItsBytes) {
  const auto prefetcher = make(kBatchBytes - 1);
  prefetcher->add(batchOf(0, nodes(0)));
  EXPECT_TRUE(prefetcher->take(3, 0).empty());
  EXPECT_EQ(prefetcher->peakBytes(), 0u);
  EXPECT_EQ(machines_->machine(0).metrics->featureBytes.value(), 0);
}

TEST_F(Prefetching, CountsWhatIsGivenUpUntilItIsFreed) {
  auto prefetcher = make(2 * kBatchBytes);
  for (uint64_t step : {0, 1, 2}) prefetcher->add(batchOf(step, nodes(step)));
  ASSERT_TRUE(eventually([&] { return live_ == 2 * kBatchBytes; }));
  const int asked = transport_->fetched();
  prefetcher->clear();
  EXPECT_GT(prefetcher->bytes(), 0u);  // replies are on their way
  transport_->open();
  EXPECT_TRUE(eventually([&] { return live_ == 0 && prefetcher->bytes() == 0; }));
  EXPECT_LE(transport_->fetched(), asked + 8);
  // Another epoch, and one that goes away with its pulls under way.
  prefetcher->add(batchOf(0, nodes(0)));
  ASSERT_TRUE(eventually([&] { return live_ == kBatchBytes; }));
  ASSERT_NO_FATAL_FAILURE(expectRows(prefetcher->take(3, 0), 0));
  for (uint64_t step : {5, 6}) prefetcher->add(batchOf(step, nodes(3)));
  prefetcher.reset();
  EXPECT_TRUE(eventually([&] { return live_ == 0; }));
}

TEST_F(Prefetching, StaysWithinItsBytes_WhileSamplersRunAhead) {
  transport_->open();
  const auto prefetcher = make(4000);
  sampler::SeedSet set;
  for (uint64_t seed = 0; seed < 50; ++seed) set.all.push_back(machines_->gid(0, seed));
  sampler::DealOptions deal;
  deal.batchSize = 4;
  deal.tail = sampler::Tail::kUneven;
  deal.deal = sampler::Deal::kGlobal;
  sampler::SamplingOptions sampling;
  sampling.fanouts = {{3}};
  sampling.kinds.resize(1);
  sampler::StreamOptions stream{2, 4};
  stream.sampled = [&](const sampler::SampledBatch& batch) { prefetcher->add(batch); };
  TestMachine& self = machines_->machine(0);
  sampler::BatchStream batches(self.graph, self.agent.get(), *sampler::SeedDealer::make(set, deal), sampling, stream, self.metrics);
  int prefetched = 0, steps = 0;
  for (uint64_t epoch : {1, 2}) {
    batches.stop();
    prefetcher->clear();
    batches.start(epoch);
    for (;;) {
      auto batch = batches.next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      if (*batch == nullptr) break;
      ++steps;
      if (steps % 5 == 0) std::this_thread::sleep_for(milliseconds(5));
      for (const sampler::Prefetched& pull : prefetcher->take(epoch, (*batch)->step)) {
        ASSERT_TRUE(pull.hold->pull().waitFor(milliseconds(20'000)));
        ASSERT_TRUE(pull.hold->pull().status().ok());
        if (pull.index != 0) continue;
        ++prefetched;
        for (size_t i = 0; i < (*batch)->nodes[0].size(); ++i) {
          ASSERT_EQ(std::memcmp(pull.hold->pull().memory()[pull.part].data + i * kColumns * 4,
                                storedRow(*machines_, "float32", (*batch)->nodes[0][i]), kColumns * 4), 0);
        }
      }
      if (epoch == 1 && steps == 4) break;  // leaves the epoch
    }
  }
  EXPECT_GT(prefetched, 0);
  EXPECT_LE(prefetcher->peakBytes(), 4000u);
  EXPECT_GT(prefetcher->peakBytes(), 0u);
}

TEST_F(FeaturePulls, CostNothing_WhenABatchIsNeverPulled) {
  const auto machines = cluster(3, 100);
  sampler::SeedSet set;
  for (uint64_t seed = 0; seed < 50; ++seed) set.all.push_back(machines->gid(0, seed));
  sampler::DealOptions deal;
  deal.batchSize = 10;
  deal.deal = sampler::Deal::kGlobal;
  sampler::SamplingOptions sampling;
  sampling.fanouts = {{3}, {3}};
  sampling.kinds.resize(1);
  TestMachine& self = machines->machine(0);
  sampler::BatchStream batches(self.graph, self.agent.get(), *sampler::SeedDealer::make(set, deal), sampling, {1, 2}, self.metrics);
  batches.start(0);
  while (true) {
    auto batch = batches.next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (*batch == nullptr) break;
  }
  for (int m = 0; m < 3; ++m) {
    EXPECT_EQ(machines->machine(m).metrics->featureBytesRead.value(), 0) << "machine " << m;
    EXPECT_EQ(machines->machine(m).metrics->featureBytes.value(), 0) << "machine " << m;
  }
}

}  // namespace
}  // namespace farhop::testing
