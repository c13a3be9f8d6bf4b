// Pulls between processes, over the bulk transport and over TensorPipe: owners that are killed or stopped in the middle of
// one, and whole sessions that are told to use the bulk transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/session.h"
#include "sampler/bulk_feature_service.h"
#include "sampler/bulk_puller.h"
#include "sampler/feature_puller.h"
#include "sampler/table_keys.h"
#include "tests/agent_processes.h"
#include "tests/fixture_graphs.h"
#include "tests/open_ports.h"
#include "tests/process_group.h"
#include "tests/session_job.h"
#include "tests/temporary_directory.h"

namespace farhop::sampler {
namespace {

using rpc::testing::Line;
using rpc::testing::Processes;
using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr size_t kFloats = 4096;
constexpr size_t kRows = 4000;

struct Way {
  const char* name;
  bool lands = false;
  BulkReads reads = BulkReads::kAutomatic;
  bool bulk = true;  // or TensorPipe
};

// One process's part in a group of three: everything that pulls need.
struct Member {
  std::shared_ptr<const PartitionedGraph> graph;
  Metrics registry;
  std::shared_ptr<SamplerMetrics> metrics = std::make_shared<SamplerMetrics>(&registry);
  std::unique_ptr<rpc::Agent> agent;
  std::shared_ptr<rpc::BulkTransport> bulk;
  std::shared_ptr<rpc::BulkSlots> slots = std::make_shared<rpc::BulkSlots>();
  std::unique_ptr<FeaturePuller> puller;
  std::vector<uint64_t> gids;  // rows of one machine, random

