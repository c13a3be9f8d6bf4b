#include "runtime/launch_contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace farhop::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

EnvironmentReader reader(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

absl::StatusOr<LaunchContract> read(const Variables& variables) {
  return readLaunchContract(reader(variables));
}

std::string messageOf(const Variables& variables) {
  const auto contract = read(variables);
  if (contract.ok()) return "no error";
  EXPECT_EQ(contract.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(contract.status().message());
}

Variables completeSet() {
  return {{"FARHOP_NUM_MACHINES", "2"},   {"FARHOP_MACHINE", "1"},         {"FARHOP_PROCS_PER_MACHINE", "3"},
          {"FARHOP_PROC", "2"},           {"FARHOP_MASTER_ADDR", "node1"}, {"FARHOP_MASTER_PORT", "29500"},
          {"FARHOP_JOB_ID", "job-1"},     {"FARHOP_JOB_TOKEN", "secret"},  {"FARHOP_START", "sleep:1.5"},
          {"FARHOP_GRAPH", "/data/graph"}};
}

Variables changed(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(LaunchContract, ReadsACompleteSet) {
  const auto contract = read(completeSet());
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->source, LaunchContract::Source::kFarhop);
  EXPECT_EQ(contract->numMachines, 2);
  EXPECT_EQ(contract->machine, 1);
  EXPECT_EQ(contract->procsPerMachine, 3);
  EXPECT_EQ(contract->proc, 2);
  EXPECT_EQ(contract->worldRank(), 5);
  EXPECT_EQ(contract->worldSize(), 6);
  EXPECT_EQ(contract->masterAddr, "node1");
  EXPECT_EQ(contract->masterPort, 29500);
  EXPECT_EQ(contract->jobId, "job-1");
  EXPECT_EQ(contract->token, "secret");
  EXPECT_FALSE(contract->start.gate);
  EXPECT_EQ(contract->start.sleepStep.count(), 1500);
  EXPECT_EQ(contract->graph, "/data/graph");
  EXPECT_EQ(contract->masterFd, -1);
  EXPECT_THAT(masterPortCandidates(*contract), ElementsAre(29500));
}

TEST(LaunchContract, WritesWhatItReads) {
  auto contract = read(completeSet());
  ASSERT_TRUE(contract.ok());
  contract->machine = 0;
  contract->masterFd = 7;
  contract->launcherFd = 8;
  contract->start = {true, {}, 3};
  contract->binding = {BindTo::kNuma, true};
  contract->memoryEstimateBytes = 1 << 20;
  const Variables written = launchEnvironment(*contract);
  const auto again = read(written);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(launchEnvironment(*again), written);
  EXPECT_EQ(written.at("RANK"), "2");
  EXPECT_EQ(written.at("WORLD_SIZE"), "6");
  EXPECT_EQ(written.at("LOCAL_RANK"), "2");
  EXPECT_EQ(written.at("LOCAL_WORLD_SIZE"), "3");
  EXPECT_EQ(written.at("GROUP_RANK"), "0");
  EXPECT_EQ(written.at("MASTER_ADDR"), "node1");
  EXPECT_EQ(written.at("MASTER_PORT"), "29503");  // after the groups' own ports
  EXPECT_EQ(written.at("FARHOP_MASTER_FD"), "7");
  EXPECT_EQ(written.at("FARHOP_LAUNCHER_FD"), "8");
}

TEST(LaunchContract, IgnoresTorchAndSlurm_WhenTheSetIsComplete) {
  Variables variables = completeSet();
  variables.insert({{"RANK", "99"}, {"WORLD_SIZE", "100"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NODEID", "x"}});
  const auto contract = read(variables);
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->worldRank(), 5);
}

TEST(LaunchContract, NamesEveryMissingVariable_WhenTheSetIsHalf) {
  for (const char* name : {"FARHOP_NUM_MACHINES", "FARHOP_MACHINE", "FARHOP_PROCS_PER_MACHINE", "FARHOP_PROC",
                           "FARHOP_MASTER_ADDR", "FARHOP_MASTER_PORT", "FARHOP_JOB_ID", "FARHOP_JOB_TOKEN"}) {
    Variables variables = completeSet();
    variables.erase(name);
    EXPECT_THAT(messageOf(variables), HasSubstr(std::string("but ") + name + " is not"));
    variables[name] = "";  // an empty one counts as unset
    EXPECT_THAT(messageOf(variables), HasSubstr(std::string("but ") + name + " is not"));
  }
  const std::string message = messageOf({{"FARHOP_MACHINE", "0"}, {"FARHOP_PROC", "0"}});
  EXPECT_THAT(message, HasSubstr("FARHOP_MACHINE, FARHOP_PROC is set"));
  EXPECT_THAT(message, HasSubstr("FARHOP_NUM_MACHINES, FARHOP_PROCS_PER_MACHINE, FARHOP_MASTER_ADDR"));
  EXPECT_THAT(messageOf({{"FARHOP_MASTER_FD", "5"}}),
              HasSubstr("FARHOP_MASTER_FD is set, but FARHOP_NUM_MACHINES"));
}

TEST(LaunchContract, NamesTheVariable_WhenTheSetContradictsItself) {
  struct Case {
    const char* name;
    const char* value;
    const char* message;
  };
  for (const Case& c : {
           Case{"FARHOP_MACHINE", "2", "FARHOP_MACHINE is 2, but FARHOP_NUM_MACHINES is 2"},
           Case{"FARHOP_PROC", "3", "FARHOP_PROC is 3, but FARHOP_PROCS_PER_MACHINE is 3"},
           Case{"FARHOP_PROC", "-1", "FARHOP_PROC is '-1'"},
           Case{"FARHOP_PROC", " 1", "FARHOP_PROC is ' 1'"},
           Case{"FARHOP_PROC", "1x", "FARHOP_PROC is '1x'"},
           Case{"FARHOP_PROC", "99999999999999999999999", "FARHOP_PROC is '9999"},
           Case{"FARHOP_NUM_MACHINES", "0", "FARHOP_NUM_MACHINES is 0: it must be between 1 and 65536"},
           Case{"FARHOP_PROCS_PER_MACHINE", "2000", "FARHOP_PROCS_PER_MACHINE is 2000"},
           Case{"FARHOP_MASTER_PORT", "0", "FARHOP_MASTER_PORT is 0: it must be between 1 and 65535"},
           Case{"FARHOP_MASTER_PORT", "65536", "FARHOP_MASTER_PORT is 65536"},
           Case{"FARHOP_MASTER_PORT", "65533", "choose one of at most 65532"},
           Case{"FARHOP_MASTER_ADDR", "a b", "FARHOP_MASTER_ADDR is 'a b'"},
           Case{"FARHOP_JOB_ID", "a/b", "FARHOP_JOB_ID is 'a/b'"},
           Case{"FARHOP_JOB_TOKEN", "my secret", "FARHOP_JOB_TOKEN must be"},
           Case{"FARHOP_START", "later", "FARHOP_START: start mode 'later'"},
           Case{"FARHOP_START", "gate:0", "FARHOP_START: start mode gate's width is 0: it must be between 1 and 1024"},
           Case{"FARHOP_BIND", "cores", "FARHOP_BIND: binding 'cores': it must be none, core, numa"},
           Case{"FARHOP_MEMORY_ESTIMATE", "much", "FARHOP_MEMORY_ESTIMATE is 'much'"},
           Case{"FARHOP_MASTER_FD", "5", "FARHOP_MASTER_FD is set, but FARHOP_MACHINE is 1"},
           Case{"FARHOP_MASTER_FD", "five", "FARHOP_MASTER_FD is 'five'"},
           Case{"FARHOP_LAUNCHER_FD", "-1", "FARHOP_LAUNCHER_FD is '-1'"},
       }) {
    EXPECT_THAT(messageOf(changed(completeSet(), c.name, c.value)), HasSubstr(c.message))
        << c.name << "=" << c.value;
  }
  EXPECT_THAT(messageOf(changed(completeSet(), "FARHOP_JOB_TOKEN", "my secret")),
              Not(HasSubstr("my secret")));
  EXPECT_TRUE(read(changed(completeSet(), "FARHOP_MASTER_PORT", "65532")).ok());
}

TEST(LaunchContract, IsASingleProcess_WhenNothingIsSet) {
  const auto contract = read({{"FARHOP_GRAPH", "g"}, {"FARHOP_START", "sleep:0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->source, LaunchContract::Source::kSingle);
  EXPECT_EQ(contract->worldSize(), 1);
  EXPECT_EQ(contract->masterPort, 0);
  EXPECT_EQ(contract->graph, "g");
  EXPECT_THAT(contract->jobId, ::testing::StartsWith("single-"));
  EXPECT_EQ(contract->token.size(), 32u);
  EXPECT_TRUE(read(launchEnvironment(*contract)).ok());
}

TEST(LaunchContract, RefusesToTrainAlone_WhenTorchsWorldIsLarger) {
  EXPECT_THAT(messageOf({{"WORLD_SIZE", "4"}, {"RANK", "0"}}), HasSubstr("WORLD_SIZE is 4"));
}

Variables slurmStep() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_NODEID", "1"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_PROCID", "1"},  // cyclic distribution: arithmetic on it would say machine 0, process 1
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_NNODES", "8"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
          {"SLURM_TASKS_PER_NODE", "16(x8)"},
          {"SLURM_STEP_NODELIST", "gpu[07-08],login"},
          {"SLURM_JOB_NODELIST", "gpu[01-08]"},
          {"SLURM_JOB_UID", "1000"}};
}

TEST(SlurmStep, TakesItsPlaceFromNodeAndLocalIds) {
  const auto contract = read(slurmStep());
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->source, LaunchContract::Source::kSlurm);
  EXPECT_EQ(contract->numMachines, 3);
  EXPECT_EQ(contract->machine, 1);
  EXPECT_EQ(contract->procsPerMachine, 2);
  EXPECT_EQ(contract->proc, 0);
  EXPECT_EQ(contract->worldRank(), 2);
  EXPECT_EQ(contract->masterAddr, "gpu07");
  EXPECT_EQ(contract->jobId, "slurm-4711-3");
  EXPECT_EQ(contract->token.size(), 32u);
}

TEST(SlurmStep, AgreesOnPortAndTokenInAllItsProcesses) {
  const auto one = read(slurmStep());
  const auto other = read(changed(changed(slurmStep(), "SLURM_NODEID", "2"), "SLURM_LOCALID", "1"));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->masterPort, other->masterPort);
  EXPECT_EQ(one->token, other->token);
  EXPECT_EQ(masterPortCandidates(*one), masterPortCandidates(*other));
  for (const auto& [name, value] : Variables{{"SLURM_JOB_ID", "4712"}, {"SLURM_STEP_ID", "4"}}) {
    const auto next = read(changed(slurmStep(), name, value));
    ASSERT_TRUE(next.ok());
    EXPECT_NE(one->masterPort, next->masterPort) << name;
    EXPECT_NE(one->token, next->token) << name;
  }
  EXPECT_NE(one->token, read(changed(slurmStep(), "SLURM_JOB_UID", "1001"))->token);
}

TEST(SlurmStep, KeepsItsPortsInTheDocumentedRange) {
  for (int procs : {1, 2, 3, 7, 64, 1024}) {
    for (int job = 1; job < 3000; job += 7) {
      Variables variables = changed(slurmStep(), "SLURM_JOB_ID", std::to_string(job));
      variables["SLURM_STEP_TASKS_PER_NODE"] = std::to_string(procs) + "(x3)";
      const auto contract = read(variables);
      ASSERT_TRUE(contract.ok()) << contract.status();
      std::vector<uint16_t> ports = masterPortCandidates(*contract);
      ASSERT_EQ(ports.size(), 4u);
      for (uint16_t port : ports) {
        ASSERT_GE(port, kSlurmFirstPort);
        ASSERT_LE(port + procs, kSlurmEndPort);
      }
      std::sort(ports.begin(), ports.end());
      for (size_t i = 1; i < ports.size(); ++i) ASSERT_GE(ports[i] - ports[i - 1], procs);
    }
  }
}

TEST(SlurmStep, FallsBackToTheJobsVariables) {
  Variables variables = slurmStep();
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"}) {
    variables.erase(name);
  }
  const auto contract = read(variables);
  ASSERT_TRUE(contract.ok()) << contract.status();
  EXPECT_EQ(contract->numMachines, 8);
  EXPECT_EQ(contract->procsPerMachine, 16);
  EXPECT_EQ(contract->masterAddr, "gpu01");
}

TEST(SlurmStep, ExplainsWhatItRefuses) {
  const auto message = [](const char* name, const char* value) {
    return messageOf(changed(slurmStep(), name, value));
  };
  EXPECT_THAT(message("SLURM_STEP_TASKS_PER_NODE", "2(x2),1"), HasSubstr("the same number of processes"));
  EXPECT_THAT(message("SLURM_STEP_TASKS_PER_NODE", "2"), HasSubstr("1 nodes, but the step has 3"));
  EXPECT_THAT(message("SLURM_STEP_TASKS_PER_NODE", "2(x"),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE: tasks per node"));
  EXPECT_THAT(message("SLURM_STEP_TASKS_PER_NODE", "0(x3)"), HasSubstr("1 to 1024 processes"));
  EXPECT_THAT(message("SLURM_HET_SIZE", "2"), HasSubstr("heterogeneous"));
  EXPECT_THAT(message("SLURM_NODEID", "3"), HasSubstr("SLURM_NODEID is 3, but SLURM_STEP_NUM_NODES is 3"));
  EXPECT_THAT(message("SLURM_LOCALID", "2"), HasSubstr("SLURM_LOCALID is 2"));
  EXPECT_THAT(message("SLURM_STEP_NODELIST", "a,b"), HasSubstr("SLURM_STEP_NODELIST names 2 nodes"));
  EXPECT_THAT(message("SLURM_STEP_NODELIST", "a[1-"), HasSubstr("SLURM_STEP_NODELIST: node list"));
  EXPECT_THAT(message("SLURM_JOB_ID", ""), HasSubstr("SLURM_JOB_ID is not set"));
  EXPECT_THAT(message("SLURM_STEP_ID", "x"), HasSubstr("SLURM_STEP_ID is 'x'"));
  EXPECT_THAT(message("SLURM_NODEID", ""), HasSubstr("SLURM_NODEID is not set"));
}

TEST(SlurmStep, IsASingleProcess_InBatchScriptsAndInteractiveShells) {
  for (const char* step : {"", "4294967291", "4294967290"}) {
    const auto contract = read(changed(slurmStep(), "SLURM_STEP_ID", step));
    ASSERT_TRUE(contract.ok()) << contract.status();
    EXPECT_EQ(contract->source, LaunchContract::Source::kSingle) << step;
  }
}

TEST(StartMode, ReadsAndWritesBothModes) {
  EXPECT_TRUE(parseStartMode("gate")->gate);
  for (const char* text : {"sleep:0", "sleep:90", "sleep:0.250", "gate"}) {
    const auto mode = parseStartMode(text);
    ASSERT_TRUE(mode.ok()) << mode.status();
    EXPECT_EQ(formatStartMode(*mode), text);
  }
  for (const char* text : {"", "Gate", "sleep", "sleep:", "sleep:-1", "sleep:nan", "sleep:inf", "sleep:1e3",
                           "sleep:86401", "sleep:1.2.3", "sleep: 1", "sleep:1s"}) {
    EXPECT_FALSE(parseStartMode(text).ok()) << text;
  }
}

TEST(NodeList, ExpandsWhatSlurmWrites) {
  EXPECT_THAT(*expandNodeList("n1"), ElementsAre("n1"));
  EXPECT_THAT(*expandNodeList("n[001-003,7],gpu-a"), ElementsAre("n001", "n002", "n003", "n7", "gpu-a"));
  EXPECT_THAT(*expandNodeList("n[09-11]"), ElementsAre("n09", "n10", "n11"));
  EXPECT_THAT(*expandNodeList("r[1-2]n[08-09]-ib"),
              ElementsAre("r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"));
  EXPECT_THAT(*expandNodeList("[1-2].local,x_y"), ElementsAre("1.local", "2.local", "x_y"));
}

TEST(NodeList, RefusesWhatSlurmWouldNotWrite) {
  for (const char* text : {"", ",", "a,", ",a", "a[", "a[]", "a[1", "a[1-", "a[3-1]", "a[1-2", "a]", "a[x]",
                           "a b", "a[1,]", "a[1--2]", "a[0000000001]", "a/b", "a[1-2]]"}) {
    EXPECT_FALSE(expandNodeList(text).ok()) << text;
  }
  EXPECT_FALSE(expandNodeList(std::string(300, 'a')).ok());
  EXPECT_FALSE(expandNodeList(std::string((1 << 20) + 1, 'a')).ok());
}

TEST(NodeList, IsBounded) {
  EXPECT_EQ(expandNodeList("n[1-65536]")->size(), 65536u);
  EXPECT_FALSE(expandNodeList("n[1-65537]").ok());
  EXPECT_FALSE(expandNodeList("n[1-999999999]").ok());
  EXPECT_FALSE(expandNodeList("n[1-1000]m[1-1000]").ok());
  EXPECT_FALSE(expandNodeList("n[1-65536],m").ok());
  EXPECT_FALSE(expandNodeList("n[1-60000]" + std::string(900'000, 'x')).ok());  // not 60,000 copies first
}

TEST(TasksPerNode, ExpandsRepetitions) {
  EXPECT_THAT(*expandTasksPerNode("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(*expandTasksPerNode("1"), ElementsAre(1));
  for (const char* text :
       {"", "x", "4(", "4(x", "4(x2", "4(2)", "4(x0)", "4,", "-1", "4(x65537)", "4(x40000),4(x40000)"}) {
    EXPECT_FALSE(expandTasksPerNode(text).ok()) << text;
  }
}

TEST(LaunchContract, OfHandIsRefusedByTheNameOfItsField_WhenItCannotWork) {
  LaunchContract good;
  good.numMachines = 2;
  good.machine = 1;
  good.procsPerMachine = 3;
  good.proc = 2;
  good.masterPort = 29'500;
  good.jobId = "job";
  good.token = "secret";
  ASSERT_TRUE(checkContract(good).ok()) << checkContract(good);
  const struct {
    const char* field;
    std::function<void(LaunchContract&)> spoil;
  } cases[] = {
      {"numMachines", [](LaunchContract& c) { c.numMachines = 0; }},
      {"numMachines", [](LaunchContract& c) { c.numMachines = kMaxMachines + 1; }},
      {"machine", [](LaunchContract& c) { c.machine = 2; }},
      {"machine", [](LaunchContract& c) { c.machine = -1; }},
      {"procsPerMachine", [](LaunchContract& c) { c.procsPerMachine = 0; }},
      {"procsPerMachine", [](LaunchContract& c) { c.procsPerMachine = -1; }},
      {"procsPerMachine", [](LaunchContract& c) { c.procsPerMachine = 1 << 30; }},
      {"proc", [](LaunchContract& c) { c.proc = 3; }},
      {"proc", [](LaunchContract& c) { c.proc = -1; }},
      {"masterPort", [](LaunchContract& c) { c.masterPort = 0; }},
      {"masterPort", [](LaunchContract& c) { c.masterPort = 65'534; }},
      {"masterAddr", [](LaunchContract& c) { c.masterAddr = ""; }},
      {"masterAddr", [](LaunchContract& c) { c.masterAddr = "two words"; }},
      {"jobId", [](LaunchContract& c) { c.jobId = ""; }},
      {"jobId", [](LaunchContract& c) { c.jobId = "a/b"; }},
      {"token", [](LaunchContract& c) { c.token = ""; }},
      {"token", [](LaunchContract& c) { c.token = std::string(257, 'x'); }},
      {"masterFd", [](LaunchContract& c) { c.masterFd = 3; }},  // on machine 1
      {"start.sleepStep", [](LaunchContract& c) { c.start = {false, std::chrono::milliseconds(-1)}; }},
  };
  for (const auto& c : cases) {
    LaunchContract spoilt = good;
    c.spoil(spoilt);
    const absl::Status status = checkContract(spoilt);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.field << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(std::string(c.field) + " "));
  }
}

TEST(LaunchContract, OfASingleProcessNeedsNothing) {
  LaunchContract alone;
  EXPECT_TRUE(checkContract(alone).ok()) << checkContract(alone);
  alone.masterAddr = "";
  EXPECT_TRUE(checkContract(alone).ok());
  alone.jobId = "not a job id";
  EXPECT_TRUE(absl::IsInvalidArgument(checkContract(alone)));
}

}  // namespace
}  // namespace farhop::runtime
