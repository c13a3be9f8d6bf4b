#include "launcher/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "launcher/ssh_command.h"
#include "launcher/trainer_environment.h"
#include "tests/temporary_directory.h"

namespace farhop::launcher {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

void makeFile(const std::string& path, mode_t mode) {
  ASSERT_TRUE(writeFileAtomically(path, "#!/bin/sh\n").ok());
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

RunOptions optionsFor(const testing::TemporaryDirectory& directory, const std::string& trainer) {
  RunOptions options;
  options.workingDirectory = directory.path();
  options.command = {trainer};
  return options;
}

TEST(EnvironmentEntry, SplitsAtTheFirstEqualsSign) {
  EXPECT_EQ(*parseEnvironmentEntry("A=b=c d"), std::pair(std::string("A"), std::string("b=c d")));
  EXPECT_EQ(parseEnvironmentEntry("_A1=")->second, "");
}

TEST(EnvironmentEntry, RefusesWhatIsNoVariable) {
  for (const char* text : {"", "A", "=b", "1A=b", "A-B=c", "A B=c"}) {
    EXPECT_EQ(parseEnvironmentEntry(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(EnvironmentEntry, RefusesWhatTheLauncherSets) {
  for (const char* text :
       {"RANK=0", "MASTER_PORT=1", "FARHOP_JOB_TOKEN=x", "FARHOP_MASTER_FD=3", "FARHOP_GRAPH=g"}) {
    EXPECT_THAT(std::string(parseEnvironmentEntry(text).status().message()),
                HasSubstr("sets this one itself"))
        << text;
  }
}

TEST(Seconds, AreDecimal) {
  EXPECT_EQ(parseSeconds("2", 0)->count(), 2000);
  EXPECT_EQ(parseSeconds("0.25", 0)->count(), 250);
  EXPECT_EQ(parseSeconds("0", 0)->count(), 0);
  EXPECT_FALSE(parseSeconds("0", 1).ok());
  for (const char* text : {"", "-1", "1s", "nan", "inf", "1e9", "999999999999", "1.2.3"}) {
    EXPECT_FALSE(parseSeconds(text, 0).ok()) << text;
  }
}

TEST(Counts, AreBounded) {
  RunOptions options;
  options.machines = 32;
  options.procs = 16;
  EXPECT_TRUE(checkCounts(options).ok());
  options.machines = 33;
  EXPECT_FALSE(checkCounts(options).ok());
  options.machines = 1;
  options.masterPort = 65'519;
  EXPECT_TRUE(checkCounts(options).ok());
  options.masterPort = 65'520;
  EXPECT_THAT(std::string(checkCounts(options).message()), HasSubstr("at most 65519"));
}

TEST(Trainer, IsFoundAsExecvpWould) {
  testing::TemporaryDirectory directory;
  makeFile(directory / "trainer", 0755);
  EXPECT_EQ(*checkFiles(optionsFor(directory, "./trainer")), directory.path() + "/./trainer");
  EXPECT_EQ(*checkFiles(optionsFor(directory, directory / "trainer")), directory / "trainer");
  EXPECT_EQ(checkFiles(optionsFor(directory, "trainer")).status().code(), absl::StatusCode::kNotFound);
  RunOptions options = optionsFor(directory, "trainer");
  options.environment = {{"PATH", "/nowhere:" + directory.path()}};
  EXPECT_EQ(*checkFiles(options), directory / "trainer");
}

TEST(Trainer, IsNamed_WhenItCannotBeExecuted) {
  testing::TemporaryDirectory directory;
  makeFile(directory / "data", 0644);
  const auto notExecutable = checkFiles(optionsFor(directory, "./data"));
  EXPECT_EQ(notExecutable.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(notExecutable.status().message()), HasSubstr("./data"));
  EXPECT_EQ(checkFiles(optionsFor(directory, directory.path())).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(checkFiles(optionsFor(directory, "")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(checkFiles(optionsFor(directory, "./missing")).status().message()),
              HasSubstr("./missing"));
}

TEST(Graph, MustHaveAGraphJson) {
  testing::TemporaryDirectory directory;
  makeFile(directory / "trainer", 0755);
  RunOptions options = optionsFor(directory, "./trainer");
  options.graph = directory.path();
  EXPECT_THAT(std::string(checkFiles(options).status().message()), HasSubstr(directory.path()));
  makeFile(directory / "graph.json", 0644);
  EXPECT_TRUE(checkFiles(options).ok());
  options.workingDirectory = directory / "missing";
  EXPECT_THAT(std::string(checkFiles(options).status().message()), HasSubstr("--workdir"));
}

TEST(TrainerEnvironment, ReplacesAnEarlierLaunch) {
  ::setenv("FARHOP_MASTER_FD", "99", 1);
  ::setenv("FARHOP_GRAPH", "old", 1);
  ::setenv("RANK", "77", 1);
  ::setenv("KEPT", "yes", 1);
  AgentOrders orders;
  orders.machines = 2;
  orders.machine = 1;
  orders.start = "gate";
  const auto environment = trainerEnvironment({{"ADDED", "1"}, {"ADDED", "2"}}, *contractOf(orders, 0), 3);
  for (const char* name : {"FARHOP_MASTER_FD", "FARHOP_GRAPH", "RANK", "KEPT"}) ::unsetenv(name);
  EXPECT_THAT(environment, Contains("KEPT=yes"));
  EXPECT_THAT(environment, Contains("ADDED=2"));
  EXPECT_THAT(environment, Contains("RANK=1"));
  EXPECT_THAT(environment, Contains("FARHOP_RESTART_COUNT=3"));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("FARHOP_MASTER_FD"))));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("FARHOP_GRAPH"))));
}

TEST(ShellQuote, LeavesOnlyPlainWordsAlone) {
  EXPECT_EQ(shellQuote("plain-1.0/x"), "plain-1.0/x");
  EXPECT_EQ(shellQuote(""), "''");
  EXPECT_EQ(shellQuote("a b"), "'a b'");
  EXPECT_EQ(shellQuote("it's"), "'it'\\''s'");
  EXPECT_EQ(shellQuote("$x\n"), "'$x\n'");
  EXPECT_EQ(shellQuote("~"), "'~'");
}

}  // namespace
}  // namespace farhop::launcher
