// Agents that end before their job does: told to by a signal, as when a node is taken away, and killed. And agents that are
// not of this farhop's build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "launcher/job_processes.h"
#include "launcher/supervisor.h"
#include "tests/multiproc/farhop_process.h"

namespace farhop::testing {
namespace {

using launcher::findJobProcesses;
using launcher::FoundProcess;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr milliseconds kSlack{2'500};
#else
constexpr milliseconds kSlack{0};
#endif

const std::string kLoop = "while :; do sleep 0.05; done";

// What stands behind a name in a file of /proc, up to the end of its line.
std::string lineOf(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) == 0) return line.substr(line.find_first_not_of(" \t", name.size()));
  }
  return "";
}

// The agent of a machine: the parent of its process 0 that is no trainer itself. -1: there is none.
int agentOf(const std::string& jobId, int machine) {
  for (const FoundProcess& trainer : findJobProcesses(jobId)) {
    if (trainer.machine != machine || trainer.proc != 0) continue;
    const std::string parent = lineOf(absl::StrCat("/proc/", trainer.pid, "/status"), "PPid:");
    for (const FoundProcess& agent : findJobProcesses(jobId)) {
      if (std::to_string(agent.pid) == parent && agent.machine < 0) return agent.pid;
    }
  }
  return -1;
}

size_t countOf(const std::string& jobId, int machine) {
  size_t count = 0;
  for (const FoundProcess& process : findJobProcesses(jobId)) count += process.machine == machine ? 1 : 0;
  return count;
}

// For messages: all that a job has.
std::string listOf(const std::string& jobId) {
  std::string list;
  for (const FoundProcess& process : findJobProcesses(jobId)) {
    absl::StrAppend(&list, "pid ", process.pid, " of machine ", process.machine, ": ", process.command, "\n");
  }
  return list;
}

// A zombie has no command line.
bool runs(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  return file.peek() != std::ifstream::traits_type::eof();
}

bool allSaid(const FarhopProcess& farhop, int machines, int procs, const std::string& line) {
  return eventually([&] {
    for (int rank = 0; rank < machines * procs; ++rank) {
      const Words lines = farhop.linesOf(rank / procs, rank % procs);
      if (lines.empty() || lines.back() != line) return false;
    }
    return true;
  });
}

TEST(AgentOfAPreemptedMachine, GivesItsTrainersTheGrace_AndTheJobEndsWithIt) {
  FarhopProcess farhop(farhopRun(four({"--grace", "20", "--max-restarts", "2"}),
                                 shell("trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; " + kLoop)));
  ASSERT_TRUE(allSaid(farhop, 2, 2, "ready")) << farhop.err();
  ASSERT_EQ(::kill(agentOf(farhop.jobId(), 1), SIGTERM), 0);
  EXPECT_EQ(farhop.wait(), 143) << farhop.err();
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(farhop.linesOf(rank / 2, rank % 2), ElementsAre("ready", "saved"));
  EXPECT_THAT(farhop.err(), HasSubstr("machine 1 is taken away (its agent received SIGTERM): ending the job; trainers have 20 s"));
  EXPECT_THAT(farhop.err(), AllOf(Not(HasSubstr("lost")), Not(HasSubstr("failed")), Not(HasSubstr("again ("))));
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

TEST(AgentOfAPreemptedMachine, CountsAsAStop_WhenAllTrainersStop) {
  FarhopProcess farhop(farhopRun(kFour, shell("trap 'exit 75' TERM; echo ready; " + kLoop)));
  ASSERT_TRUE(allSaid(farhop, 2, 2, "ready")) << farhop.err();
  ASSERT_EQ(::kill(agentOf(farhop.jobId(), 0), SIGTERM), 0);
  EXPECT_EQ(farhop.wait(), 75) << farhop.err();
  EXPECT_THAT(farhop.err(), HasSubstr("machine 0 is taken away"));
}

TEST(AgentOfAPreemptedMachine, KillsThemAfterTheGrace_HoweverOftenItIsTold) {
  FarhopProcess farhop(farhopRun(four({"--grace", "0.7"}), {TEST_TRAINER, "stubborn"}));
  ASSERT_TRUE(allSaid(farhop, 2, 2, "stubborn")) << farhop.err();
  const int agent = agentOf(farhop.jobId(), 1);
  const auto begin = Clock::now();
  ASSERT_EQ(::kill(agent, SIGTERM), 0);
  ASSERT_TRUE(farhop.awaitErr("is taken away"));
  ASSERT_EQ(::kill(agent, SIGTERM), 0);
  EXPECT_EQ(farhop.wait(), 143) << farhop.err();
  EXPECT_GE(Clock::now() - begin, milliseconds(600));
  EXPECT_LT(Clock::now() - begin, milliseconds(4'000) + kSlack);
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

// The connection of a node that is taken away ends as well, with the launcher's end of it.
TEST(AgentOfAPreemptedMachine, KeepsTheGrace_WhenItsConnectionEndsMeanwhile) {
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun({"--procs", "2", "--grace", "30"},
                                 shell("trap 'echo asked; while [ ! -e " + (directory / "go") + " ]; do sleep 0.05; done; "
                                       "head -c 1000000 /dev/zero; : > " + (directory / "saved-") + "$RANK; exit 0' TERM\n"
                                       "echo ready; " + kLoop)));
  ASSERT_TRUE(allSaid(farhop, 1, 2, "ready")) << farhop.err();
  const std::string id = farhop.jobId();
  const int agent = agentOf(id, 0);
  ASSERT_EQ(::kill(agent, SIGTERM), 0);
  ASSERT_TRUE(allSaid(farhop, 1, 2, "asked")) << farhop.err();
  ::kill(farhop.pid(), SIGKILL);
  EXPECT_EQ(farhop.wait(5), 128 + SIGKILL);
  // Without a grace it would end at once.
  EXPECT_FALSE(eventually([&] { return !runs(agent); }, 1));
  std::ofstream(directory / "go") << "";
  // Nobody reads what they write any more, and it is more than pipes hold.
  for (const char* file : {"saved-0", "saved-1"}) {
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(directory / file); })) << file;
  }
  EXPECT_TRUE(isGone(id));
}

