#include "base/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/temporary_directory.h"

namespace farhop {
namespace {

std::span<const std::byte> asBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string headerWith(const std::string& dictionary) {
  std::string header = std::string("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xFF);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

TEST(Npy, ReadsBackWhatItWrote) {
  testing::TemporaryDirectory directory;
  std::vector<float> data(12);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) / 3;
  ASSERT_TRUE(writeNpy<float>(directory / "a.npy", data, {3, 4}).ok());
  auto array = NpyArray::open(directory / "a.npy");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->shape(), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(array->rowBytes(), 16u);
  auto values = array->as<float>();
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(std::vector<float>(values->begin(), values->end()), data);
  EXPECT_FALSE(array->as<double>().ok());
}

TEST(Npy, ChecksumOfTheWriterIsThatOfTheFile) {
  testing::TemporaryDirectory directory;
  std::vector<uint64_t> data(300'000, 7);
  auto checksum = writeNpy<uint64_t>(directory / "a.npy", data);
  ASSERT_TRUE(checksum.ok());
  auto array = NpyArray::open(directory / "a.npy");
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(*checksum, checksum64(array->fileBytes()));
}

TEST(Npy, ReadsHeadersAsNumpyWritesThem) {
  for (const char* text : {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}\n",
                           "{\"shape\": (3,4), \"descr\": \"<f4\", \"fortran_order\": False}"}) {
    const std::string header = headerWith(text);
    auto parsed = parseNpyHeader(asBytes(header));
    ASSERT_TRUE(parsed.ok()) << parsed.status() << " for " << text;
    EXPECT_EQ(parsed->shape, (std::vector<uint64_t>{3, 4}));
    EXPECT_EQ(parsed->dtype, DType::kFloat32);
  }
  auto scalar = parseNpyHeader(asBytes(headerWith("{'descr': '|u1', 'fortran_order': True, 'shape': (), }\n")));
  ASSERT_TRUE(scalar.ok());
  EXPECT_TRUE(scalar->fortranOrder);
  EXPECT_EQ(scalar->elements(), 1u);
}

TEST(Npy, RefusesWhatItCannotRead) {
  for (const char* text : {"", "{", "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }",
                           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
                           "{'descr': '<f4', 'fortran_order': 1, 'shape': (3,), }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }",
                           "{'descr': '<f4', 'fortran_order': False, }"}) {
    EXPECT_FALSE(parseNpyHeader(asBytes(headerWith(text))).ok()) << text;
  }
}

TEST(Npy, NamesTheFileAndTheMissingBytes_WhenTruncated) {
  testing::TemporaryDirectory directory;
  std::vector<float> data(1000);
  ASSERT_TRUE(writeNpy<float>(directory / "a.npy", data).ok());
  std::filesystem::resize_file(directory / "a.npy", std::filesystem::file_size(directory / "a.npy") - 24);
  auto array = NpyArray::open(directory / "a.npy");
  ASSERT_FALSE(array.ok());
  EXPECT_NE(array.status().message().find("a.npy is 24 bytes short"), std::string::npos) << array.status();
}

TEST(Npy, WritesNothing_WhenFewerRowsCameThanAnnounced) {
  testing::TemporaryDirectory directory;
  {
    auto writer = NpyWriter::create(directory / "a.npy", DType::kInt64, {4});
    ASSERT_TRUE(writer.ok());
    int64_t one = 1;
    ASSERT_TRUE(writer->write(&one, sizeof(one)).ok());
    EXPECT_FALSE(writer->commit().ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(Npy, MapsAnEmptyArray) {
  testing::TemporaryDirectory directory;
  ASSERT_TRUE(writeNpy<uint32_t>(directory / "e.npy", {}).ok());
  auto array = NpyArray::open(directory / "e.npy");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->elements(), 0u);
  EXPECT_TRUE(array->as<uint32_t>().ok());
}

}  // namespace
}  // namespace farhop
