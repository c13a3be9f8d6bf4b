// farhop run: what becomes of the trainers' output.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/socket.h"
#include "tests/multiproc/farhop_process.h"

namespace farhop::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsMeasurable = false;  // a sanitizer keeps freed memory and shadows the rest
#else
constexpr bool kMemoryIsMeasurable = true;
#endif

// Peak resident memory of a running process, in KiB.
long peakKib(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atol(line.c_str() + 6);
  }
  return -1;
}

TEST(FarhopRunOutput, IsPrefixedAndKeptInOneFilePerProcess) {
  TemporaryDirectory directory;
  FarhopProcess farhop(farhopRun({"--machines", "2", "--procs", "2", "--log-dir", directory / "new/logs"},
                                 shell("echo out $RANK; echo err $RANK >&2; printf 'no newline'")));
  ASSERT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(farhop.err(), HasSubstr("2 machines x 2 processes, master 127.0.0.1:"));
  EXPECT_THAT(farhop.err(), HasSubstr("logs in " + directory.path() + "/new/logs\n"));
  for (int m = 0; m < 2; ++m) {
    for (int p = 0; p < 2; ++p) {
      const std::string rank = std::to_string(m * 2 + p);
      EXPECT_THAT(farhop.linesOf(m, p), ElementsAre("out " + rank, "no newline"));
      EXPECT_THAT(farhop.err(),
                  HasSubstr("[m" + std::to_string(m) + " p" + std::to_string(p) + "] err " + rank + "\n"));
      const std::string log =
          directory.path() + "/new/logs/m" + std::to_string(m) + "-p" + std::to_string(p) + ".log";
      const std::string text = *readFile(log);
      EXPECT_THAT(text, HasSubstr("out " + rank + "\n"));
      EXPECT_THAT(text, HasSubstr("err " + rank + "\n"));
      EXPECT_THAT(text, HasSubstr("no newline"));
    }
  }
  EXPECT_THAT(farhop.temporary(), IsEmpty());
}

TEST(FarhopRunOutput, IsKeptOnFailureAndRemovedOnSuccess_WithoutALogDirectory) {
  FarhopProcess good(farhopRun({}, shell("echo fine")));
  EXPECT_EQ(good.wait(), 0);
  EXPECT_THAT(good.temporary(), IsEmpty());
  FarhopProcess bad(farhopRun({}, shell("echo broken; exit 7")));
  EXPECT_EQ(bad.wait(), 7);
  ASSERT_THAT(bad.temporary(), SizeIs(1));
  EXPECT_EQ(*readFile(bad.temporary()[0] + "/m0-p0.log"), "broken\n");
  EXPECT_THAT(bad.err(), HasSubstr("its log: " + bad.temporary()[0] + "/m0-p0.log"));
}

TEST(FarhopRunOutput, PassesAnyBytes) {
  FarhopProcess farhop(farhopRun({}, shell("printf '\\377\\000\\033[1m\\n'")));
  EXPECT_EQ(farhop.wait(), 0);
  EXPECT_EQ(farhop.out(), std::string("[m0 p0] \xff\0\x1b[1m\n", 15));
}

TEST(FarhopRunOutput, CutsEndlessLines) {
  FarhopProcess farhop(farhopRun({}, shell("head -c 200000 /dev/zero | tr '\\0' x")));
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  const auto lines = farhop.linesOf(0, 0);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[0].size(), 65536u);
  EXPECT_EQ(lines[3].size(), 200000u - 3 * 65536u);
}

TEST(FarhopRunOutput, OfAMillionLinesIsCompleteAndTakesNoMemory) {
  FarhopProcess farhop(farhopRun({"--machines", "2", "--procs", "2"}, {TEST_TRAINER, "lines", "250000"}));
  long peak = 0;
  int exitCode = -1;
  eventually(
      [&] {
        peak = std::max(peak, peakKib(farhop.pid()));
        return (exitCode = farhop.wait(0)) >= 0;
      },
      100);
  ASSERT_EQ(exitCode, 0) << farhop.err();
  for (int m = 0; m < 2; ++m) {
    for (int p = 0; p < 2; ++p) {
      const auto lines = farhop.linesOf(m, p);
      ASSERT_THAT(lines, SizeIs(250000));
      for (size_t i = 0; i < lines.size(); i += 997) ASSERT_EQ(lines[i], std::to_string(i));
    }
  }
  if (kMemoryIsMeasurable) {
    EXPECT_LT(peak, 32 * 1024) << "KiB";
  }
}

