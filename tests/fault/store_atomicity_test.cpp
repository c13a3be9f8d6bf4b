// Whatever interrupts the writing of a store, there is never a directory that opens and is not whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "partition/graph_store.h"
#include "partition/store_writer.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StoreAtomicity : public ::testing::Test {
 protected:
  StoreAtomicity() {
    testing::FixtureOptions options;
    options.heterogeneous = true;
    options.nodes = 20;
    options.edges = 60;
    dataset_ = testing::makeFixtureDataset(options);
    writer_.directory = store_;
  }
  PartitionAssignment assignment(int parts) const {
    return assignPartitions(dataset_, {parts, PartitionMethod::kRandom, 1, true}).value();
  }
  absl::Status write(int parts) const { return writeStore(dataset_, assignment(parts), writer_); }

  // Writes in a child that kills itself at the given progress line. Returns whether it got that far.
  bool writeAndDieAt(int step, int parts) {
    const PartitionAssignment how = assignment(parts);
    const pid_t child = ::fork();
    if (child == 0) {
      int seen = 0;
      writer_.progress = [&](const std::string&) {
        if (seen++ == step) ::raise(SIGKILL);
      };
      ::_exit(writeStore(dataset_, how, writer_).ok() ? 0 : 3);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
  }

  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  testing::TemporaryDirectory directory_;
  const std::string store_ = directory_ / "store";
  Dataset dataset_;
  StoreWriterOptions writer_;
};

TEST_F(StoreAtomicity, AKilledWriterLeavesNoStore_AndTheNextOneCleansUp) {
  int step = 0;
  for (; writeAndDieAt(step, 2); ++step) {
    EXPECT_FALSE(GraphStore::open(store_).ok());
    ASSERT_EQ(entries().size(), 1u) << "only the last writer's leftovers";
    EXPECT_FALSE(GraphStore::open(directory_ / entries()[0]).ok());
  }
  EXPECT_GE(step, 5);
  EXPECT_EQ(entries(), std::vector<std::string>{"store"});
  EXPECT_TRUE(GraphStore::open(store_).value()->verify().ok());
}

TEST_F(StoreAtomicity, AKilledReplacementLeavesTheOldStore) {
  ASSERT_TRUE(write(2).ok());
  writer_.force = true;
  for (int step = 0; writeAndDieAt(step, 3); ++step) {
    auto store = GraphStore::open(store_);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->numPartitions(), 2);
    EXPECT_TRUE((*store)->verify().ok());
  }
  EXPECT_EQ(GraphStore::open(store_).value()->numPartitions(), 3);
  EXPECT_EQ(entries(), std::vector<std::string>{"store"});
}

TEST_F(StoreAtomicity, AFailedWriteLeavesNothing) {
  PartitionAssignment wrong = assignment(2);
  wrong.partitionOf[0][3] = 7;
  EXPECT_FALSE(writeStore(dataset_, wrong, writer_).ok());
  EXPECT_TRUE(entries().empty());
  // A feature name that is fine, but whose reverse relation's is too long: found after staging began.
  dataset_.schema.relations[0].name = std::string(58, 'r');
  writer_.addReverse = true;
  EXPECT_FALSE(write(2).ok());
  EXPECT_TRUE(entries().empty());
}

TEST_F(StoreAtomicity, AnExistingStoreIsReplacedOnlyWithForce) {
  ASSERT_TRUE(write(2).ok());
  const absl::Status refused = write(3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--force"));
  EXPECT_EQ(GraphStore::open(store_).value()->numPartitions(), 2);
  writer_.force = true;
  EXPECT_TRUE(write(3).ok());
  EXPECT_EQ(GraphStore::open(store_).value()->numPartitions(), 3);
  EXPECT_EQ(entries(), std::vector<std::string>{"store"});
}

TEST_F(StoreAtomicity, ADirectoryThatIsNoStoreIsNeverReplaced) {
  fs::create_directory(store_);
  EXPECT_TRUE(write(2).ok()) << "an empty directory is fine";
  fs::remove_all(store_);
  fs::create_directory(store_);
  std::ofstream(store_ + "/thesis.tex") << "years of work";
  writer_.force = true;
  EXPECT_EQ(write(2).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::exists(store_ + "/thesis.tex"));
}

TEST_F(StoreAtomicity, ASecondWriterForOneName_IsRefusedWhileTheFirstIsUnderWay) {
  StoreWriterOptions first = writer_;
  bool inner = false;
  first.progress = [&](const std::string&) {
    if (std::exchange(inner, true)) return;
    const absl::Status refused = write(3);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("another run is writing"));
  };
  EXPECT_TRUE(writeStore(dataset_, assignment(2), first).ok());
  EXPECT_EQ(GraphStore::open(store_).value()->numPartitions(), 2);
  EXPECT_EQ(entries(), std::vector<std::string>{"store"});
}

TEST_F(StoreAtomicity, AKilledRunIsGoneOnWith_AndGivesTheSameBytes) {
  writer_.addReverse = true;
  writer_.order = NodeOrder::kDegree;
  ASSERT_TRUE(write(2).ok());
  const uint64_t whole = GraphStore::open(store_).value()->fingerprint();
  writer_.resume = true;
  writer_.directory = directory_ / "again";
  int step = 0;
  for (; writeAndDieAt(step, 2); ++step) {
  }
  EXPECT_GE(step, 10);
  EXPECT_EQ(GraphStore::open(writer_.directory).value()->fingerprint(), whole);
  EXPECT_EQ(entries(), (std::vector<std::string>{"again", "store"}));
}

TEST_F(StoreAtomicity, AKilledRunWithOtherOptions_IsNotGoneOnWith) {
  writer_.resume = true;
  ASSERT_TRUE(writeAndDieAt(4, 2));
  writer_.addReverse = true;
  ASSERT_TRUE(write(3).ok());
  EXPECT_TRUE(GraphStore::open(store_).value()->verify().ok());
  EXPECT_EQ(GraphStore::open(store_).value()->numPartitions(), 3);
}

TEST_F(StoreAtomicity, BytesDependNeitherOnMemoryNorOnThreads) {
  for (const bool merge : {false, true}) {
    for (const NodeOrder order : {NodeOrder::kOriginalId, NodeOrder::kDegree}) {
      writer_.mergeParallel = merge;
      writer_.order = order;
      writer_.addReverse = true;
      writer_.force = true;
      writer_.threads = 1;
      writer_.maxBucketItems = 0;
      ASSERT_TRUE(write(3).ok());
      const auto first = GraphStore::open(store_).value();
      EXPECT_TRUE(first->verify().ok()) << first->verify();
      EXPECT_EQ(first->schema().relations[0].inputCount, merge ? 60u : 0u);
      writer_.threads = 3;
      writer_.maxBucketItems = 7;
      ASSERT_TRUE(write(3).ok());
      EXPECT_EQ(GraphStore::open(store_).value()->fingerprint(), first->fingerprint());
    }
  }
  writer_.memoryBytes = 1;
  EXPECT_EQ(write(3).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StoreAtomicity, TheSameInputGivesTheSameBytes) {
  ASSERT_TRUE(write(3).ok());
  writer_.directory = directory_ / "again";
  ASSERT_TRUE(write(3).ok());
  EXPECT_EQ(GraphStore::open(store_).value()->fingerprint(),
            GraphStore::open(writer_.directory).value()->fingerprint());
}

}  // namespace
}  // namespace farhop::partition