TEST(AgentThatIsKilled, TakesAlongWhatItsTrainersHaveStarted_AndNothingElse) {
  TemporaryDirectory directory;
  // Of each trainer a child in its group, one in a session of its own, and one in the group with no trace of the job.
  FarhopProcess farhop(farhopRun({"--machines", "2"},
                                 shell("sleep 300 & setsid sleep 300 & env -i sleep 300 & echo $! > " +
                                       (directory / "bare-") + "$RANK; exec sleep 300")));
  const std::string id = farhop.jobId();
  ASSERT_TRUE(eventually([&] { return countOf(id, 0) == 3 && countOf(id, 1) == 3; })) << farhop.err();
  int bare[2] = {0, 0};
  for (int m = 0; m < 2; ++m) {
    ASSERT_TRUE(eventually([&] {
      std::ifstream(directory / absl::StrCat("bare-", m)) >> bare[m];
      return runs(bare[m]) && countOf(id, m) == 3;
    }));
  }
  const int agents[2] = {agentOf(id, 0), agentOf(id, 1)};
  ASSERT_GT(agents[0], 0);
  // On one machine the launcher would end them: it adopts what an agent leaves.
  ::kill(farhop.pid(), SIGSTOP);
  ASSERT_EQ(::kill(agents[1], SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return countOf(id, 1) == 0 && !runs(bare[1]); })) << countOf(id, 1);
  EXPECT_EQ(countOf(id, 0), 3u) << listOf(id);
  EXPECT_TRUE(runs(bare[0]) && runs(agents[0]));
  ::kill(farhop.pid(), SIGCONT);
  EXPECT_EQ(farhop.wait(), 255) << farhop.err();
  EXPECT_THAT(farhop.err(), HasSubstr("machine 1 is lost: its agent ended with signal 9 (SIGKILL)"));
  EXPECT_TRUE(isGone(id, 1)) << listOf(id);
  EXPECT_FALSE(runs(bare[0]));
}

TEST(AgentThatIsKilled, HasAWatcherThatTakesLittleMemory_AndIgnoresSignals) {
  FarhopProcess farhop(farhopRun({}, shell("echo ready; exec sleep 300")));
  ASSERT_TRUE(farhop.awaitOut("ready"));
  int watcher = 0;
  for (const FoundProcess& process : findJobProcesses(farhop.jobId())) {
    if (lineOf(absl::StrCat("/proc/", process.pid, "/status"), "Name:") == "farhop-watcher") watcher = process.pid;
  }
  ASSERT_GT(watcher, 0);
  const std::string anonymous = lineOf(absl::StrCat("/proc/", watcher, "/smaps_rollup"), "Private_Dirty:");
  RecordProperty("watcherPrivateDirty", anonymous);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(std::atoi(anonymous.c_str()), 1'000) << anonymous;
#endif
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) ::kill(watcher, signal);
  ::kill(farhop.pid(), SIGTERM);
  EXPECT_EQ(farhop.wait(), 143);
  EXPECT_TRUE(isGone(farhop.jobId(), 1));
}

// Two builds of one version can differ in what they say to each other.
TEST(AgentOfAnotherBuild, IsRefusedClearly_BeforeItGetsOrders) {
  using namespace farhop::launcher;
  TemporaryDirectory directory;
  const std::string hello = encode(AgentHello{kAgentProtocol - 1, "1.2.3", "", 0});
  std::string bytes = kAgentMagic + encodeNumber(static_cast<uint32_t>(hello.size()));
  bytes += static_cast<char>(FrameKind::kHello);
  std::ofstream(directory / "hello", std::ios::binary) << bytes + hello;
  AgentCommand command;
  command.argv = {"/bin/sh", "-c", "cat " + (directory / "hello") + "; exec cat > " + (directory / "orders")};
  command.host = "h1";
  std::vector<JobMachine> machines;
  auto machine = JobMachine::connect(command, 0, {"PATH=/usr/bin:/bin"}, std::nullopt);
  ASSERT_TRUE(machine.ok()) << machine.status();
  Terminals terminals;
  auto output = OutputPump::open("m0 p0", 0, directory / "log", terminals);
  ASSERT_TRUE(output.ok()) << output.status();
  machine->processes.push_back(JobProcess{0, 0, "h1", " (h1)", *std::move(output), 0, std::nullopt});
  machines.push_back(*std::move(machine));
  SupervisorOptions options;
  options.version = "1.2.3";
  FileDescriptor signals(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const auto result = Supervisor(machines, options, terminals, signals).run();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("machine 0 (h1): farhop 1.2.3 with protocol " + std::to_string(kAgentProtocol - 1)),
                    HasSubstr("this is farhop 1.2.3 with protocol " + std::to_string(kAgentProtocol)), HasSubstr("install the same")));
  EXPECT_TRUE(!std::filesystem::exists(directory / "orders") || std::filesystem::is_empty(directory / "orders"));
}

}  // namespace
}  // namespace farhop::testing