// A pipe as farhop's standard output that nobody reads until told.
struct StalledReader {
  FileDescriptor read, write;
  StalledReader() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return;
    read = FileDescriptor(fds[0]);
    write = FileDescriptor(fds[1]);
  }
  size_t readAll() {
    write.reset();
    size_t total = 0;
    std::vector<char> buffer(1 << 16);
    for (ssize_t n = 0; (n = ::read(read.get(), buffer.data(), buffer.size())) > 0;)
      total += static_cast<size_t>(n);
    return total;
  }
};

TEST(FarhopRunOutput, SlowsTheTrainersDown_WhenNobodyReads) {
  StalledReader reader;
  const long lines = 100'000;  // 20 MB
  FarhopProcess farhop(farhopRun({}, {TEST_TRAINER, "lines", std::to_string(lines), "200"}), {},
                       reader.write.get());
  ASSERT_TRUE(farhop.awaitErr("logs in"));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_EQ(farhop.wait(0), -1);
  if (kMemoryIsMeasurable) {
    EXPECT_LT(peakKib(farhop.pid()), 16 * 1024) << "KiB";
  }
  size_t expected = 0;
  for (long i = 0; i < lines; ++i)
    expected += std::string("[m0 p0] \n").size() + std::to_string(i).size() + 200;
  EXPECT_EQ(reader.readAll(), expected);
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
}

TEST(FarhopRunOutput, ThatNobodyReadsDelaysNoEnd) {
  StalledReader reader;
  FarhopProcess farhop(
      farhopRun({"--machines", "2"},
                shell("[ $RANK = 0 ] && { sleep 0.3; exit 5; }; while :; do echo stuck; done")),
      {}, reader.write.get());
  ASSERT_TRUE(farhop.awaitErr("machine 0 process 0 failed: exit code 5"));
  EXPECT_TRUE(isGone(farhop.jobId(), 6));
  EXPECT_EQ(farhop.wait(20), 5);
}

TEST(FarhopRunOutput, GoesOnIntoTheLog_WhenItsReaderGoesAway) {
  TemporaryDirectory directory;
  StalledReader reader;
  FarhopProcess farhop(farhopRun({"--log-dir", directory.path()}, {TEST_TRAINER, "lines", "50000", "10"}), {},
                       reader.write.get());
  reader.read.reset();
  reader.write.reset();
  EXPECT_EQ(farhop.wait(), 0) << farhop.err();
  EXPECT_THAT(*readFile(directory / "m0-p0.log"), HasSubstr("49999..........\n"));
}

TEST(FarhopRunOutput, IsColoredOnATerminalOnly_AndCtrlCEndsTheJob) {
  int master = -1;
  winsize size{24, 200, 0, 0};
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, &size);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    ::unsetenv("NO_COLOR");
    ::execl(FARHOP_PROGRAM, "farhop", "run", "--grace", "10", "--", "/bin/sh", "-c",
            "echo hello; exec sleep 60", nullptr);
    ::_exit(121);
  }
  std::string text;
  char buffer[4096];
  bool pressed = false;
  // Ends with EIO when the last process of the terminal is gone.
  for (ssize_t n = 0; (n = ::read(master, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
    if (!pressed && text.find("hello") != std::string::npos) {
      pressed = true;
      ASSERT_EQ(::write(master, "\x03", 1), 1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ::close(master);
  EXPECT_EQ(WEXITSTATUS(status), 130) << text;
  EXPECT_THAT(text, HasSubstr("\x1b[31m[m0 p0]\x1b[0m hello"));
  EXPECT_THAT(text, HasSubstr("received SIGINT"));
  const size_t at = text.find("logs in ");
  ASSERT_NE(at, std::string::npos);
  std::filesystem::remove_all(text.substr(at + 8, text.find_first_of("\r\n", at) - at - 8));
}

}  // namespace
}  // namespace farhop::testing
