#include "base/file.h"

#include <gtest/gtest.h>

#include "tests/temporary_directory.h"

namespace farhop {
namespace {

TEST(AtomicFile, IsAbsentUntilCommitted) {
  testing::TemporaryDirectory directory;
  auto file = AtomicFile::create(directory / "f");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("hello", 5).ok());
  EXPECT_FALSE(pathExists(directory / "f"));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(*readFile(directory / "f"), "hello");
}

TEST(AtomicFile, LeavesNothingBehind_WhenAbandoned) {
  testing::TemporaryDirectory directory;
  { auto file = AtomicFile::create(directory / "f"); }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(AtomicFile, KeepsTheOldFile_WhenTheNewOneIsAbandoned) {
  testing::TemporaryDirectory directory;
  ASSERT_TRUE(writeFileAtomically(directory / "f", "old").ok());
  {
    auto file = AtomicFile::create(directory / "f");
    ASSERT_TRUE(file->write("new", 3).ok());
  }
  EXPECT_EQ(*readFile(directory / "f"), "old");
}

TEST(AtomicFile, WritesMoreThanItsBuffer) {
  testing::TemporaryDirectory directory;
  auto file = AtomicFile::create(directory / "f");
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(10'000 + i, static_cast<char>('a' + i % 26));
    expected += piece;
    ASSERT_TRUE(file->write(piece.data(), piece.size()).ok());
  }
  const uint64_t checksum = file->checksum();
  ASSERT_TRUE(file->commit().ok());
  auto content = readFile(directory / "f");
  EXPECT_TRUE(*content == expected);
  EXPECT_EQ(checksum, checksum64(std::as_bytes(std::span(content->data(), content->size()))));
}

TEST(MappedFile, NamesThePath_WhenMissing) {
  auto file = MappedFile::open("/nonexistent/x.npy");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find("/nonexistent/x.npy"), std::string::npos);
}

TEST(MappedFile, RefusesADirectory) {
  testing::TemporaryDirectory directory;
  EXPECT_FALSE(MappedFile::open(directory.path()).ok());
}

}  // namespace
}  // namespace farhop
