// Whole jobs as a user starts them: farhop run, real trainers on the public API, real processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/socket.h"
#include "tests/fixture_graphs.h"
#include "tests/multiproc/farhop_process.h"
#include "tests/open_ports.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

class WholeJob : public ::testing::Test {
 protected:
  void SetUp() override {
    FixtureOptions fixture;
    fixture.nodes = 400;
    fixture.edges = 4000;
    fixture.edgeSplits = true;
    fixture.edgeTimes = true;
    writeFixtureStore(fixture, 4, directory_ / "store");
  }

  std::vector<std::string> command(int machines, int procs, const std::string& mode,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv = {FARHOP_PROGRAM, "run", "--graph", directory_ / "store", "--machines",
                                     std::to_string(machines), "--procs", std::to_string(procs)};
    argv.insert(argv.end(), more.begin(), more.end());
    argv.insert(argv.end(), {"--", API_TRAINER, mode, directory_.path()});
    return argv;
  }

  // Batch number and epoch -> digest, over all ranks.
  std::map<std::string, std::string> batches(int world) const {
    std::map<std::string, std::string> result;
    for (int rank = 0; rank < world; ++rank) {
      std::ifstream in(directory_ / ("batches-" + std::to_string(rank)));
      std::string epoch, number, digest;
      while (in >> epoch >> number >> digest) {
        EXPECT_TRUE(result.emplace(epoch + " " + number, digest).second);
      }
    }
    return result;
  }

  // Of the shape before, which are not to pass for those of the next.
  void forgetBatches() const {
    for (int rank = 0; rank < 4; ++rank) std::filesystem::remove(directory_ / ("batches-" + std::to_string(rank)));
  }

  bool allReady(int world) const {
    return eventually(
        [&] {
          for (int rank = 0; rank < world; ++rank) {
            if (!std::filesystem::exists(directory_ / ("ready-" + std::to_string(rank)))) return false;
          }
          return true;
        },
        60);
  }

  static std::set<std::string> sharedMemoryFiles() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().string());
    return names;
  }

  // The trainer of that rank.
  static int pidOf(const std::string& jobId, int machine, int proc) {
    for (int pid : processesOf(jobId)) {
      std::ifstream in("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
      std::stringstream content;
      content << in.rdbuf();
      const std::string environment = "\0" + content.str();
      const auto has = [&](const std::string& entry) {
        return environment.find(entry + std::string(1, '\0')) != std::string::npos;
      };
      if (has("FARHOP_MACHINE=" + std::to_string(machine)) && has("FARHOP_PROC=" + std::to_string(proc))) return pid;
    }
    return -1;
  }

  TemporaryDirectory directory_;
};

TEST_F(WholeJob, GivesTheSameGlobalBatches_OnOneByFour_TwoByTwo_AndFourByOne) {
  std::map<std::string, std::string> reference;
  for (const auto& [machines, procs] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    forgetBatches();
    FarhopProcess job(command(machines, procs, "epoch"));
    ASSERT_EQ(job.wait(90), 0) << job.err();
    const auto found = batches(4);
    EXPECT_GE(found.size(), 16u);
    if (reference.empty()) reference = found;
    EXPECT_EQ(found, reference) << machines << " x " << procs;
  }
}

TEST_F(WholeJob, GivesTheSameGlobalBatchesOfSeedEdges_OnOneByFour_TwoByTwo_AndFourByOne) {
  std::map<std::string, std::string> reference;
  for (const auto& [machines, procs] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    forgetBatches();
    FarhopProcess job(command(machines, procs, "links"));
    ASSERT_EQ(job.wait(90), 0) << job.err();
    const auto found = batches(4);
    EXPECT_GE(found.size(), 16u);
    if (reference.empty()) reference = found;
    EXPECT_EQ(found, reference) << machines << " x " << procs;
  }
}

