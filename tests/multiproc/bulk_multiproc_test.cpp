// Bulk transports of different processes: killed or stopped in the middle of a transfer, pestered, measured.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/memory_info.h"
#include "tests/agent_processes.h"
#include "tests/bulk_group.h"
#include "tests/open_ports.h"

namespace farhop::rpc {
namespace {

using namespace farhop::rpc::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kLong = size_t{96} << 20;
constexpr auto kAll = BulkAccess::kSource | BulkAccess::kTarget | BulkAccess::kRemoteWrite | BulkAccess::kRemoteRead;

std::string describe(const absl::Status& status) {
  const std::optional<PeerName> peer = peerOf(status);
  return absl::StrCat(status.ToString(), " peer=", peer ? describePeer(*peer) : "none");
}

// A process's endpoint and one region of `bytes` that the others may use.
struct Process {
  std::shared_ptr<Arrivals> arrivals = std::make_shared<Arrivals>();  // outlives the transport
  std::unique_ptr<BulkTransport> transport;
  std::shared_ptr<Block> block;
  std::shared_ptr<BulkRegion> region;
  std::vector<RemoteRegion> remotes;  // by rank

  Process(int rank, int size, size_t bytes, Line& line) {
    FabricOptions fabric;
    fabric.choice = "tcp";
    auto made = makeFabricTransport(bulkOptions(rank, size), fabric);
    if (!made.ok()) {
      line.say(made.status().ToString());
      return;
    }
    transport = *std::move(made);
    transport->onArrival(arrivals->callback());
    block = makeBlock(bytes, rank + 1);
    region = registered(*transport, block);
    const RemoteRegion own = region->remote();
    line.say(absl::StrCat(absl::BytesToHexString(transport->address()), ",", own.key, ",", own.address, ",", own.bytes));
    std::vector<std::string> addresses;
    for (absl::string_view one : absl::StrSplit(line.hear(), ' ')) {
      const std::vector<std::string> fields = absl::StrSplit(one, ',');
      RemoteRegion remote;
      EXPECT_TRUE(fields.size() == 4 && absl::SimpleAtoi(fields[1], &remote.key) &&
                  absl::SimpleAtoi(fields[2], &remote.address) && absl::SimpleAtoi(fields[3], &remote.bytes));
      addresses.push_back(absl::HexStringToBytes(fields[0]));
      remotes.push_back(remote);
    }
    const absl::Status status = transport->connect(addresses);
    line.say(status.ok() ? "connected" : status.ToString());
  }

