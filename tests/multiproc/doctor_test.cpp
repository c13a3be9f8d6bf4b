// farhop doctor: each check, the drawing of bindings, and the conversation with other machines, which here are processes of
// this one, without ssh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/socket.h"
#include "launcher/binding_drawing.h"
#include "launcher/doctor_command.h"
#include "tests/fixture_graphs.h"
#include "tests/multiproc/farhop_process.h"
#include "tests/temporary_directory.h"

namespace farhop::launcher {
namespace {

using farhop::testing::FarhopProcess;
using farhop::testing::TemporaryDirectory;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const CheckResult& find(const std::vector<CheckResult>& checks, const std::string& name) {
  static const CheckResult kMissing{"missing", CheckState::kRed, "there is no such check", ""};
  for (const CheckResult& check : checks) {
    if (check.name == name) return check;
  }
  return kMissing;
}

std::string writeScript(const std::string& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  ::chmod(path.c_str(), 0755);
  return path;
}

TEST(OpenFiles, AreCountedByPeersAndProcesses) {
  EXPECT_EQ(checkOpenFiles({2, 0, 8}, 1'024).state, CheckState::kGreen);
  EXPECT_EQ(checkOpenFiles({100, 0, 8}, 1'024).state, CheckState::kYellow);
  const CheckResult few = checkOpenFiles({200, 0, 8}, 1'024);
  EXPECT_EQ(few.state, CheckState::kRed);
  EXPECT_THAT(few.todo, HasSubstr("ulimit -n"));
}

TEST(Memory, IsRedWhenTheProcessesAloneDoNotFit_AndYellowWhenThePartitionsDoNot) {
  const MachineShape shape{2, 0, 4};
  const MemoryEstimate estimate = estimateMemory({shape, uint64_t{10} << 30, 400, 100'000});
  EXPECT_EQ(estimate.mapped, uint64_t{10} << 30);
  EXPECT_GE(estimate.batches, 100'000u * 400u);
  EXPECT_EQ(checkMemory(shape, estimate, uint64_t{64} << 30).state, CheckState::kGreen);
  EXPECT_EQ(checkMemory(shape, estimate, uint64_t{8} << 30).state, CheckState::kYellow);
  EXPECT_EQ(checkMemory(shape, estimate, uint64_t{1} << 29).state, CheckState::kRed);
  EXPECT_EQ(checkMemory(shape, estimate, 0).state, CheckState::kGreen);
}

TEST(SharedMemory, IsYellowWhereThereIsNone) {
  EXPECT_EQ(checkSharedMemory("/dev/shm/no-such-directory").state, CheckState::kYellow);
  EXPECT_NE(checkSharedMemory("/dev/shm").state, CheckState::kRed);
}

TEST(LockedMemory, MattersForRdmaOnly) {
  EXPECT_EQ(checkLockedMemory("").state, CheckState::kGreen);
  EXPECT_EQ(checkLockedMemory("tcp").state, CheckState::kGreen);
}

TEST(Ports, AreRedWhenOneIsTaken) {
  DoctorOptions options;
  options.shape.procs = 2;
  const auto taken = listenTcp({"127.0.0.1", 0}, 1);
  ASSERT_TRUE(taken.ok());
  options.masterPort = boundPort(taken->get()).value();
  const CheckResult check = checkPorts(options);
  EXPECT_EQ(check.state, CheckState::kRed);
  EXPECT_THAT(check.what, HasSubstr(std::to_string(options.masterPort)));
  options.masterPort = 0;
  EXPECT_EQ(checkPorts(options).state, CheckState::kGreen);
}

TEST(Fabric, IsReadFromTheHelper) {
  const TemporaryDirectory directory;
  const std::string good = writeScript(directory / "good", "echo version 1.17; echo 'provider tcp;ofi_rxm usable'; echo provider udp");
  const std::string none = writeScript(directory / "none", "echo 'libfabric.so.1: cannot open' >&2; exit 1");
  const std::string crash = writeScript(directory / "crash", "kill -SEGV $$");
  EXPECT_THAT(checkFabric(good, "tcp").what, AllOf(HasSubstr("tcp;ofi_rxm"), HasSubstr("1.17")));
  EXPECT_EQ(checkFabric(good, "tcp").state, CheckState::kGreen);
  EXPECT_EQ(checkFabric(none, "").state, CheckState::kYellow);
  EXPECT_EQ(checkFabric(none, "verbs").state, CheckState::kRed);
  EXPECT_THAT(checkFabric(none, "").what, HasSubstr("cannot open"));
  EXPECT_THAT(checkFabric(crash, "").what, HasSubstr("SIGSEGV"));
}

TEST(Partitions, AreComparedWithTheirChecksums) {
  const TemporaryDirectory directory;
  farhop::testing::writeFixtureStore({}, 3, directory / "store");
  DoctorOptions options;
  options.graph = directory / "store";
  options.shape.machines = 2;
  options.playsAll = false;
  const PartitionCheck sound = checkPartition(options);
  EXPECT_EQ(sound.result.state, CheckState::kGreen) << sound.result.what;
  EXPECT_THAT(sound.result.what, HasSubstr("2 of 3 are served here"));
  EXPECT_GT(sound.bytes, 0u);
  // One byte of a partition that machine 0 serves.
  std::string damaged;
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory / "store/part-00001")) {
    if (file.path().filename() == "orig_ids.npy") damaged = file.path().string();
  }
  ASSERT_FALSE(damaged.empty());
  std::fstream(damaged, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x7f');
  EXPECT_EQ(checkPartition(options).result.state, CheckState::kRed);
  EXPECT_THAT(checkPartition(options).result.what, HasSubstr("part-00001"));
  options.checksums = false;
  EXPECT_EQ(checkPartition(options).result.state, CheckState::kGreen);
  options.checksums = true;
  options.shape.machine = 1;
  EXPECT_EQ(checkPartition(options).result.state, CheckState::kGreen);
  options.shape.machines = 4;  // more than partitions
  EXPECT_EQ(checkPartition(options).result.state, CheckState::kRed);
  options.graph = directory / "nothing";
  EXPECT_EQ(checkPartition(options).result.state, CheckState::kRed);
}

std::string draw(const std::string& topology, int procs, const runtime::BindingChoice& choice = {}) {
  const auto drawn = drawBindings(*runtime::Topology::synthetic(topology), procs, choice);
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  return drawn.value_or("");
}

TEST(Bindings, AreDrawn) {
  const std::string two = draw("package:2 numa:1 core:2 pu:2", 2);
  EXPECT_THAT(two, AllOf(HasSubstr("0-1    s0      n0                   0-3  p0"), HasSubstr("2-3    s1      n1                   4-7  p1")));
  EXPECT_THAT(draw("core:2 pu:1", 4), HasSubstr("warning: 4 processes share 2 cores"));
  EXPECT_THAT(draw("core:3 pu:1", 1, {runtime::BindTo::kCore, true}), AllOf(HasSubstr("p0(training)"), HasSubstr("p0(sampling)")));
  EXPECT_THAT(draw("core:4 pu:1", 2, {runtime::BindTo::kNone, false}), HasSubstr("any"));
}

TEST(FarhopDoctor, DrawsATopologyThatItRecorded) {
  const TemporaryDirectory directory;
  FarhopProcess record({FARHOP_PROGRAM, "doctor", "--bindings", "--procs", "2", "--topology", "numa:2 core:2 pu:1", "--record",
                        directory / "machine.xml"});
  EXPECT_EQ(record.wait(), 0) << record.err();
  FarhopProcess again({FARHOP_PROGRAM, "doctor", "--bindings", "--procs", "2", "--topology", directory / "machine.xml"});
  EXPECT_EQ(again.wait(), 0) << again.err();
  EXPECT_EQ(again.out(), record.out());
  FarhopProcess wrong({FARHOP_PROGRAM, "doctor", "--bindings", "--topology", "cores, many"});
  EXPECT_EQ(wrong.wait(), 1);
}

TEST(FarhopDoctor, ChecksThisMachine) {
  FarhopProcess doctor({FARHOP_PROGRAM, "doctor", "--machines", "2", "--procs", "2", "--json"});
  const int exitCode = doctor.wait();
  const auto json = nlohmann::json::parse(doctor.out(), nullptr, false);
  ASSERT_TRUE(json.is_object()) << doctor.out() << doctor.err();
  EXPECT_EQ(exitCode, json["ok"] == true ? 0 : 1);
  const auto checks = checksFrom(json["machines"][0]["checks"]);
  ASSERT_TRUE(checks.ok()) << checks.status();
  for (const char* name : {"version", "network", "ports", "open files", "locked memory", "/dev/shm", "libfabric", "cores",
                           "partitions", "memory"}) {
    EXPECT_THAT(find(*checks, name).what, Not(HasSubstr("no such check"))) << name;
  }
}

TEST(FarhopDoctor, ExitsWithOne_WhenACheckIsRed) {
  FarhopProcess doctor({FARHOP_PROGRAM, "doctor", "--graph", "/nonexistent/store"});
  EXPECT_EQ(doctor.wait(), 1);
  EXPECT_THAT(doctor.out(), AllOf(HasSubstr("red    this machine"), HasSubstr("failed   partitions"), HasSubstr("-> ")));
}

constexpr char kVersion[] = FARHOP_TEST_VERSION;

DoctorHost served(const std::string& name) { return {name, "127.0.0.1", {FARHOP_PROGRAM, "doctor", "--serve"}}; }

TEST(ExamineHosts, AsksAllOfThemAndLetsThemReachEachOther) {
  DoctorOptions options;
  options.shape = {3, 0, 2};
  const auto reports = examineHosts({served("a"), served("b"), served("c")}, options, kVersion, milliseconds(20'000));
  ASSERT_THAT(reports, SizeIs(3));
  for (const MachineReport& report : reports) {
    EXPECT_EQ(find(report.checks, "reachable").state, CheckState::kGreen);
    EXPECT_EQ(find(report.checks, "clock").state, CheckState::kGreen) << find(report.checks, "clock").what;
    EXPECT_EQ(find(report.checks, "peers").state, CheckState::kGreen) << find(report.checks, "peers").what;
    EXPECT_THAT(find(report.checks, "peers").what, HasSubstr("2 ports of 2 machines"));
    EXPECT_THAT(find(report.checks, "memory").what, HasSubstr("available"));
  }
}

TEST(ExamineHosts, SaysWhichCannotBeReachedAndWhichHasAnotherVersion) {
  const TemporaryDirectory directory;
  const std::string old = writeScript(directory / "old", R"(echo Welcome; echo 'FARHOP-DOCTOR {"protocol":1,"version":"0.0.9","host":"h"}'; cat)");
  const std::string refused = writeScript(directory / "refused", "echo 'Permission denied (publickey).' >&2; exit 255");
  const std::string silent = writeScript(directory / "silent", "exec sleep 30");
  const std::string broken = writeScript(directory / "broken", absl::StrCat("echo 'FARHOP-DOCTOR {\"protocol\":1,\"version\":\"", kVersion, "\"}'; echo nonsense; cat > /dev/null"));
  DoctorOptions options;
  options.shape = {6, 0, 1};
  const auto reports = examineHosts({served("good"), {"old", "", {old}}, {"refused", "", {refused}}, {"silent", "", {silent}},
                                     {"broken", "", {broken}}, {"missing", "", {"/nonexistent/ssh"}}},
                                    options, kVersion, milliseconds(3'000));
  ASSERT_THAT(reports, SizeIs(6));
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_TRUE(reports[i].red()) << reports[i].name;
  EXPECT_THAT(find(reports[1].checks, "version").what, HasSubstr("farhop 0.0.9 there"));
  EXPECT_THAT(find(reports[2].checks, "reachable").what, HasSubstr("Permission denied (publickey)"));
  EXPECT_THAT(find(reports[3].checks, "reachable").what, HasSubstr("no answer in time"));
  // The good one is told whom it could not try.
  EXPECT_THAT(find(reports[0].checks, "peers").what, AllOf(HasSubstr("old was not there"), HasSubstr("missing was not there")));
  const std::string table = reportTable(reports, true);
  EXPECT_THAT(table, AllOf(HasSubstr("\033[31mred  "), HasSubstr("refused")));
  EXPECT_EQ(nlohmann::json::parse(reportJson(reports))["ok"], false);
}

TEST(ExamineHosts, SeesAClockThatGoesWrong) {
  const TemporaryDirectory directory;
  const std::string script = absl::StrCat(
      "echo 'FARHOP-DOCTOR {\"protocol\":1,\"version\":\"", kVersion, "\",\"host\":\"h\"}'\n",
      "for i in 1 2 3 4 5; do read line; echo \"{\\\"unix\\\": $(($(date +%s) + 3600))}\"; done\n",
      "read line; echo '{\"checks\": [], \"address\": \"127.0.0.1\"}'; cat > /dev/null");
  const std::string late = writeScript(directory / "late", script);
  DoctorOptions options;
  const auto reports = examineHosts({{"late", "", {late}}}, options, kVersion, milliseconds(10'000));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(find(reports[0].checks, "clock").state, CheckState::kRed) << reportTable(reports, false);
  EXPECT_THAT(find(reports[0].checks, "clock").what, HasSubstr("+3"));
}

TEST(ServeDoctor, AnswersNonsenseWithAnError) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "requests") << "nonsense\n{}\n{\"do\": 7}\n{\"do\":\"fly\"}\n{\"do\":\"listen\",\"ports\":[-1, 99999999]}\n"
                                        << "{\"do\":\"clock\"}\n";
  const std::string script = writeScript(directory / "run", absl::StrCat(FARHOP_PROGRAM, " doctor --serve < ", directory / "requests"));
  FarhopProcess serve({script});
  EXPECT_EQ(serve.wait(), 0);
  EXPECT_THAT(serve.out(), AllOf(HasSubstr("FARHOP-DOCTOR"), HasSubstr("unknown request 'fly'"), HasSubstr("\"unix\"")));
}

}  // namespace
}  // namespace farhop::launcher
