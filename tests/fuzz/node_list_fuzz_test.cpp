// Mutates node lists and task counts at random; the parsers must answer within their bounds. Seeded.
#include <gtest/gtest.h>

#include <random>

#include "runtime/launch_contract.h"

namespace farhop::runtime {
namespace {

std::string mutate(std::string text, std::mt19937& random) {
  constexpr char kAlphabet[] = "0123456789[]-,()xn.";
  for (uint32_t i = 0, edits = random() % 5; i < edits && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 4));
        break;
      default:
        text.insert(at, 1, kAlphabet[random() % (sizeof(kAlphabet) - 1)]);
        break;
    }
  }
  return text;
}

TEST(NodeListFuzz, AnswersAnyText) {
  const uint32_t seed = 20'240'602;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> lists{"n[001-003,7],gpu-a", "r[1-2]n[1-4]-ib,x", "a,b[1],c"};
  int accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    const auto hosts = expandNodeList(mutate(lists[random() % lists.size()], random));
    if (!hosts.ok()) continue;
    ++accepted;
    ASSERT_GE(hosts->size(), 1u);
    ASSERT_LE(hosts->size(), static_cast<size_t>(kMaxMachines));
    for (const std::string& host : *hosts) {
      ASSERT_FALSE(host.empty());
      ASSERT_EQ(host.find_first_of("[], "), std::string::npos) << host;
    }
  }
  EXPECT_GT(accepted, 5'000);  // the mutations leave enough lists valid to be worth while
}

TEST(NodeListFuzz, AnswersAnyTaskCounts) {
  std::mt19937 random(20'240'603);
  int accepted = 0;
  for (int round = 0; round < 50'000; ++round) {
    const auto tasks = expandTasksPerNode(mutate("4(x2),3,16(x10)", random));
    if (!tasks.ok()) continue;
    ++accepted;
    ASSERT_LE(tasks->size(), static_cast<size_t>(kMaxMachines));
    for (int count : *tasks) ASSERT_GE(count, 0);
  }
  EXPECT_GT(accepted, 5'000);
}

}  // namespace
}  // namespace farhop::runtime