  BulkEnd write(int peer, size_t bytes, uint32_t data, Deadline deadline = bulkSoon()) {
    BulkEnd end;
    transport->write({.peer = peer, .local = region, .bytes = bytes, .remote = remotes[static_cast<size_t>(peer)],
                      .data = data, .deadline = deadline},
                     end.done());
    return end;
  }
  BulkEnd read(int peer, size_t bytes, Deadline deadline = bulkSoon()) {
    BulkEnd end;
    transport->read({.peer = peer, .local = region, .bytes = bytes, .remote = remotes[static_cast<size_t>(peer)],
                     .deadline = deadline},
                    end.done());
    return end;
  }
  // Until a peer has begun to write here. Looks at memory that is being written, on purpose.
  __attribute__((no_sanitize("thread"))) bool awaitFirstByte(int value) const {
    const volatile std::byte* byte = block->bytes_.data() + (1 << 20);
    for (int i = 0; i < 20'000 && *byte != static_cast<std::byte>(value); ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return *byte == static_cast<std::byte>(value);
  }
};

void introduce(Processes& processes) {
  std::vector<std::string> all;
  for (int rank = 0; rank < processes.size(); ++rank) all.push_back(processes.line(rank).hear());
  for (int rank = 0; rank < processes.size(); ++rank) processes.line(rank).say(absl::StrJoin(all, " "));
  for (int rank = 0; rank < processes.size(); ++rank) ASSERT_EQ(processes.line(rank).hear(), "connected");
}

// Rank 1 writes without end to rank 0, until it is killed.
void writeForever(Process& process, Line& line) {
  std::vector<BulkEnd> ends;
  for (uint32_t i = 0; i < 64; ++i) ends.push_back(process.write(0, kLong, i, bulkSoon(60'000)));
  line.hear(60'000);
}

TEST(BulkProcesses, LetMemoryGo_WhenTheWriterIsKilledInTheMiddle) {
  Processes processes(3, [](int rank, Line& line) {
    Process process(rank, 3, kLong, line);
    if (rank == 1) return writeForever(process, line);
    if (rank == 2) {
      line.hear(60'000);
      return;
    }
    ASSERT_TRUE(process.transport->grant(process.region, 1).ok());
    BulkEnd own = process.write(1, kLong, 7, bulkSoon(60'000));  // traffic in both directions
    line.say(process.awaitFirstByte(2) ? "written" : "nothing came");
    line.hear();
    const auto start = Clock::now();
    line.say(describe(own.wait()));
    process.transport->failPeer(1, absl::UnavailableError("machine 1 process 0 was lost"));
    BulkEnd drained;
    process.transport->drain(process.region, bulkSoon(), drained.done());
    std::weak_ptr<Block> watched = process.block;
    process.block = nullptr;
    line.say(drained.wait().ToString());
    line.say(watched.expired() ? "freed" : "kept");
    line.say(Clock::now() - start < milliseconds(5000) ? "at once" : "late");
    process.block = makeBlock(1000, 9);
    process.region = registered(*process.transport, process.block);
    line.say(process.write(2, 1000, 1).wait().ToString());
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "written");
  processes.signal(1, SIGKILL);
  EXPECT_EQ(processes.wait(1), -SIGKILL);
  processes.line(0).say("look");
  const std::string text = processes.line(0).hear();
  if (text.find("OK") != 0) {  // it may have been through before
    EXPECT_THAT(text, HasSubstr("UNAVAILABLE"));
    EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
    EXPECT_THAT(text, HasSubstr("tcp;ofi_rxm"));
  }
  EXPECT_EQ(processes.line(0).hear(), "OK");
  EXPECT_EQ(processes.line(0).hear(), "freed");
  EXPECT_EQ(processes.line(0).hear(), "at once");
  EXPECT_EQ(processes.line(0).hear(), "OK");
}

TEST(BulkProcesses, NameThePeer_WhenItIsKilledInTheMiddleOfWritesToIt) {
  Processes processes(3, [](int rank, Line& line) {
    Process process(rank, 3, kLong, line);
    if (rank != 0) {
      if (rank == 1) line.say(process.awaitFirstByte(1) ? "written" : "nothing came");
      line.hear(60'000);
      return;
    }
    std::vector<BulkEnd> ends;
    for (uint32_t i = 0; i < 20; ++i) ends.push_back(process.write(1, kLong, i, bulkSoon(30'000)));
    line.say("called");
    line.hear();
    const auto start = Clock::now();
    // The last one cannot have been through.
    std::string last;
    for (BulkEnd& end : ends) last = describe(end.wait());
    line.say(last);
    line.say(Clock::now() - start < milliseconds(10'000) ? "in time" : "late");
    line.say(describe(process.write(1, 10, 1, bulkSoon(300)).wait()));
    line.say(process.write(2, kLong, 1).wait().ToString());
    line.hear();
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "called");
  ASSERT_EQ(processes.line(1).hear(), "written");
  processes.signal(1, SIGKILL);
  EXPECT_EQ(processes.wait(1), -SIGKILL);
  processes.line(0).say("look");
  std::string text = processes.line(0).hear();
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("UNAVAILABLE"), HasSubstr("DEADLINE_EXCEEDED")));
  EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
  EXPECT_EQ(processes.line(0).hear(), "in time");
  text = processes.line(0).hear();
  // libfabric keeps the connection that broke for a while, or tries to make a new one.
  EXPECT_THAT(text, ::testing::AnyOf(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("no connection could be made")),
                                     AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("not connected"))));
  EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
  EXPECT_EQ(processes.line(0).hear(), "OK");
}

TEST(BulkProcesses, AreNotWrittenToAnyMore_OnceAStoppedWriterWasGivenUp) {
  Processes processes(2, [](int rank, Line& line) {
    Process process(rank, 2, kLong, line);
    if (rank == 1) return writeForever(process, line);
    ASSERT_TRUE(process.transport->grant(process.region, 1).ok());
    line.say(process.awaitFirstByte(2) ? "written" : "nothing came");
    line.hear();
    BulkEnd early, drained;
    process.transport->drain(process.region, bulkSoon(50), early.done());
    line.say(early.wait().ToString());
    process.transport->failPeer(1, absl::UnavailableError("silent"));
    process.transport->drain(process.region, bulkSoon(), drained.done());
    line.say(drained.wait().ToString());
    // What a peer of freed memory would do.
    std::memset(process.block->bytes_.data(), 0x55, process.block->bytes_.size());
    line.say("refilled");
    line.hear();
    line.say(static_cast<size_t>(std::count(process.block->bytes_.begin(), process.block->bytes_.end(),
                                            std::byte{0x55})) == kLong
                 ? "untouched"
                 : "written to");
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "written");
  processes.signal(1, SIGSTOP);
  processes.line(0).say("drain");
  EXPECT_THAT(processes.line(0).hear(), HasSubstr("granted to machines [1]"));
  EXPECT_EQ(processes.line(0).hear(), "OK");
  ASSERT_EQ(processes.line(0).hear(), "refilled");
  processes.signal(1, SIGCONT);
  std::this_thread::sleep_for(milliseconds(200));
  processes.line(0).say("look");
  EXPECT_EQ(processes.line(0).hear(), "untouched");
}

TEST(BulkProcesses, TellAtTheDeadline_ThatAPeerHasStopped) {
  Processes processes(3, [](int rank, Line& line) {
    Process process(rank, 3, kLong, line);
    if (rank != 0) {
      line.hear(60'000);
      return;
    }
    line.say(process.write(1, 10, 1).wait().ToString());
    line.hear();
    const auto start = Clock::now();
    std::vector<BulkEnd> ends;
    for (uint32_t i = 0; i < 3; ++i) ends.push_back(process.write(1, kLong, i, bulkSoon(300)));
    ends.push_back(process.read(1, kLong, bulkSoon(300)));
    for (BulkEnd& end : ends) line.say(describe(end.wait()));
    const auto waited = Clock::now() - start;
    line.say(waited > milliseconds(250) && waited < milliseconds(5000) ? "in time" : "not in time");
    line.say(process.write(2, kLong, 1).wait().ToString());
    BulkEnd drained;
    process.transport->failPeer(1, absl::UnavailableError("silent"));
    process.transport->drain(process.region, bulkSoon(), drained.done());
    line.say(drained.wait().ToString());
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "OK");
  processes.signal(1, SIGSTOP);
  processes.line(0).say("write");
  for (int i = 0; i < 4; ++i) {
    const std::string text = processes.line(0).hear();
    EXPECT_THAT(text, HasSubstr("DEADLINE_EXCEEDED"));
    EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
  }
  EXPECT_EQ(processes.line(0).hear(), "in time");
  EXPECT_EQ(processes.line(0).hear(), "OK");
  EXPECT_EQ(processes.line(0).hear(), "OK");
}

TEST(BulkProcesses, NameThePeer_WhenItIsKilledInTheMiddleOfAReadFromIt) {
  Processes processes(2, [](int rank, Line& line) {
    Process process(rank, 2, kLong, line);
    if (rank == 1) {
      line.hear(60'000);
      return;
    }
    std::vector<BulkEnd> ends;
    for (int i = 0; i < 20; ++i) ends.push_back(process.read(1, kLong));
    line.say(process.awaitFirstByte(2) ? "read" : "nothing came");
    std::string last;
    for (BulkEnd& end : ends) last = describe(end.wait());
    line.say(last);
    process.transport->failPeer(1, absl::UnavailableError("lost"));
    BulkEnd drained;
    process.transport->drain(process.region, bulkSoon(), drained.done());
    line.say(drained.wait().ToString());
  });
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "read");
  processes.signal(1, SIGKILL);
  const std::string text = processes.line(0).hear();
  EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("UNAVAILABLE"), HasSubstr("DEADLINE_EXCEEDED")));
  EXPECT_THAT(text, HasSubstr("peer=machine 1 process 0 ("));
  EXPECT_EQ(processes.line(0).hear(), "OK");
  EXPECT_EQ(processes.wait(0), 0);
}

TEST(BulkProcesses, AreNotDisturbedByStrangersOnTheirPort) {
  Processes processes(2, [](int rank, Line& line) {
    Process process(rank, 2, 1000, line);
    if (rank == 0) line.say(absl::StrCat(::getpid()));
    for (std::string word = line.hear(60'000); word == "write"; word = line.hear(60'000)) {
      line.say(process.write(1 - rank, 1000, 1).wait().ToString());
    }
  });
  introduce(processes);
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(processes.line(0).hear(), &pid));
  const std::set<uint16_t> ports = farhop::testing::listeningPorts(pid);
  ASSERT_EQ(ports.size(), 1u);
  farhop::testing::pester(*ports.begin());
  for (int rank = 0; rank < 2; ++rank) {
    processes.line(rank).say("write");
    EXPECT_EQ(processes.line(rank).hear(), "OK") << rank;
  }
  farhop::testing::pester(*ports.begin());
  for (int rank = 0; rank < 2; ++rank) {
    processes.line(rank).say("write");
    EXPECT_EQ(processes.line(rank).hear(), "OK") << rank;
  }
}

TEST(BulkProcesses, KeepTheirSignalHandlers) {
  Processes processes(1, [](int, Line& line) {
    Process process(0, 1, 1000, line);
    line.hear(60'000);
  });
  introduce(processes);
  processes.signal(0, SIGTERM);
  EXPECT_EQ(processes.wait(0), -SIGTERM);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(BulkProcesses, TakeAtMostTenMegabytesForAnEndpoint) {
  constexpr int kPeers = 4;
  Processes processes(kPeers, [](int rank, Line& line) {
    const uint64_t before = anonymousBytes();
    Process process(rank, kPeers, 1 << 20, line);
    for (int peer = 0; peer < kPeers; ++peer) {
      if (peer == rank) continue;
      std::vector<BulkEnd> ends;
      for (uint32_t i = 0; i < 32; ++i) ends.push_back(process.write(peer, 1 << 20, i));
      for (BulkEnd& end : ends) EXPECT_TRUE(end.wait().ok());
    }
    EXPECT_TRUE(process.arrivals->await((kPeers - 1) * 32));
    const uint64_t used = anonymousBytes() - before - (1 << 20);
    line.say(absl::StrCat(used));
    line.hear();
  });
  introduce(processes);
  for (int rank = 0; rank < kPeers; ++rank) {
    uint64_t used = 0;
    ASSERT_TRUE(absl::SimpleAtoi(processes.line(rank).hear(), &used));
    EXPECT_LE(used, uint64_t{10'000'000});
    std::printf("endpoint with %d peers: %.1f MB\n", kPeers - 1, static_cast<double>(used) / 1e6);
  }
}
#endif

}  // namespace
}  // namespace farhop::rpc