  Member(const std::string& store, int rank, int size, const Way& way, Line& line) {
    graph = *PartitionedGraph::open(*partition::GraphStore::open(store), rank, size);
    rpc::AgentOptions options;
    options.rank = rank;
    options.size = size;
    for (int peer = 0; peer < size; ++peer) options.peers.push_back({peer, 0, absl::StrCat("h", peer, ":1")});
    options.peerTimeout = milliseconds(60'000);
    rpc::BulkOptions bulkOptions;
    bulkOptions.peers = options.peers;
    bulkOptions.rank = rank;
    bulkOptions.size = size;
    BulkPullerOptions pulls;
    pulls.peers = options.peers;
    pulls.minLandingTime = milliseconds(0);
    pulls.grace = milliseconds(200);
    pulls.graph = graph;
    pulls.reads = way.reads;
    agent = *rpc::Agent::create(std::move(options));
    registerFeatureService(agent.get(), graph, metrics, size_t{64} << 20);
    if (way.bulk) openBulk(std::move(bulkOptions));
    line.say(absl::StrCat(agent->address(), ",", bulk ? absl::BytesToHexString(bulk->address()) : ""));
    std::vector<std::string> agents, bulks;
    for (absl::string_view one : absl::StrSplit(line.hear(), ' ')) {
      const std::vector<std::string> fields = absl::StrSplit(one, ',');
      agents.push_back(fields[0]);
      bulks.push_back(absl::HexStringToBytes(fields[1]));
    }
    absl::Status status = bulk ? bulk->connect(bulks) : absl::OkStatus();
    if (status.ok()) status = agent->connect(agents, Deadline::after(milliseconds(20'000)));
    pulls.transport = bulk;
    pulls.slots = slots;
    auto transport = bulk ? bulkRowTransport(agent.get(), std::move(pulls)) : agentRowTransport(agent.get());
    puller = std::make_unique<FeaturePuller>(graph, std::move(transport), metrics, size_t{1} << 20);
    line.say(status.ok() ? "connected" : status.ToString());
  }
  ~Member() {
    agent->close(absl::CancelledError("over"));
    if (bulk) bulk->close(absl::CancelledError("over"));
  }

  void openBulk(rpc::BulkOptions options) {
    bulk = *rpc::makeFabricTransport(std::move(options), {.choice = "tcp"});
    bulk->onArrival([counted = slots](uint32_t data) { counted->arrived(data); });
    agent->onPeerLost([transport = bulk.get()](int peer, absl::Status reason) { transport->failPeer(peer, std::move(reason)); });
    registerBulkFeatureService(agent.get(), {.transport = bulk, .graph = graph, .metrics = metrics});
    registerTableKeys(agent.get(), bulk, graph);
  }

  // Rows of one machine into memory that lives as long as the pull, and that is overwritten right after it.
  absl::Status pull(int machine, bool lands, milliseconds timeout) {
    auto rows = std::make_shared<std::vector<float>>(kRows * kFloats);
    std::vector<uint64_t> wanted(kRows);
    for (size_t i = 0; i < kRows; ++i) {
      const uint64_t count = graph->book().count(0, machine);
      wanted[i] = graph->book().begin(0, machine) + (i * 7919) % count;
    }
    PullRequest request;
    request.gids = wanted;
    request.targets = {{0, reinterpret_cast<std::byte*>(rows->data())}};
    if (lands) request.keepAlive = rows;
    request.deadline = Deadline::after(timeout);
    std::promise<absl::Status> done;
    puller->pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    const absl::Status status = done.get_future().get();
    if (status.ok()) {
      const float first = rows->at(0);
      for (size_t c = 1; c < 3; ++c) {
        if (rows->at(c) == first) return absl::DataLossError("these are not the rows");
      }
    }
    std::fill(rows->begin(), rows->end(), -1.0F);
    return status;
  }
};

class BulkPullProcesses : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    farhop::testing::FixtureOptions fixture;
    fixture.featureDim = kFloats;
    fixture.nodes = 300;
    farhop::testing::writeFixtureStore(fixture, 3, directory_ / "store");
  }
  static void introduce(Processes& processes) {
    std::vector<std::string> all;
    for (int rank = 0; rank < processes.size(); ++rank) all.push_back(processes.line(rank).hear());
    for (int rank = 0; rank < processes.size(); ++rank) processes.line(rank).say(absl::StrJoin(all, " "));
    for (int rank = 0; rank < processes.size(); ++rank) ASSERT_EQ(processes.line(rank).hear(), "connected");
  }
  // Rank 0 pulls from rank 1 until that fails, then from rank 2, and from rank 1 again when it is told to. Says when it has
  // begun, how it failed and how the rest went.
  std::function<void(int, Line&)> body(milliseconds timeout) {
    return [path = directory_ / "store", way = GetParam(), lands = GetParam().lands, timeout](int rank, Line& line) {
      Member member(path, rank, 3, way, line);
      if (rank != 0) {
        line.hear(60'000);
        return;
      }
      absl::Status status = member.pull(1, lands, milliseconds(20'000));
      line.say(status.ok() ? "pulling" : status.ToString());
      auto start = Clock::now();
      for (int i = 0; i < 10'000 && status.ok(); ++i) {
        start = Clock::now();
        status = member.pull(1, lands, timeout);
      }
      const bool inTime = Clock::now() - start < timeout + milliseconds(3'000);
      const std::optional<PeerName> peer = peerOf(status);
      line.say(absl::StrCat(status.ToString(), " peer=", peer ? describePeer(*peer) : "none", inTime ? " in time" : " late"));
      line.say(member.pull(2, lands, milliseconds(20'000)).ToString());
      if (line.hear(60'000) != "again") return;
      line.say(member.pull(1, lands, milliseconds(20'000)).ToString());
      line.hear(60'000);
    };
  }
  farhop::testing::TemporaryDirectory directory_;
};

TEST_P(BulkPullProcesses, NameTheOwnerThatIsKilledInTheMiddle_AndGoOnWithOthers) {
  Processes processes(3, body(milliseconds(20'000)));
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "pulling");
  std::this_thread::sleep_for(milliseconds(50));
  processes.signal(1, SIGKILL);
  const std::string text = processes.line(0).hear();
  EXPECT_THAT(text, HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(text, ContainsRegex("machine 1 process 0 \\(.*\\).* peer=machine 1 process 0 \\(.*\\) in time"));
  EXPECT_EQ(processes.line(0).hear(), "OK");
  processes.line(0).say("end");
  EXPECT_EQ(processes.wait(0), 0);
}

TEST_P(BulkPullProcesses, EndAtTheDeadline_WhenTheOwnerStopsInTheMiddle_AndGoOnWithOthers_AndWithIt) {
  Processes processes(3, body(milliseconds(1'000)));
  introduce(processes);
  ASSERT_EQ(processes.line(0).hear(), "pulling");
  std::this_thread::sleep_for(milliseconds(50));
  processes.signal(1, SIGSTOP);
  const std::string text = processes.line(0).hear();
  EXPECT_THAT(text, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_THAT(text, ContainsRegex("machine 1 process 0 \\(.*\\).* peer=.* in time"));
  EXPECT_EQ(processes.line(0).hear(), "OK");
  // It goes on with what it was at, into memory that is gone, and serves the next.
  processes.signal(1, SIGCONT);
  processes.line(0).say("again");
  EXPECT_EQ(processes.line(0).hear(), "OK");
  processes.line(0).say("end");
  EXPECT_EQ(processes.wait(0), 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, BulkPullProcesses,
                         ::testing::Values(Way{"Landing", true}, Way{"Staged"}, Way{"ReadLanding", true, BulkReads::kAlways},
                                           Way{"ReadStaged", false, BulkReads::kAlways},
                                           Way{"OverTensorPipe", true, BulkReads::kAutomatic, false}),
                         [](const auto& one) { return one.param.name; });

TEST(BulkSession, PullsFeaturesOverTheGroupsTransport) {
  farhop::testing::TemporaryDirectory directory;
  farhop::testing::FixtureOptions fixture;
  fixture.featureDim = kFloats;
  const std::string store = farhop::testing::writeFixtureStore(fixture, 2, directory / "store");
  test::SessionJob job(2, 2, "bulk-session");
  test::ProcessGroup group(job.worldSize(), [&](int rank) -> std::string {
    runtime::SessionOptions options = test::quickOptions();
    options.fabric = "";  // whatever works
    auto session = runtime::Session::start(job.contract(rank), options);
    if (!session.ok()) return test::describeFailure(session.status());
    const runtime::GroupBulk* bulk = (*session)->bulk();
    if (bulk == nullptr || (*session)->times().fabricSeconds < 0) return "no bulk transport";
    if (!farhop::testing::listeningPorts(::getpid()).empty()) return "a port is open";
    const auto graph = *PartitionedGraph::open(*partition::GraphStore::open(store), job.machineOf(rank), 2);
    auto metrics = std::make_shared<SamplerMetrics>(&(*session)->metrics());
    registerBulkFeatureService((*session)->agent(), {.transport = bulk->transport(), .graph = graph, .metrics = metrics});
    const Deadline soon = Deadline::after(milliseconds(20'000));
    if (const absl::Status status = (*session)->collectives().barrierJob(soon); !status.ok()) return test::describeFailure(status);
    BulkPullerOptions pulls;
    pulls.transport = bulk->transport();
    pulls.slots = bulk->slots();
    pulls.peers = bulk->peers();
    FeaturePuller puller(graph, bulkRowTransport((*session)->agent(), std::move(pulls)), metrics, size_t{1} << 20);
    std::vector<uint64_t> gids(60);
    std::iota(gids.begin(), gids.end(), 0);
    auto rows = std::make_shared<std::vector<float>>(60 * kFloats);
    PullRequest request;
    request.gids = gids;
    request.targets = {{0, reinterpret_cast<std::byte*>(rows->data())}};
    request.keepAlive = rows;
    request.deadline = soon;
    std::promise<absl::Status> done;
    puller.pull(std::move(request), [&](absl::Status status) { done.set_value(std::move(status)); });
    if (const absl::Status status = done.get_future().get(); !status.ok()) return test::describeFailure(status);
    if (bulk->transport()->traffic().arrivals == 0) return "nothing came over the bulk transport";
    return test::describeFailure((*session)->leave(soon));
  });
  job.releasePorts();
  for (const test::ChildResult& result : group.wait(milliseconds(60'000))) EXPECT_EQ(result.text, "OK");
  EXPECT_EQ(job.leftovers(), "");
}

// Two machines with these values of FARHOP_FABRIC: what start() says on each, "bulk" or "no bulk" when it says OK.
std::vector<std::string> startWith(const std::vector<std::string>& fabrics) {
  test::SessionJob job(2, 1, "bulk-choice");
  test::ProcessGroup group(2, [&](int rank) -> std::string {
    runtime::SessionOptions options = test::quickOptions();
    options.fabric = fabrics[static_cast<size_t>(rank)];
    auto session = runtime::Session::start(job.contract(rank), options);
    if (!session.ok()) return session.status().ToString();
    const std::string found = (*session)->bulk() == nullptr ? "no bulk" : "bulk";
    const absl::Status left = (*session)->leave(Deadline::after(milliseconds(20'000)));
    return left.ok() ? found : left.ToString();
  });
  job.releasePorts();
  std::vector<std::string> texts;
  for (const test::ChildResult& result : group.wait(milliseconds(60'000))) texts.push_back(result.text);
  return texts;
}

TEST(BulkSession, AgreesOnATransport_OrOnNone) {
  using ::testing::Each;
  EXPECT_THAT(startWith({"", "auto"}), Each("bulk"));
  EXPECT_THAT(startWith({"", "none"}), Each("no bulk"));
  // Whoever insists ends the job.
  EXPECT_THAT(startWith({"", "tcp"}), Each(HasSubstr("\"tcp\" at machine 1 process 0")));
  EXPECT_THAT(startWith({"none", "tcp"}), Each(HasSubstr("FARHOP_FABRIC=none there")));
}

}  // namespace
}  // namespace farhop::sampler
