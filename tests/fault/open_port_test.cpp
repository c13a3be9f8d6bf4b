// Strangers at the ports that are open only while a job starts: TensorPipe's listener and Gloo's pair sockets.
//
// Neither library can be made to survive everything there (ARCHITECTURE.md, "How a process starts, and how it
// ends"), so what is pinned down is the bound: the start fails or succeeds, everywhere, within the time that a
// kill takes or the start's own deadline; nobody hangs, nothing is left behind, and who is not hit himself ends
// with an error that names a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>

#include "base/socket.h"
#include "rpc/stages.h"
#include "runtime/session.h"
#include "tests/open_ports.h"
#include "tests/process_group.h"
#include "tests/session_job.h"

namespace farhop::runtime {
namespace {

using std::chrono::milliseconds;
using test::ChildResult;
using test::describeFailure;
using test::ProcessGroup;
using test::quickOptions;
using test::SessionJob;
using ::testing::HasSubstr;

constexpr milliseconds kPatience{20'000};
constexpr milliseconds kStart{4'000};
Deadline soon() { return Deadline::after(milliseconds(10'000)); }

class OpenPorts : public ::testing::Test {
 protected:
  // Runs rank 0 up to `stage`, then `strangers` on its ports but the master's; the results of both.
  std::vector<ChildResult> run(const char* stage, const std::function<void(uint16_t port)>& strangers) {
    SessionJob job(2, 1, "open-ports");
    int hold[2];
    EXPECT_EQ(::pipe(hold), 0);
    holdFd_ = hold[0];
    stage_ = stage;
    ProcessGroup group(2, [&](int rank) -> std::string {
      ::close(hold[1]);
      rpc::stageHook = [](const char* reached) {
        if (stage_ != reached) return;
        ProcessGroup::signalLine("holding");
        char byte;
        (void)!::read(holdFd_, &byte, 1);  // ends when the test closes its end
        stage_.clear();
      };
      if (rank == 1) stage_.clear();
      SessionOptions options = quickOptions();
      options.startTimeout = kStart;
      absl::StatusOr<std::unique_ptr<Session>> session = Session::start(job.contract(rank), options);
      return describeFailure(session.ok() ? (*session)->leave(soon()) : session.status());
    });
    job.releasePorts();
    ::close(hold[0]);
    EXPECT_TRUE(group.awaitLine(0, "holding", kPatience));
    int attacked = 0;
    for (const uint16_t port : farhop::testing::listeningPorts(group.pid(0))) {
      if (port == job.port()) continue;
      strangers(port);
      ++attacked;
    }
    EXPECT_GT(attacked, 0) << "no port was open";
    ::close(hold[1]);
    const std::vector<ChildResult> results = group.wait(kStart + milliseconds(4'000));
    EXPECT_EQ(job.leftovers(), "");
    for (const ChildResult& result : results) {
      EXPECT_FALSE(result.timedOut);
      EXPECT_THAT(result.signal, ::testing::AnyOf(0, SIGABRT));
    }
    return results;
  }

  // The one that was not attacked ends well, or with an error that names a process.
  static void expectClearEnd(const ChildResult& result) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.text, ::testing::AnyOf("OK", HasSubstr("machine ")));
  }

  static void send(uint16_t port, const std::string& bytes) {
    absl::StatusOr<FileDescriptor> fd = connectTcp({"127.0.0.1", port}, soon(), false);
    if (fd.ok() && !bytes.empty()) (void)sendAll(fd->get(), bytes.data(), bytes.size(), soon());
  }

  static inline int holdFd_ = -1;
  static inline std::string stage_;
};

// TensorPipe's listener ends for good with the first connection that closes before its first packet.
TEST_F(OpenPorts, OfTensorPipe_EndTheStartClearly_WhenTheyAreScanned) {
  for (const ChildResult& result : run("group/listening", [](uint16_t port) { send(port, ""); })) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.text, ::testing::AnyOf("OK", HasSubstr("such as a port scan")));
  }
}

TEST_F(OpenPorts, OfTensorPipe_EndTheStartClearly_WhenGarbageComes) {
  const std::vector<ChildResult> results = run("group/listening", farhop::testing::pester);
  expectClearEnd(results[1]);
}

TEST_F(OpenPorts, OfGloo_EndTheStartClearly_WhenAScanTakesThePeersPlace) {
  const std::vector<ChildResult> results = run("mesh/listening", [](uint16_t port) { send(port, ""); });
  expectClearEnd(results[1]);
  EXPECT_EQ(results[0].signal, 0);
  // Not disturbed at all when the scan is seen to be gone before the peer connects.
  EXPECT_THAT(results[0].text, ::testing::AnyOf("OK", HasSubstr("such as a port scan")));
}

TEST_F(OpenPorts, OfGloo_EndTheStartClearly_WhenGarbageComes) {
  const std::vector<ChildResult> results = run("mesh/listening", farhop::testing::pester);
  expectClearEnd(results[1]);
}

TEST_F(OpenPorts, OfGloo_EndTheStartClearly_WhenWhatComesLooksLikeAMessage) {
  for (uint64_t opcode = 0; opcode < 4; ++opcode) {
    // Gloo's preamble: total bytes, opcode, slot, offset, length, offset at the receiver.
    const uint64_t preamble[6] = {48 + 8, opcode, 4'711, 0, 8, 0};
    const std::string bytes(reinterpret_cast<const char*>(preamble), sizeof(preamble));
    const std::vector<ChildResult> results =
        run("mesh/listening", [&](uint16_t port) { send(port, bytes + "garbage!"); });
    expectClearEnd(results[1]);
  }
}

}  // namespace
}  // namespace farhop::runtime