TEST_F(WholeJob, ContinuesAnEpochWhereItWasLeft_AlsoWithAsManyProcessesOnOtherMachines) {
  const auto run = [&](int machines, int procs, const std::string& mode) {
    FarhopProcess job(command(machines, procs, mode));
    EXPECT_EQ(job.wait(90), 0) << job.err();
    return batches(machines * procs);
  };
  const auto left = run(2, 2, "leave");
  EXPECT_GE(left.size(), 8u);
  for (const auto& [machines, procs] : {std::pair{2, 2}, {4, 1}}) {
    forgetBatches();
    EXPECT_EQ(run(machines, procs, "continue"), left) << machines << " x " << procs;
  }
  forgetBatches();
  run(1, 2, "another");
}

TEST_F(WholeJob, EndsWithTheSameParametersOnAllProcesses_AlsoWithUnevenEpochs) {
  FarhopProcess job(command(2, 2, "train"));
  ASSERT_EQ(job.wait(90), 0) << job.err();
  const auto first = readFile(directory_ / "parameters-0");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), (4 * 32 + 32 + 32 * 7 + 7) * sizeof(float));
  for (int rank = 1; rank < 4; ++rank) {
    const auto other = readFile(directory_ / ("parameters-" + std::to_string(rank)));
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(*other == *first) << "rank " << rank;
  }
}

TEST_F(WholeJob, TurnsMistakesIntoErrorsAtTheCall) {
  for (const auto& [machines, procs] : {std::pair{1, 1}, {2, 1}}) {
    FarhopProcess job(command(machines, procs, "misuse"));
    EXPECT_EQ(job.wait(90), 0) << job.err();
  }
}

TEST_F(WholeJob, PullsPartsAndEveryDType_WithAndWithoutPrefetch) {
  for (const auto& [machines, procs] : {std::pair{1, 1}, {2, 2}}) {
    FarhopProcess job(command(machines, procs, "pulls"));
    EXPECT_EQ(job.wait(90), 0) << job.err();
  }
}

TEST_F(WholeJob, NamesTheLostProcessEverywhere_WhenOneIsKilledInTraining) {
  const auto before = sharedMemoryFiles();
  for (int victim = 0; victim < 4; ++victim) {
    for (int rank = 0; rank < 4; ++rank) std::filesystem::remove(directory_ / ("ready-" + std::to_string(rank)));
    FarhopProcess job(command(2, 2, "loop"));
    ASSERT_TRUE(allReady(4)) << job.err();
    const int pid = pidOf(job.jobId(), victim / 2, victim % 2);
    ASSERT_GT(pid, 0);
    const auto killedAt = std::chrono::steady_clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    EXPECT_EQ(job.wait(20), 128 + SIGKILL);
    EXPECT_LT(std::chrono::steady_clock::now() - killedAt, std::chrono::seconds(5));
    const std::string name = "lost machine " + std::to_string(victim / 2) + " process " + std::to_string(victim % 2);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string line = "[m" + std::to_string(rank / 2) + " p" + std::to_string(rank % 2) + "] " + name;
      // Where it was: seen on the wire, or told by the launcher to a process that has seen nothing within its doubt.
      const bool said = job.err().find(line + " at 127.0.0.1:") != std::string::npos ||
                        job.err().find(line + " (127.0.0.1 pid " + std::to_string(pid) + ")") != std::string::npos;
      EXPECT_TRUE(said) << "rank " << rank << " does not say: " << line << "\n" << job.err();
    }
    EXPECT_TRUE(isGone(job.jobId()));
  }
  EXPECT_EQ(sharedMemoryFiles(), before);
}

TEST_F(WholeJob, EndsForAll_WhenOneTrainerThrows) {
  FarhopProcess job(command(2, 2, "throw"));
  EXPECT_EQ(job.wait(60), 4) << job.err();
  EXPECT_NE(job.err().find("a mistake in the trainer"), std::string::npos);
  EXPECT_TRUE(isGone(job.jobId()));
}

