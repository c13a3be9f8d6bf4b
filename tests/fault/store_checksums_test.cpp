// What trainers check before they sample: the checksums of the files that they will read, shared among the
// processes of a machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "partition/graph_store.h"
#include "partition/store_checksums.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using ::testing::HasSubstr;

bool isFeatureFile(const std::string& path) { return path.find("/feat/") != std::string::npos; }

class StoreChecksums : public ::testing::Test {
 protected:
  static constexpr int kParts = 3;

  void SetUp() override {
    testing::FixtureOptions options;
    options.heterogeneous = true;
    options.addReverse = true;
    options.edgeTimes = options.declaredWeights = options.edgeSplits = true;
    options.cache.fraction = 0.3;
    options.nodes = 30;
    options.edges = 100;
    testing::writeFixtureStore(options, kParts, path_);
    store_ = GraphStore::open(path_).value();
  }

  std::string content(const std::string& name) const { return readFile(path_ + "/" + name).value(); }
  void write(const std::string& name, const std::string& text) const {
    // A new file each time: ext4 writes a file that was cut to nothing to the disk when it is closed.
    std::filesystem::remove(path_ + "/" + name);
    std::ofstream out(path_ + "/" + name, std::ios::binary);
    ASSERT_TRUE(out.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
  }
  absl::Status check(const std::vector<int>& partitions, bool features = true) const {
    return store_->verifyChecksums(partitions, 0, 1, features, nullptr);
  }
  // Runs `body` while one bit of the file is another.
  template <typename Body>
  void withFlippedBit(const std::string& name, size_t bit, const Body& body) const {
    const std::string saved = content(name);
    std::string flipped = saved;
    flipped[bit / 8 % saved.size()] = static_cast<char>(flipped[bit / 8 % saved.size()] ^ (1 << (bit % 8)));
    write(name, flipped);
    body();
    write(name, saved);
  }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "store";
  std::shared_ptr<const GraphStore> store_;
  const std::vector<int> all_ = {0, 1, 2};
};

TEST_F(StoreChecksums, PassOnASoundStore) {
  for (bool features : {true, false}) {
    EXPECT_TRUE(check(all_, features).ok());
    EXPECT_TRUE(check({1}, features).ok());
    EXPECT_TRUE(check({}, features).ok());
  }
}

TEST_F(StoreChecksums, FindAFlippedBitInAnyFile_AndNameIt) {
  size_t bit = 1;
  for (const auto& [name, file] : store_->manifest().files) {
    for (int i = 0; i < 2; ++i) {
      withFlippedBit(name, bit, [&, path = name] {
        const absl::Status status = check(all_);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(path_ + "/" + path + " is damaged: its checksum does not match; copy it again"));
        EXPECT_THAT(std::string(status.message()), HasSubstr("farhop inspect --verify " + path_));
      });
      bit += 2 * 7919 + 1;
    }
  }
  EXPECT_TRUE(check(all_).ok());
}

TEST_F(StoreChecksums, FindFilesThatAreMissingTruncatedOrLonger) {
  for (const auto& [name, file] : store_->manifest().files) {
    const std::string saved = content(name);
    std::filesystem::remove(path_ + "/" + name);
    EXPECT_EQ(check(all_).code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(check(all_).message()), HasSubstr(name + " is missing"));
    for (const std::string& text : {std::string(), saved.substr(0, saved.size() - 1), saved + "x"}) {
      write(name, text);
      EXPECT_EQ(check(all_).code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(check(all_).message()), HasSubstr(name + " has "));
    }
    write(name, saved);
  }
}

TEST_F(StoreChecksums, AreThoseOfTheAskedPartitionsAndOfGlobal) {
  for (const auto& [name, file] : store_->manifest().files) {
    withFlippedBit(name, 4000, [&, path = name] {
      const bool mine = path.compare(0, 10, "part-00001") == 0 || path.compare(0, 7, "global/") == 0;
      EXPECT_EQ(check({1}).ok(), !mine) << path;
      EXPECT_EQ(check({1, 1}).ok(), !mine) << path;
    });
  }
}

TEST_F(StoreChecksums, LeaveOutFeaturesAndNothingElse_WhenAsked) {
  size_t features = 0;
  for (const auto& [name, file] : store_->manifest().files) {
    features += isFeatureFile(name);
    withFlippedBit(name, 4000, [&, path = name] { EXPECT_EQ(check(all_, false).ok(), isFeatureFile(path)) << path; });
  }
  // x and label of two types, own and cached, w and t of three relations; reverse relations have none.
  EXPECT_EQ(features, size_t{kParts} * 14);
}

