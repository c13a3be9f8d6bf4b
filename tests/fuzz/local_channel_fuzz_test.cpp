#include <gtest/gtest.h>

#include "base/random.h"
#include "runtime/local_message.h"

namespace farhop::runtime {
namespace {

constexpr uint64_t kSeed = 20'240'611;

std::string randomText(KeyedRandom& random, uint64_t most) {
  std::string text(random.below(most), '\0');
  for (char& c : text) c = static_cast<char>(random.below(256));
  return text;
}

LocalMessage randomMessage(KeyedRandom& random) {
  LocalMessage message;
  message.type = static_cast<LocalMessage::Type>(1 + random.below(9));
  message.machine = static_cast<int32_t>(random.next());
  message.proc = static_cast<int32_t>(random.next());
  message.code = static_cast<int32_t>(random.next());
  message.key = randomText(random, 40);
  message.value = randomText(random, 300);
  message.text = randomText(random, 40);
  return message;
}

TEST(LocalMessageFuzz, ReadsBackWhatWasWritten_WhateverThePieces) {
  KeyedRandom random(kSeed);
  for (int round = 0; round < 300; ++round) {
    std::string stream;
    std::vector<LocalMessage> sent;
    for (int i = 0; i < 5; ++i) {
      sent.push_back(randomMessage(random));
      stream += encodeLocalMessage(sent.back());
    }
    std::string buffer;
    size_t received = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece = std::min<size_t>(stream.size() - at, 1 + random.below(97));
      buffer.append(stream, at, piece);
      at += piece;
      for (;;) {
        absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(buffer);
        ASSERT_TRUE(message.ok()) << message.status() << " seed " << kSeed;
        if (!message->has_value()) break;
        const LocalMessage& want = sent[received++];
        EXPECT_EQ((*message)->type, want.type);
        EXPECT_EQ((*message)->machine, want.machine);
        EXPECT_EQ((*message)->key, want.key);
        EXPECT_EQ((*message)->value, want.value);
        EXPECT_EQ((*message)->text, want.text);
      }
    }
    EXPECT_EQ(received, sent.size());
    EXPECT_TRUE(buffer.empty());
  }
}

TEST(LocalMessageFuzz, TakesNoHarmFromDamagedBytes) {
  KeyedRandom random(kSeed + 1);
  for (int round = 0; round < 20'000; ++round) {
    std::string buffer = random.below(2) == 0 ? randomText(random, 200) : encodeLocalMessage(randomMessage(random));
    for (uint64_t flips = random.below(4); flips > 0 && !buffer.empty(); --flips) {
      buffer[random.below(buffer.size())] = static_cast<char>(random.below(256));
    }
    if (random.below(3) == 0) buffer.resize(random.below(buffer.size() + 1));
    for (;;) {
      const size_t before = buffer.size();
      absl::StatusOr<std::optional<LocalMessage>> message = takeLocalMessage(buffer);
      if (!message.ok() || !message->has_value()) break;
      ASSERT_LT(buffer.size(), before);
    }
  }
}

}  // namespace
}  // namespace farhop::runtime