// Once the groups are ready no process of the job listens on any port: there is nothing to disturb. The ports
// that were open before are tried all the same.
TEST_F(WholeJob, IsNotDisturbedByStrangers_OnceReady) {
  FarhopProcess job(command(2, 2, "loop"));
  std::set<uint16_t> ports;
  ASSERT_TRUE(eventually([&] {
    for (int pid : processesOf(job.jobId())) ports.merge(listeningPorts(pid));
    return ports.size() >= 2;
  }));
  ASSERT_TRUE(allReady(4)) << job.err();
  for (int pid : processesOf(job.jobId())) EXPECT_TRUE(listeningPorts(pid).empty());
  for (uint16_t port : ports) pester(port);
  for (int rank = 0; rank < 4; ++rank) std::filesystem::remove(directory_ / ("ready-" + std::to_string(rank)));
  EXPECT_TRUE(allReady(4)) << job.err();  // another epoch everywhere
  std::ofstream(directory_ / "stop") << 1;
  EXPECT_EQ(job.wait(60), 0) << job.err();
}

TEST_F(WholeJob, ListensOnNoPortOnceReady_OnOneMachine) {
  FarhopProcess job(command(1, 2, "loop"));
  ASSERT_TRUE(allReady(2)) << job.err();
  EXPECT_GE(processesOf(job.jobId()).size(), 2u);
  for (int pid : processesOf(job.jobId())) EXPECT_TRUE(listeningPorts(pid).empty());
  std::ofstream(directory_ / "stop") << 1;
  EXPECT_EQ(job.wait(60), 0) << job.err();
}

// The same at the master ports while group 1 still waits for its turn.
TEST_F(WholeJob, IsNotDisturbedByStrangersAtTheMasterPorts_BeforeReady) {
  FarhopProcess job(command(2, 2, "loop", {"--start", "sleep:2"}));
  ASSERT_TRUE(eventually([&] { return processesOf(job.jobId()).size() >= 6; }));
  std::set<uint16_t> ports;
  ASSERT_TRUE(eventually([&] {
    for (int pid : processesOf(job.jobId())) ports.merge(listeningPorts(pid));
    return ports.size() >= 2;
  }));
  int connections = 0;
  for (uint16_t port : ports) connections += pester(port);
  EXPECT_GT(connections, 0);
  EXPECT_TRUE(allReady(4)) << job.err();
  std::ofstream(directory_ / "stop") << 1;
  EXPECT_EQ(job.wait(60), 0) << job.err();
}

TEST_F(WholeJob, SaysWhichStoreIsDamaged_OnEveryProcess) {
  std::filesystem::resize_file(directory_ / "store/graph.json", 100);
  FarhopProcess job(command(2, 1, "loop"));
  EXPECT_EQ(job.wait(60), 3);
  EXPECT_NE(job.err().find("graph.json"), std::string::npos) << job.err();
}

// A bit that has changed in any kind of file: refused by name, on every process, before anything is sampled.
TEST_F(WholeJob, RefusesAStoreWithAFlippedBit) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "store")) {
    if (entry.path().extension() == ".npy" && entry.path().string().find("part-00002") != std::string::npos) {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 8u);
  // Two of them; fault.store_damage_test has all kinds of files and of damage.
  for (const size_t i : {size_t{0}, files.size() / 2}) {
    std::fstream file(files[i], std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-3, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(-3, std::ios::end);
    file.put(byte);
    file.close();
    FarhopProcess job(command(2, 2, "loop"));
    EXPECT_EQ(job.wait(60), 3);
    const std::string name = files[i].substr(files[i].find("part-00002"));
    EXPECT_NE(job.err().find(name), std::string::npos) << name << "\n" << job.err();
    std::fstream again(files[i], std::ios::in | std::ios::out | std::ios::binary);
    again.seekp(-3, std::ios::end);
    again.put(static_cast<char>(byte ^ 0x10));
  }
}

TEST_F(WholeJob, RefusesFewerPartitionsThanMachines) {
  FarhopProcess job(command(5, 1, "loop"));
  EXPECT_EQ(job.wait(60), 3);
  EXPECT_NE(job.err().find("4 partitions"), std::string::npos) << job.err();
}

}  // namespace
}  // namespace farhop::testing
