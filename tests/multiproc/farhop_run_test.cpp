// farhop run: what trainers get, and what the command line refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/socket.h"
#include "tests/multiproc/farhop_process.h"

namespace farhop::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string hex(const std::string& text) {
  std::string result;
  for (unsigned char c : text) {
    result += "0123456789abcdef"[c >> 4];
    result += "0123456789abcdef"[c & 15];
  }
  return result;
}

TEST(FarhopRun, GivesEveryProcessItsPlace) {
  FarhopProcess farhop(farhopRun(
      {"--machines", "2", "--procs", "3", "--start", "sleep:0.5", "--env", "ADDED=a b"}, {TEST_TRAINER}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto found = farhop.descriptions();
  ASSERT_EQ(found.size(), 6u) << farhop.out();
  std::set<int> ranks;
  std::set<std::string> tokens;
  for (int m = 0; m < 2; ++m) {
    for (int p = 0; p < 3; ++p) {
      const auto& d = found.at(absl::StrCat("m", m, " p", p));
      EXPECT_EQ(d["machine"], m);
      EXPECT_EQ(d["proc"], p);
      EXPECT_EQ(d["numMachines"], 2);
      EXPECT_EQ(d["procsPerMachine"], 3);
      EXPECT_EQ(d["start"], "sleep:0.500");
      EXPECT_EQ(d["jobId"], farhop.jobId());
      EXPECT_EQ(d["env"]["RANK"], std::to_string(m * 3 + p));
      EXPECT_EQ(d["env"]["WORLD_SIZE"], "6");
      EXPECT_EQ(d["env"]["LOCAL_RANK"], std::to_string(p));
      EXPECT_EQ(d["env"]["LOCAL_WORLD_SIZE"], "3");
      EXPECT_EQ(d["env"]["GROUP_RANK"], std::to_string(m));
      EXPECT_EQ(d["env"]["MASTER_ADDR"], "127.0.0.1");
      EXPECT_EQ(d["env"]["MASTER_PORT"], std::to_string(d["masterPort"].get<int>() + 3));
      EXPECT_EQ(d["env"]["ADDED"], "a b");
      EXPECT_EQ(d["group"], true);
      tokens.insert(d["token"]);
    }
  }
  EXPECT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens.begin()->size(), 32u);
  EXPECT_THAT(farhop.err(), Not(HasSubstr(*tokens.begin())));
}

TEST(FarhopRun, HandsEachGroupsListenerToMachineZero) {
  FarhopProcess farhop(farhopRun({"--machines", "2", "--procs", "2"}, {TEST_TRAINER}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto found = farhop.descriptions();
  ASSERT_EQ(found.size(), 4u);
  const int base = found.at("m0 p0")["masterPort"];
  EXPECT_EQ(found.at("m0 p0")["listenerPort"], base);
  EXPECT_EQ(found.at("m0 p1")["listenerPort"], base + 1);
  EXPECT_EQ(found.at("m1 p0")["env"]["FARHOP_MASTER_FD"], nullptr);
  EXPECT_EQ(found.at("m1 p1")["env"]["FARHOP_MASTER_FD"], nullptr);
  EXPECT_EQ(found.at("m1 p1")["masterPort"], base);
}

TEST(FarhopRun, HandsNoListenerOver_ToAJobOfOneMachine) {
  FarhopProcess farhop(farhopRun({"--procs", "2"}, {TEST_TRAINER}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  for (const auto& [name, description] : farhop.descriptions()) {
    EXPECT_EQ(description["env"]["FARHOP_MASTER_FD"], nullptr) << name;
    EXPECT_EQ(description["listenerPort"], 0) << name;
  }
}

TEST(FarhopRun, GivesNoOtherDescriptorsAway) {
  // What this test inherited without close-on-exec goes through everything; nothing else may.
  std::set<std::string> known;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    known.insert(std::filesystem::read_symlink(entry.path(), ignored));
  }
  FarhopProcess farhop(farhopRun({"--machines", "2", "--procs", "2"}, {TEST_TRAINER}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto found = farhop.descriptions();
  ASSERT_EQ(found.size(), 4u);
  for (const auto& [name, description] : found) {
    Words unknown;
    for (const std::string& target : description["descriptors"].get<Words>()) {
      if (known.count(target) == 0) unknown.push_back(target);
    }
    // The one on which the launcher tells of the others' ends; and a master's own.
    EXPECT_EQ(unknown.size(), description["machine"] == 0 ? 2u : 1u)
        << name << ::testing::PrintToString(unknown);
    for (const std::string& target : unknown) EXPECT_THAT(target, HasSubstr("socket:"));
  }
}

TEST(FarhopRun, PassesArgumentsUntouched) {
  const Words arguments{"describe", "",       " a  b ",   "it's \"quoted\"", "$HOME `id` \\ * ?", "new\nline",
                        "--",       "--help", "-x=[1,2]", "[a,b]",           "\xff\xfe",          "%s%n"};
  Words trainer{TEST_TRAINER};
  trainer.insert(trainer.end(), arguments.begin(), arguments.end());
  FarhopProcess farhop(farhopRun({}, trainer));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto description = farhop.descriptions().at("m0 p0");
  Words expected;
  for (const std::string& word : trainer) expected.push_back(hex(word));
  EXPECT_EQ(description["argv"].get<Words>(), expected);
}

TEST(FarhopRun, TakesTorchrunsWords) {
  for (const Words& options :
       {Words{"--nnodes", "2", "--nproc-per-node", "2"}, Words{"--nnodes=2", "--nproc_per_node=2"}}) {
    FarhopProcess farhop(farhopRun(options, {TEST_TRAINER}));
    ASSERT_EQ(farhop.wait(), 0) << farhop.err();
    EXPECT_EQ(farhop.descriptions().size(), 4u);
  }
}

TEST(FarhopRun, IsHoprun) {
  const std::string hoprun = std::filesystem::path(FARHOP_PROGRAM).parent_path() / "hoprun";
  FarhopProcess farhop({hoprun, "--procs", "2", "--", TEST_TRAINER});
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_EQ(farhop.descriptions().size(), 2u);
  FarhopProcess version({hoprun, "--version"});
  EXPECT_EQ(version.wait(), 0);
  EXPECT_THAT(version.out(), HasSubstr("farhop 0."));
  FarhopProcess help({hoprun, "--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_THAT(help.out(), HasSubstr("--machines"));
  EXPECT_THAT(help.out(), HasSubstr("Examples:"));
}

TEST(FarhopRun, StartsWhereItIsTold_AndKeepsTheGraphsPath) {
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "graph");
  std::ofstream(directory / "graph/graph.json") << "{}";
  const std::string relative = std::filesystem::relative(directory / "graph");
  FarhopProcess farhop(farhopRun({"--workdir", directory.path(), "--graph", relative}, {TEST_TRAINER}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto description = farhop.descriptions().at("m0 p0");
  EXPECT_EQ(description["workdir"], std::filesystem::canonical(directory.path()).string());
  EXPECT_TRUE(std::filesystem::equivalent(description["graph"].get<std::string>(), directory / "graph"));
  FarhopProcess inherited(farhopRun({}, {TEST_TRAINER}), {{"FARHOP_GRAPH", directory / "graph"}});
  ASSERT_EQ(inherited.wait(), 0) << inherited.err();
  EXPECT_EQ(inherited.descriptions().at("m0 p0")["graph"], directory / "graph");
}

TEST(FarhopRun, RefusesAPortInUse_BeforeAnythingStarts) {
  const auto taken = listenTcp({"127.0.0.1", 0}, 1);
  ASSERT_TRUE(taken.ok());
  const std::string port = std::to_string(*boundPort(taken->get()));
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun({"--master-port", port}, {"/usr/bin/touch", directory / "started"}));
  EXPECT_EQ(farhop.wait(), 1);
  EXPECT_THAT(farhop.err(), HasSubstr("port " + port));
  EXPECT_FALSE(std::filesystem::exists(directory / "started"));
  EXPECT_THAT(farhop.temporary(), IsEmpty());
}

TEST(FarhopRun, UsesTheMasterPortItIsGiven) {
  // A port that was free may be somebody else's by the time farhop takes it; not five times in a row.
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto listener = listenTcp({"127.0.0.1", 0}, 1);
    ASSERT_TRUE(listener.ok());
    const uint16_t port = *boundPort(listener->get());
    listener->reset();
    FarhopProcess farhop(farhopRun({"--machines", "2", "--master-port", std::to_string(port)}, {TEST_TRAINER}));
    if (farhop.wait() == 1) continue;
    EXPECT_EQ(farhop.descriptions().at("m0 p0")["listenerPort"], port);
    EXPECT_EQ(farhop.descriptions().at("m0 p0")["masterPort"], port);
    return;
  }
  FAIL() << "no free port";
}

TEST(FarhopRun, RefusesABadCommandLine) {
  struct Case {
    Words argv;
    int exitCode;
    std::string message;
  };
  for (const Case& c : {
           Case{{"run", "--nonsense", "--", "/bin/true"}, 2, "--nonsense"},
           Case{{"run", "/bin/true"}, 2, "follow `--`"},
           Case{{"run", "--machines", "2"}, 2, "follows `--`"},
           Case{{"run", "--"}, 2, "follows `--`"},
           Case{{"run", "--machines", "0", "--", "/bin/true"}, 2, "--machines"},
           Case{{"run", "--machines", "010", "--", "/bin/true"}, 2, "--machines"},
           Case{{"run", "--machines", "500", "--procs", "2", "--", "/bin/true"}, 2, "at most 512"},
           Case{{"run", "--procs", "gpu", "--", "/bin/true"}, 2, "--procs"},
           Case{{"run", "--start", "soon", "--", "/bin/true"}, 2, "'soon'"},
           Case{{"run", "--master-port", "65535", "--", "/bin/true"}, 2, "--master-port 65535"},
           Case{{"run", "--env", "x", "--", "/bin/true"}, 2, "NAME=VALUE"},
           Case{{"run", "--env", "RANK=1", "--", "/bin/true"}, 2, "RANK"},
           Case{{"run", "--timeout", "0", "--", "/bin/true"}, 2, "--timeout"},
           Case{{"run", "--grace", "-1", "--", "/bin/true"}, 2, "--grace"},
           Case{{"run", "--graph", "/nowhere", "--", "/bin/true"}, 127, "/nowhere"},
           Case{{"run", "--workdir", "/nowhere", "--", "/bin/true"}, 127, "/nowhere"},
           Case{{"run", "--log-dir", "/proc/nowhere", "--", "/bin/true"}, 1, "--log-dir"},
           Case{{"run", "--", "/nowhere/trainer"}, 127, "/nowhere/trainer"},
           Case{{"run", "--", "no-such-trainer"}, 127, "no-such-trainer"},
           Case{{"run", "--", "/etc/passwd"}, 126, "/etc/passwd"},
           Case{{"--nonsense"}, 2, "--nonsense"},
           Case{{"frobnicate"}, 2, "frobnicate"},
           Case{{}, 2, "subcommand"},
       }) {
    Words argv{FARHOP_PROGRAM};
    argv.insert(argv.end(), c.argv.begin(), c.argv.end());
    FarhopProcess farhop(argv);
    EXPECT_EQ(farhop.wait(), c.exitCode) << ::testing::PrintToString(c.argv) << farhop.err();
    EXPECT_THAT(farhop.err(), HasSubstr(c.message));
    EXPECT_THAT(farhop.temporary(), IsEmpty());
    if (c.exitCode == 2) {
      EXPECT_THAT(farhop.err(), HasSubstr("--help` for help"));
    }
  }
}

TEST(FarhopRun, EndsWhatItStarted_WhenALaterOneCannotStart) {
  TemporaryDirectory directory;
  // The program disappears as soon as a process runs, and the machine's later ones wait for it to be executed.
  std::ofstream(directory / "trainer") << "#!/bin/sh\nrm -f \"$0\"\nsleep 60\n";
  std::filesystem::permissions(directory / "trainer", std::filesystem::perms::owner_all);
  FarhopProcess farhop(farhopRun({"--machines", "8", "--procs", "8"}, {directory / "trainer"}));
  const int exitCode = farhop.wait();
  EXPECT_EQ(exitCode, 1) << farhop.err();
  EXPECT_THAT(farhop.err(), HasSubstr("starting machine"));
  EXPECT_TRUE(isGone(farhop.jobId()));
  EXPECT_THAT(farhop.temporary(), IsEmpty());
}

TEST(FarhopRun, ReadsAConfigurationFile_AndTheCommandLineWins) {
  TemporaryDirectory directory;
  std::ofstream(directory / "job.yaml") << "nproc_per_node: 2\nmachines: 3\nenv: {ADDED: 'a: b'}\nstart: sleep:0.25\n"
                                        << "trainer: [" TEST_TRAINER ", describe, 'x y']\ndry-run: false\n";
  FarhopProcess farhop({FARHOP_PROGRAM, "run", "--config", directory / "job.yaml", "--nnodes", "2"});
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  const auto found = farhop.descriptions();
  ASSERT_EQ(found.size(), 4u) << farhop.out();
  EXPECT_EQ(found.at("m1 p1")["env"]["ADDED"], "a: b");
  EXPECT_EQ(found.at("m1 p1")["start"], "sleep:0.250");
  EXPECT_EQ(found.at("m1 p1")["argv"].get<Words>(), (Words{hex(TEST_TRAINER), hex("describe"), hex("x y")}));
}

TEST(FarhopRun, NamesTheLineOfAConfigurationFile) {
  TemporaryDirectory directory;
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"procs: 2\nmachine: 2\n", "line 2: 'machine'"},
           {"procs: many\n", "line 1"},
           {"procs: 1\nnproc_per_node: 2\n", "line 2: 'nproc_per_node' is given twice"},
           {"dry_run: perhaps\n", "true or false"},
           {"procs: [\n", "line 2"},
           {"- procs\n", "mapping"}}) {
    std::ofstream(directory / "job.yaml") << text;
    FarhopProcess farhop(farhopRun({"--config", directory / "job.yaml"}, {"/bin/true"}));
    EXPECT_EQ(farhop.wait(), 2) << text;
    EXPECT_THAT(farhop.err(), HasSubstr(message)) << text;
  }
}

TEST(FarhopRun, ShowsWhoseOutputItIsTold) {
  FarhopProcess farhop(farhopRun({"--machines", "2", "--procs", "2", "--tee", "m0p1,m1"}, {"/bin/sh", "-c", "echo $RANK"}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.linesOf(0, 0), IsEmpty());
  EXPECT_THAT(farhop.linesOf(0, 1), ElementsAre("1"));
  EXPECT_THAT(farhop.linesOf(1, 0), ElementsAre("2"));
}

TEST(FarhopRun, StartsTheJobAgain_AsOftenAsTold) {
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun({"--procs", "2", "--max-restarts", "3", "--log-dir", directory.path()},
                                 {"/bin/sh", "-c", "echo $FARHOP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT; "
                                  "[ $RANK = 0 ] && exec sleep 0.2; [ $FARHOP_RESTART_COUNT = 2 ] || exit 5"}));
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.linesOf(0, 1), ElementsAre("0 0", "1 1", "2 2"));
  EXPECT_THAT(farhop.err(), HasSubstr("starting the job again (2 of 3)"));
  EXPECT_TRUE(std::filesystem::exists(directory / "m0-p1-attempt2.log"));
}

TEST(FarhopDryRun, ShowsHowHostsAreReached) {
  TemporaryDirectory directory;
  std::ofstream(directory / "hosts") << "h0 2200 slots=2\nh1 user=kim slots=2\n";
  FarhopProcess farhop(farhopRun({"--hosts", directory / "hosts", "--farhop", "/opt/farhop", "--ssh_option",
                                  "StrictHostKeyChecking=accept-new", "--dry-run", "--graph", "/data/g", "--dispatch"},
                                 {"./trainer", "it's"}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.out(), HasSubstr(" dispatch /data/g --machines 2 --hosts "));
  EXPECT_THAT(farhop.out(), HasSubstr("/usr/bin/ssh -T -o BatchMode=yes -o StrictHostKeyChecking=accept-new "));
  EXPECT_THAT(farhop.out(), HasSubstr(" -p 2200 -- h0 "));
  EXPECT_THAT(farhop.out(), HasSubstr(" -l kim -- h1 "));
  EXPECT_THAT(farhop.out(), HasSubstr("/opt/farhop agent"));
  EXPECT_THAT(farhop.out(), HasSubstr("\nRANK=3 "));
}

TEST(FarhopRun, RefusesHostFlagsThatMakeNoSense) {
  TemporaryDirectory directory;
  std::ofstream(directory / "hosts") << "a slots=2\nb slots=3\n";
  std::ofstream(directory / "bad") << "a\n\nb what\n";
  const std::string hosts = directory / "hosts";
  for (const auto& [options, message] : std::vector<std::pair<Words, std::string>>{
           {{"--hosts", hosts}, "line 2: slots differ"},
           {{"--hosts", hosts, "--procs", "3"}, "line 1: a has 2 slots"},
           {{"--hosts", hosts, "--procs", "2", "--machines", "3"}, "names 2 hosts"},
           {{"--hosts", directory / "bad"}, "bad line 3: port 'what'"},
           {{"--hosts", "/nowhere"}, "--hosts"},
           {{"--hosts", hosts, "--procs", "1", "--ssh-option", "BatchMode=no"}, "BatchMode"},
           {{"--hosts", hosts, "--procs", "1", "--master-addr", "x", "--iface", "eth0"}, "one of them"},
           {{"--master-addr", "x"}, "--hosts"},
           {{"--dispatch", "--graph", "/"}, "--hosts"},
           {{"--tee", "everyone"}, "--tee"},
           {{"--parts", "2"}, "--partition-first"},
           {{"--partition-first", "x"}, "--graph"}}) {
    FarhopProcess farhop(farhopRun(options, {"/bin/true"}));
    EXPECT_EQ(farhop.wait(), 2) << ::testing::PrintToString(options) << farhop.err();
    EXPECT_THAT(farhop.err(), HasSubstr(message));
  }
}

TEST(FarhopDryRun, ShowsEverythingAndStartsNothing) {
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun(
      {"--machines", "2", "--procs", "2", "--env", "ADDED=x y", "--master-port", "29500", "--dry-run"},
      {"/usr/bin/touch", directory / "started", "it's"}));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_FALSE(std::filesystem::exists(directory / "started"));
  EXPECT_THAT(farhop.out(), HasSubstr("  /usr/bin/touch " + (directory / "started") + " 'it'\\''s'\n"));
  EXPECT_THAT(farhop.out(), HasSubstr("FARHOP_JOB_TOKEN='***'"));
  EXPECT_THAT(farhop.out(), HasSubstr("FARHOP_MASTER_PORT=29500"));
  EXPECT_THAT(farhop.out(), HasSubstr("ADDED='x y'"));
  for (const char* rank : {"\nRANK=0 ", "\nRANK=1 ", "\nRANK=2 ", "\nRANK=3 "})
    EXPECT_THAT(farhop.out(), HasSubstr(rank));
  EXPECT_THAT(farhop.temporary(), IsEmpty());
}

}  // namespace
}  // namespace farhop::testing