TEST_F(StoreChecksums, SharesCoverEveryFileOnce_AndEvenly) {
  const Manifest& manifest = store_->manifest();
  for (bool features : {true, false}) {
    for (const std::vector<int>& partitions : {std::vector<int>{0, 1, 2}, {2, 0}, {1}}) {
      const std::vector<std::string> selected = selectFiles(manifest, {partitions, features});
      uint64_t total = 0, largest = 0;
      for (const std::string& path : selected) {
        total += manifest.files.at(path).bytes;
        largest = std::max(largest, manifest.files.at(path).bytes);
      }
      for (int shares : {1, 2, 3, 50, 200}) {
        std::multiset<std::string> seen;
        for (int share = 0; share < shares; ++share) {
          uint64_t bytes = 0;
          for (const std::string& path : dealFiles(manifest, selected, share, shares)) {
            seen.insert(path);
            bytes += manifest.files.at(path).bytes;
          }
          EXPECT_LE(bytes, total / static_cast<uint64_t>(shares) + largest);
        }
        EXPECT_EQ(seen, std::multiset<std::string>(selected.begin(), selected.end()))
            << shares << " shares, features " << features;
      }
    }
  }
}

TEST_F(StoreChecksums, ADamagedFileIsFoundByExactlyOneShare) {
  for (const auto& [name, file] : store_->manifest().files) {
    withFlippedBit(name, 999, [&] {
      for (int shares : {1, 2, 3}) {
        int found = 0;
        for (int share = 0; share < shares; ++share) {
          found += !store_->verifyChecksums(all_, share, shares, true, nullptr).ok();
        }
        EXPECT_EQ(found, 1) << shares << " shares";
      }
    });
  }
}

TEST_F(StoreChecksums, ProgressRunsToTheTotal) {
  uint64_t all = 0;
  for (const auto& [name, file] : store_->manifest().files) all += file.bytes;
  uint64_t sum = 0;
  for (int share = 0; share < 3; ++share) {
    uint64_t last = 0, end = 0;
    const auto progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GT(done, last);
      EXPECT_LE(done, total);
      last = done;
      end = total;
      return absl::OkStatus();
    };
    ASSERT_TRUE(store_->verifyChecksums(all_, share, 3, true, progress).ok());
    EXPECT_EQ(last, end);
    sum += end;
  }
  EXPECT_EQ(sum, all);
}

TEST_F(StoreChecksums, StopReading_WhenTheProgressSaysSo) {
  const auto stopsAtPiece = [&](int piece) {
    int pieces = 0;
    const absl::Status status = store_->verifyChecksums(all_, 0, 1, true, [&](uint64_t, uint64_t) {
      return ++pieces == piece ? absl::CancelledError("no need any more") : absl::OkStatus();
    });
    EXPECT_EQ(status, absl::CancelledError("no need any more"));  // nothing added: no file is to blame
    return pieces == piece;
  };
  const int files = static_cast<int>(store_->manifest().files.size());
  for (int piece : {1, 2, files / 2}) EXPECT_TRUE(stopsAtPiece(piece));
}

TEST_F(StoreChecksums, StopInTheMiddleOfALargeFile) {
  const std::string path = directory_ / "large";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, uint64_t{1} << 30);  // sparse, and not read to its end
  uint64_t read = 0;
  const auto found = checksumFile(path, [&](uint64_t bytes) {
    read += bytes;
    return absl::UnavailableError("lost machine 1 process 0");
  });
  EXPECT_EQ(found.status(), absl::UnavailableError("lost machine 1 process 0"));
  EXPECT_LE(read, uint64_t{1} << 20);
}

TEST_F(StoreChecksums, RefuseSharesAndPartitionsThatDoNotExist) {
  const auto code = [&](const std::vector<int>& partitions, int share, int shares) {
    return store_->verifyChecksums(partitions, share, shares, true, nullptr).code();
  };
  EXPECT_EQ(code(all_, 2, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(all_, -1, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(all_, 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({3}, 0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1}, 0, 1), absl::StatusCode::kInvalidArgument);
}

TEST(PartitionBook, FindsTheOwner_AndStaysInside_WhateverTheGid) {
  for (int parts : {1, 2, 8, 9, 40}) {
    std::vector<uint64_t> offsets = {0};
    for (int k = 0; k < parts; ++k) offsets.push_back(offsets.back() + (k % 3 == 1 ? 0 : 5));
    const PartitionBook book({offsets});
    for (uint64_t gid = 0; gid < book.numNodes(0); ++gid) {
      const int k = book.partitionOf(0, gid);
      ASSERT_TRUE(gid >= book.begin(0, k) && gid < book.end(0, k)) << "gid " << gid << " of " << parts << " parts";
    }
    for (uint64_t gid : {book.numNodes(0), book.numNodes(0) + 1, ~uint64_t{0}}) {
      EXPECT_EQ(book.partitionOf(0, gid), parts - 1);
    }
  }
}

TEST(ChecksumFile, IsTheChecksumOfTheWholeFile_AtAnySize) {
  testing::TemporaryDirectory directory;
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{240}, size_t{1} << 20, (size_t{3} << 20) + 17}) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
    ASSERT_TRUE(writeFileAtomically(directory / "f", text).ok());
    uint64_t read = 0;
    const auto found = checksumFile(directory / "f", [&](uint64_t n) {
      read += n;
      return absl::OkStatus();
    });
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->bytes, bytes);
    EXPECT_EQ(read, bytes);
    EXPECT_EQ(found->checksum, checksum64(std::as_bytes(std::span(text.data(), text.size()))));
  }
  EXPECT_EQ(checksumFile(directory / "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(checksumFile(directory.path()).ok());
}

}  // namespace
}  // namespace farhop::partition
