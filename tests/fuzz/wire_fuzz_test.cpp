// Random and mutated messages: the parsers answer, within their limits, and never crash.
#include "rpc/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "rpc/rendezvous_protocol.h"

namespace farhop::rpc {
namespace {

TEST(WireFuzz, ParsersAnswerAnyBytes) {
  const uint32_t seed = 20'240'602;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  std::string valid;
  Frame frame;
  frame.kind = FrameKind::kRequest;
  frame.arrays = 2;
  appendFrame(frame, &valid);
  frame.kind = FrameKind::kReply;
  frame.code = absl::StatusCode::kUnavailable;
  frame.arrays = 0;
  frame.tail = encodeStatus(withPeer(absl::UnavailableError("gone"), {1, 2, "host:1"}));
  appendFrame(frame, &valid);
  const std::string hello = encodeHello({"job", "token", 1, 2, 1000, 4, 1000, 10, 5000});
  const std::string reply = encodeStoreReply(absl::OkStatus(), "value");
  const std::vector<size_t> sizes{10, 20};
  const WireLimits limits{1000, 4};
  ASSERT_TRUE(parseFrames(valid, sizes, limits).ok());
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes = round % 3 == 0 ? valid : round % 3 == 1 ? hello : reply;
    for (uint32_t i = 0, edits = random() % 4; i < edits && !bytes.empty(); ++i) {
      switch (random() % 3) {
        case 0: bytes[random() % bytes.size()] = static_cast<char>(random()); break;
        case 1: bytes.resize(random() % bytes.size()); break;
        default: bytes.insert(random() % bytes.size(), 1, static_cast<char>(random())); break;
      }
    }
    auto frames = parseFrames(bytes, sizes, limits);
    if (frames.ok()) {
      ++accepted;
      size_t arrays = 0;
      for (const Frame& one : *frames) arrays += one.arrays;
      ASSERT_EQ(arrays, sizes.size());
    }
    static_cast<void>(decodeHello(bytes).ok());
    EXPECT_FALSE(decodeStatus(absl::StatusCode::kUnavailable, bytes).ok());
    static_cast<void>(decodeStoreReply(bytes, 1000).ok());
    static_cast<void>(decodeStoreHello(bytes).ok());
    static_cast<void>(parseStorePrefix(bytes).ok());
  }
  EXPECT_GT(accepted, 10'000);
}

TEST(Wire, ChecksLimitsBeforeAnythingElse) {
  std::string one;
  Frame frame;
  frame.kind = FrameKind::kRequest;
  frame.arrays = 2;
  appendFrame(frame, &one);
  EXPECT_EQ(one.size(), kFrameHeaderBytes);
  const size_t huge = SIZE_MAX;
  const WireLimits limits{1000, 4};
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{huge, huge}, limits).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{600, 600}, limits).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{1}, limits).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{1, 1, 1}, limits).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{1, 1}, WireLimits{1000, 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(parseFrames("", {}, limits).ok());
  one[4] = 2;
  EXPECT_EQ(parseFrames(one, std::vector<size_t>{1, 1}, limits).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Wire, KeepsAFailuresTextAndPeer) {
  const absl::Status status = withPeer(absl::DataLossError("what was lost"), {3, 1, "h:2"});
  EXPECT_EQ(decodeStatus(status.code(), encodeStatus(status)), status);
  const absl::Status tooLong = absl::InternalError(std::string(100'000, 'x'));
  EXPECT_LT(encodeStatus(tooLong).size(), kMaxTailBytes);
  EXPECT_EQ(decodeStatus(tooLong.code(), encodeStatus(tooLong)).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace farhop::rpc
