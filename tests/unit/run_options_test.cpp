#include "launcher/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <tuple>

#include "base/file.h"
#include "launcher/job_run.h"
#include "launcher/slurm_backend.h"
#include "launcher/ssh_backend.h"
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
  orders.bind = "core";
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

std::map<std::string, std::string> slurmJob() {
  return {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NODELIST", "n[07-08],gpu"}, {"SLURM_JOB_CPUS_PER_NODE", "8(x2),16"},
          {"SLURM_NTASKS_PER_NODE", "4"}};
}

absl::StatusOr<std::optional<SlurmAllocation>> readAllocation(std::map<std::string, std::string> variables,
                                                              const std::string& name = "", const std::string& value = "") {
  if (!name.empty()) variables[name] = value;
  return readSlurmAllocation([variables](const std::string& wanted) -> std::optional<std::string> {
    const auto found = variables.find(wanted);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(SlurmAllocation, IsReadInBatchScriptsAndInteractiveShells_NotInStepsThatSrunStarted) {
  for (const char* step : {"", "4294967291", "4294967290"}) {
    const auto allocation = readAllocation(slurmJob(), "SLURM_STEP_ID", step);
    ASSERT_TRUE(allocation.ok() && allocation->has_value()) << allocation.status();
    EXPECT_THAT((*allocation)->nodes, ::testing::ElementsAre("n07", "n08", "gpu"));
    EXPECT_THAT((*allocation)->cpus, ::testing::ElementsAre(8, 8, 16));
    EXPECT_EQ((*allocation)->tasksPerNode, 4);
  }
  EXPECT_FALSE(readAllocation(slurmJob(), "SLURM_STEP_ID", "0")->has_value());
  EXPECT_FALSE(readAllocation({})->has_value());
  EXPECT_EQ((*readAllocation(slurmJob(), "SLURM_NTASKS_PER_NODE", ""))->tasksPerNode, 0);
}

TEST(SlurmAllocation, NamesTheVariableThatContradicts) {
  for (const auto& [name, value, message] : {std::tuple{"SLURM_HET_SIZE", "2", "SLURM_HET_SIZE is 2: components of a heterogeneous"},
                                             {"SLURM_JOB_NODELIST", "n[7-", "SLURM_JOB_NODELIST: node list"},
                                             {"SLURM_JOB_NODELIST", "", "SLURM_JOB_NODELIST is not set"},
                                             {"SLURM_JOB_CPUS_PER_NODE", "8", "which is 1 nodes, but there are 3"},
                                             {"SLURM_JOB_CPUS_PER_NODE", "", "SLURM_JOB_CPUS_PER_NODE is not set"},
                                             {"SLURM_JOB_CPUS_PER_NODE", "x", "SLURM_JOB_CPUS_PER_NODE: tasks per node"},
                                             {"SLURM_NTASKS_PER_NODE", "many", "SLURM_NTASKS_PER_NODE is 'many'"}}) {
    const auto allocation = readAllocation(slurmJob(), name, value);
    EXPECT_EQ(allocation.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(allocation.status().message()), HasSubstr(message));
  }
}

RunOptions optionsInSlurm() {
  RunOptions options;
  options.slurm = **readAllocation(slurmJob());
  options.slurm->srun = "/usr/bin/srun";
  options.farhop = "/opt/farhop";
  return options;
}

TEST(SlurmAllocation, GivesTheJobItsNodesAndAgents) {
  RunOptions options = optionsInSlurm();
  ASSERT_TRUE(applySlurmAllocation(options, {}).ok());
  EXPECT_EQ(options.machines, 3);
  EXPECT_EQ(options.procs, 4);
  const Machines machines = machinesOf(options, "job");
  EXPECT_EQ(machines.masterAddr, "n07");
  ASSERT_EQ(machines.agents.size(), 3u);
  const std::vector<std::string>& argv = machines.agents[2].argv;
  EXPECT_EQ(argv.front(), "/usr/bin/srun");
  for (const char* word : {"--nodes=1", "--nodelist=gpu", "--ntasks-per-node=1", "--cpus-per-task=16", "--cpu-bind=none",
                           "--kill-on-bad-exit=1", "--unbuffered", "--export=ALL", "/opt/farhop"}) {
    EXPECT_THAT(argv, Contains(word));
  }
  EXPECT_TRUE(machines.agents[2].remote);
  EXPECT_EQ(machines.agents[2].host, "gpu");
}

TEST(SlurmAllocation, IsUsedInPart_AndRefusedWhenItIsTooSmall) {
  RunOptions options = optionsInSlurm();
  options.machines = 2;
  options.procs = 7;
  ASSERT_TRUE(applySlurmAllocation(options, {.machines = true, .procs = true}).ok());
  EXPECT_EQ(machinesOf(options, "job").agents.size(), 2u);
  EXPECT_EQ(options.procs, 7);
  RunOptions larger = optionsInSlurm();
  larger.machines = 4;
  EXPECT_THAT(std::string(applySlurmAllocation(larger, {.machines = true}).message()),
              HasSubstr("Slurm job 4711 has 3 nodes, but --machines is 4; ask sbatch for --nodes=4"));
  EXPECT_TRUE(absl::IsNotFound(findSrun("/nowhere::/nor/here").status()));
}

}  // namespace
}  // namespace farhop::launcher
