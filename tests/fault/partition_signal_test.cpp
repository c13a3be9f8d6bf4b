// SIGTERM and Ctrl-C end `farhop partition` at once while METIS runs, and leave nothing behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "partition/partitioner.h"
#include "partition/store_writer.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

using std::chrono::milliseconds;

Dataset datasetOf(uint64_t nodes, uint64_t edges) {
  testing::FixtureOptions options;
  options.nodes = nodes;
  options.edges = edges;
  return testing::makeFixtureDataset(options);
}

// Partitions and writes in a child; sends the signal after `delay`. Returns the wait status.
int signalWhilePartitioning(const Dataset& dataset, const std::string& store, int signal, milliseconds delay) {
  int started[2];
  EXPECT_EQ(::pipe(started), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends it whatever becomes of the test
    static_cast<void>(!::write(started[1], "x", 1));
    auto assignment = assignPartitions(dataset, {8, PartitionMethod::kMetis, 1, true});
    if (!assignment.ok()) ::_exit(4);
    StoreWriterOptions writer;
    writer.directory = store;
    ::_exit(writeStore(dataset, *assignment, writer).ok() ? 0 : 3);
  }
  char byte;
  EXPECT_EQ(::read(started[0], &byte, 1), 1);
  std::this_thread::sleep_for(delay);
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(started[0]);
  ::close(started[1]);
  return status;
}

TEST(PartitionSignals, EndTheProgramDuringMetis_AndLeaveNothing) {
  const Dataset dataset = datasetOf(150'000, 600'000);
  testing::TemporaryDirectory directory;
  for (int signal : {SIGTERM, SIGINT}) {
    for (int delay : {100, 300, 500}) {
      const auto begin = std::chrono::steady_clock::now();
      const int status = signalWhilePartitioning(dataset, directory / "store", signal, milliseconds(delay));
      EXPECT_TRUE(WIFSIGNALED(status)) << "signal " << signal << ", status " << status;
      EXPECT_EQ(WTERMSIG(status), signal);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
    }
  }
}

TEST(PartitionSignals, AreHandledAsBefore_AfterMetis) {
  struct sigaction before[2], after[2];
  sigset_t maskBefore, maskAfter;
  const int signals[] = {SIGTERM, SIGABRT};
  for (int i = 0; i < 2; ++i) ::sigaction(signals[i], nullptr, &before[i]);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &maskBefore);
  ASSERT_TRUE(assignPartitions(datasetOf(60, 400), {2, PartitionMethod::kMetis, 1, true}).ok());
  ::pthread_sigmask(SIG_BLOCK, nullptr, &maskAfter);
  for (int i = 0; i < 2; ++i) {
    ::sigaction(signals[i], nullptr, &after[i]);
    EXPECT_EQ(before[i].sa_handler, after[i].sa_handler) << "signal " << signals[i];
    EXPECT_EQ(sigismember(&maskBefore, signals[i]), sigismember(&maskAfter, signals[i]));
  }
}

}  // namespace
}  // namespace farhop::partition
