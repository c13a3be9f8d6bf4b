#include "launcher/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "base/file.h"
#include "launcher/process.h"
#include "tests/temporary_directory.h"

namespace farhop::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(JobId, IsReadableAndUnique) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = *makeJobId();
    EXPECT_THAT(id, MatchesRegex("[0-9]{8}-[0-9]{6}-[0-9a-f]{8}"));
    EXPECT_TRUE(ids.insert(id).second);
  }
}

TEST(JobToken, HasA128Bits) {
  const std::string one = *makeToken(), other = *makeToken();
  EXPECT_THAT(one, MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(one, other);
}

TEST(Ports, AreConsecutiveAndListening) {
  const auto ports = reservePorts("127.0.0.1", 4, std::nullopt);
  ASSERT_TRUE(ports.ok()) << ports.status();
  ASSERT_EQ(ports->listeners.size(), 4u);
  for (size_t p = 0; p < 4; ++p) {
    EXPECT_EQ(*boundPort(ports->listeners[p].get()), ports->base + p);
    EXPECT_TRUE(connectTcp({"127.0.0.1", static_cast<uint16_t>(ports->base + p)},
                           Deadline::after(std::chrono::seconds(2)), false)
                    .ok());
  }
}

TEST(Ports, NameTheOneInUse) {
  const auto taken = reservePorts("127.0.0.1", 3, std::nullopt);
  ASSERT_TRUE(taken.ok());
  const uint16_t base = taken->base;
  const auto again = reservePorts("127.0.0.1", 2, static_cast<uint16_t>(base - 1));
  // The port below may be somebody else's; then that one is named.
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("--master-port"));
  const auto same = reservePorts("127.0.0.1", 1, base);
  EXPECT_THAT(std::string(same.status().message()), HasSubstr("port " + std::to_string(base)));
}

TEST(LogDirectory, IsRemovedOnlyWhenTemporary) {
  testing::TemporaryDirectory directory;
  auto requested = LogDirectory::create(directory / "a/b", "job");
  ASSERT_TRUE(requested.ok()) << requested.status();
  EXPECT_EQ(requested->fileFor(1, 2), directory / "a/b/m1-p2.log");
  requested->removeTemporary();
  EXPECT_TRUE(pathExists(directory / "a/b"));

  auto temporary = LogDirectory::create("", *makeJobId());
  ASSERT_TRUE(temporary.ok()) << temporary.status();
  EXPECT_TRUE(pathExists(temporary->path()));
  temporary->removeTemporary();
  EXPECT_FALSE(pathExists(temporary->path()));
}

TEST(ProcessEnd, ReadsAsAShellWouldReportIt) {
  EXPECT_EQ((ProcessEnd{false, 3}.text()), "exit code 3");
  EXPECT_EQ((ProcessEnd{false, 3}.exitCode()), 3);
  EXPECT_EQ((ProcessEnd{true, 9}.text()), "signal 9 (SIGKILL)");
  EXPECT_EQ((ProcessEnd{true, 9}.exitCode()), 137);
  EXPECT_FALSE((ProcessEnd{false, 0}.failed()));
}

TEST(Process, SaysWhyItCouldNotExecute) {
  testing::TemporaryDirectory directory;
  ASSERT_TRUE(writeFileAtomically(directory / "noshebang", "echo hi\n").ok());
  ASSERT_TRUE(writeFileAtomically(directory / "badshebang", "#!/nowhere/sh\n").ok());
  SpawnRequest request;
  request.workingDirectory = "/";
  request.arguments = {"x"};
  for (const auto& [name, message] : std::vector<std::pair<std::string, std::string>>{
           {"noshebang", "#!/bin/sh"}, {"badshebang", "interpreter"}}) {
    request.program = directory / name;
    ASSERT_EQ(::chmod(request.program.c_str(), 0755), 0);
    const auto process = Process::spawn(request);
    ASSERT_FALSE(process.ok());
    EXPECT_THAT(std::string(process.status().message()), HasSubstr(message));
    EXPECT_THAT(std::string(process.status().message()), HasSubstr(request.program));
  }
  request.program = "/bin/true";
  request.workingDirectory = "/nowhere";
  EXPECT_THAT(std::string(Process::spawn(request).status().message()), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace farhop::launcher
