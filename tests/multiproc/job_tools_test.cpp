// farhop ps and farhop clean, on jobs that run; and what they stand on: status endpoints, processes found by their job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "launcher/clean_command.h"
#include "launcher/job_processes.h"
#include "launcher/ps_command.h"
#include "launcher/start_report.h"
#include "runtime/job_news.h"
#include "runtime/status_board.h"
#include "tests/multiproc/farhop_process.h"
#include "tests/temporary_directory.h"

namespace farhop {
namespace {

using runtime::ProcessState;
using runtime::ProcessStatus;
using std::chrono::milliseconds;
using testing::eventually;
using testing::FarhopProcess;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Deadline soon() { return Deadline::after(milliseconds(10'000)); }

runtime::LaunchContract contractOf(const std::string& name) {
  runtime::LaunchContract contract;
  contract.numMachines = 3;
  contract.machine = 2;
  contract.procsPerMachine = 2;
  contract.proc = 1;
  contract.jobId = absl::StrCat(name, "-", ::getpid());
  return contract;
}

ProcessStatus someStatus() {
  ProcessStatus status;
  status.jobId = "job-1";
  status.machine = 2;
  status.proc = 1;
  status.numMachines = 3;
  status.procsPerMachine = 2;
  status.pid = 4711;
  status.host = "node7";
  status.state = ProcessState::kTraining;
  status.upSeconds = 61.25;
  status.gateSeconds = 1.5;
  status.readySeconds = 2.125;
  status.epoch = 7;
  status.batches = 1'000'000'000'000;
  status.batchesPerSecond = 12.75;
  status.residentBytes = 1 << 20;
  status.peakBytes = 2 << 20;
  return status;
}

TEST(ProcessStatus, IsReadAsItWasWritten) {
  const std::string text = encodeProcessStatus(someStatus());
  const auto status = runtime::decodeProcessStatus(text);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(encodeProcessStatus(*status), text);
  EXPECT_EQ(status->batches, someStatus().batches);
  EXPECT_EQ(status->state, ProcessState::kTraining);
  EXPECT_TRUE(runtime::decodeProcessStatus(text + "news\tof a later version\n").ok());
}

TEST(ProcessStatus, RefusesWhatIsNone) {
  const std::string text = encodeProcessStatus(someStatus());
  for (const auto& [from, to] : std::map<std::string, std::string>{{"status 1", "status 2"}, {"machine\t2", "machine\t3"},
                                                                  {"training", "flying"}, {"epoch\t7", "epoch\t-2"},
                                                                  {"up\t61.250", "up\tnan"}, {"pid\t4711", "pid\t0"},
                                                                  {"job\tjob-1", "job\t"}, {"host\t", "host"}}) {
    std::string other = text;
    ASSERT_NE(other.find(from), std::string::npos) << from;
    other.replace(other.find(from), from.size(), to);
    EXPECT_TRUE(absl::IsInvalidArgument(runtime::decodeProcessStatus(other).status())) << to;
  }
  EXPECT_FALSE(runtime::decodeProcessStatus("").ok());
  EXPECT_FALSE(runtime::decodeProcessStatus(text + std::string(runtime::kMaxStatusBytes, 'x') + "\n").ok());
}

TEST(ProcessStatus, SurvivesAnyBytes) {
  std::mt19937_64 random(20240610);
  const std::string text = encodeProcessStatus(someStatus());
  const std::string news = runtime::encodeStageNews({1, 2, ProcessState::kReady, 1.5, 100});
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = i % 2 == 0 ? text : news;
    for (uint64_t n = random() % 4; n-- > 0;) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    if (const auto status = runtime::decodeProcessStatus(bytes); status.ok()) {
      EXPECT_LT(status->machine, status->numMachines);
    }
    (void)runtime::decodeStageNews(bytes);
  }
}

TEST(StageNews, IsReadAsItWasWritten) {
  const auto news = runtime::decodeStageNews(runtime::encodeStageNews({1, 2, ProcessState::kConnecting, 3.5, 1'000}));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->machine, 1);
  EXPECT_EQ(news->proc, 2);
  EXPECT_EQ(news->state, ProcessState::kConnecting);
  EXPECT_DOUBLE_EQ(news->seconds, 3.5);
  EXPECT_EQ(news->peakBytes, 1'000u);
  // Neither direction's message is taken for the other's.
  EXPECT_FALSE(runtime::decodeJobNews(runtime::encodeStageNews({})).has_value());
  EXPECT_FALSE(runtime::decodeStageNews(runtime::encodeJobNews({})).has_value());
}

TEST(StartReport, HasOneLinePerGroup_OnceAllItsProcessesAreReady) {
  launcher::StartReport report(2, 2);
  EXPECT_FALSE(report.take({0, 1, ProcessState::kWaiting, 0.1, 1'000'000}).has_value());
  EXPECT_FALSE(report.take({0, 1, ProcessState::kConnecting, 3.0, 2'000'000}).has_value());
  EXPECT_FALSE(report.take({1, 1, ProcessState::kConnecting, 3.25, 2'000'000}).has_value());
  EXPECT_FALSE(report.take({0, 1, ProcessState::kReady, 4.0, 3'000'000}).has_value());
  EXPECT_EQ(report.take({1, 1, ProcessState::kReady, 4.5, 2'500'000}).value_or(""),
            "group 1 ready after 4.5 s: waiting 3.2 s, connecting 1.2 s, peak memory 3.0 MB of a process");
  EXPECT_FALSE(report.take({1, 1, ProcessState::kReady, 5.0, 0}).has_value());
  EXPECT_FALSE(report.take({1, 0, ProcessState::kTraining, 5.0, 0}).has_value());
  EXPECT_FALSE(report.take({2, 0, ProcessState::kReady, 5.0, 0}).has_value());
}

TEST(StatusBoard, GoesOnAndNeverBack) {
  runtime::StatusBoard board(contractOf("board"));
  std::vector<ProcessState> entered;
  board.setOnEnter([&](const ProcessStatus& status) { entered.push_back(status.state); });
  board.enter(ProcessState::kWaiting);
  board.enter(ProcessState::kConnecting);
  EXPECT_GE(board.status().gateSeconds, 0);
  EXPECT_LT(board.status().readySeconds, 0);
  board.enter(ProcessState::kReady);
  board.beginEpoch(3);
  board.beginEpoch(4);
  board.enter(ProcessState::kWaiting);
  EXPECT_THAT(entered, ElementsAre(ProcessState::kWaiting, ProcessState::kConnecting, ProcessState::kReady,
                                   ProcessState::kTraining));
  EXPECT_EQ(board.status().epoch, 4);
}

TEST(StatusBoard, TellsTheRateOfLately) {
  runtime::StatusBoard board(contractOf("rate"));
  board.tick();
  for (int i = 0; i < 60; ++i) board.countBatch();
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(milliseconds(600));
  const double rate = board.status().batchesPerSecond;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GT(rate, 0);
  EXPECT_LE(rate, 60 / 0.6);
  EXPECT_GE(rate, 60 / (seconds + 5));
}

TEST(StatusServer, AnswersWhoAsks_AndGoesAway) {
  const runtime::LaunchContract contract = contractOf("server");
  const std::string name = runtime::statusSocketName(contract);
  runtime::StatusBoard board(contract);
  {
    auto server = runtime::StatusServer::open(contract, &board);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_THAT(runtime::listStatusSockets(), Contains(name));
    board.beginEpoch(5);
    const auto answers = runtime::askProcesses({name}, soon());
    ASSERT_THAT(answers, SizeIs(1));
    EXPECT_EQ(answers[0].jobId, contract.jobId);
    EXPECT_EQ(answers[0].epoch, 5);
    EXPECT_EQ(answers[0].pid, ::getpid());
    EXPECT_GT(answers[0].residentBytes, 0u);
    // A second process of that place is not seen, and not ended for it.
    EXPECT_TRUE(absl::IsAlreadyExists(runtime::StatusServer::open(contract, &board).status()));
  }
  EXPECT_THAT(runtime::listStatusSockets(), Not(Contains(name)));
  std::vector<std::string> missing;
  EXPECT_THAT(runtime::askProcesses({name}, soon(), &missing), IsEmpty());
  EXPECT_THAT(missing, ElementsAre(name));
}

TEST(StatusServer, AnswersBesideThoseWhoNeitherReadNorEnd) {
  const runtime::LaunchContract contract = contractOf("idlers");
  const std::string name = runtime::statusSocketName(contract);
  runtime::StatusBoard board(contract);
  auto server = runtime::StatusServer::open(contract, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 200; ++i) {
    auto fd = connectAbstract(name, soon(), true);
    ASSERT_TRUE(fd.ok()) << fd.status();
    (void)!::send(fd->get(), "GET / HTTP/1.1", 14, MSG_NOSIGNAL);  // it may be gone already
    idle.push_back(*std::move(fd));
  }
  ASSERT_TRUE(eventually([&] { return runtime::askProcesses({name}, soon()).size() == 1; }));
}

TEST(AskProcesses, DoesNotWaitForOneThatNeverAnswers) {
  const runtime::LaunchContract silent = contractOf("silent"), good = contractOf("good");
  const auto listener = listenAbstract(runtime::statusSocketName(silent), 4);
  ASSERT_TRUE(listener.ok());
  runtime::StatusBoard board(good);
  auto server = runtime::StatusServer::open(good, &board);
  ASSERT_TRUE(server.ok());
  std::vector<std::string> missing;
  const auto answers = runtime::askProcesses({runtime::statusSocketName(silent), runtime::statusSocketName(good)},
                                             Deadline::after(milliseconds(400)), &missing);
  EXPECT_THAT(answers, SizeIs(1));
  EXPECT_THAT(missing, ElementsAre(runtime::statusSocketName(silent)));
}

TEST(JobJson, IsReadAsItWasWritten) {
  const launcher::JobView view{{someStatus()}, {"somebody: no answer"}};
  const auto again = launcher::parseJobJson(jobJson(view));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(jobJson(*again), jobJson(view));
  EXPECT_TRUE(absl::IsInvalidArgument(launcher::parseJobJson("bash: farhop: not found").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(launcher::parseJobJson(R"({"processes": [{}], "missing": []})").status()));
}

// A job whose processes stay until they are ended, or fail.
std::vector<std::string> stayingJob() {
  return {FARHOP_PROGRAM, "run", "--machines", "2", "--procs", "2", "--", STAYING_TRAINER, "0", "x", "stay"};
}

nlohmann::json look(const std::string& jobId) {
  FarhopProcess ps({FARHOP_PROGRAM, "ps", "--json", "--job", jobId});
  (void)ps.wait();
  return nlohmann::json::parse(ps.out(), nullptr, false);
}

TEST(FarhopPs, ShowsEveryProcessOfARunningJob) {
  FarhopProcess job(stayingJob());
  ASSERT_TRUE(job.awaitErr("farhop: job"));
  nlohmann::json seen;
  // The process of rank 0 stays; the others wait for its farewell.
  ASSERT_TRUE(eventually([&] {
    seen = look(job.jobId());
    int leaving = 0;
    for (const auto& process : seen["processes"]) leaving += process["state"] == "leaving";
    return leaving == 3;
  })) << seen << job.err();
  ASSERT_EQ(seen["processes"].size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    const auto& process = seen["processes"][static_cast<size_t>(rank)];
    EXPECT_EQ(process["machine"], rank / 2);
    EXPECT_EQ(process["group"], rank % 2);
    EXPECT_EQ(process["state"], rank == 0 ? "ready" : "leaving");
    EXPECT_GT(process["resident_bytes"], 1'000'000);
    EXPECT_GE(process["ready_seconds"], process["gate_seconds"]);
    EXPECT_EQ(::kill(process["pid"].get<int>(), 0), 0);
  }
  EXPECT_THAT(job.err(), AllOf(HasSubstr("farhop: group 0 ready after "), HasSubstr("farhop: group 1 ready after ")));
  FarhopProcess ps({FARHOP_PROGRAM, "ps", "--job", job.jobId()});
  EXPECT_EQ(ps.wait(), 0);
  EXPECT_THAT(ps.out(), AllOf(HasSubstr("4 of 4 processes"), HasSubstr("leaving"), HasSubstr("batches/s")));
  ::kill(job.pid(), SIGTERM);
  EXPECT_NE(job.wait(), -1);
  FarhopProcess after({FARHOP_PROGRAM, "ps", "--job", job.jobId()});
  EXPECT_EQ(after.wait(), 1);
  EXPECT_THAT(after.out(), HasSubstr("no processes of job"));
}

TEST(FarhopPs, ShowsAProcessThatHasNotStartedItsRuntimeYet) {
  FarhopProcess job({FARHOP_PROGRAM, "run", "--procs", "2", "--", "/bin/sleep", "60"});
  ASSERT_TRUE(job.awaitErr("farhop: job"));
  nlohmann::json seen;
  ASSERT_TRUE(eventually([&] { return (seen = look(job.jobId()))["processes"].size() == 2; })) << seen;
  EXPECT_EQ(seen["processes"][1]["state"], "starting");
  EXPECT_EQ(seen["processes"][1]["group"], 1);
}

TEST(FarhopPs, LooksAgainAndAgain_WhenItWatches) {
  FarhopProcess job({FARHOP_PROGRAM, "run", "--", "/bin/sleep", "60"});
  ASSERT_TRUE(job.awaitErr("farhop: job"));
  FarhopProcess ps({FARHOP_PROGRAM, "ps", "--watch", "--interval", "0.1", "--job", job.jobId()});
  const std::string head = absl::StrCat("job ", job.jobId(), ": 1 of 1 processes");
  EXPECT_TRUE(eventually([&] {
    const std::string text = ps.out();
    const size_t first = text.find(head);
    return first != std::string::npos && text.find(head, first + 1) != std::string::npos;
  })) << ps.out();
  EXPECT_THAT(ps.out(), Not(HasSubstr("\033")));  // no terminal
}

TEST(FarhopClean, EndsWhatIsLeft_WhenLauncherAgentAndWatcherWereKilled) {
  // The trainer ends with its agent, what it has started in a session of its own with the agent's watcher.
  FarhopProcess job({FARHOP_PROGRAM, "run", "--", "/bin/sh", "-c", "setsid sleep 300 & exec sleep 300"});
  ASSERT_TRUE(job.awaitErr("farhop: job"));
  const std::string id = job.jobId();
  const auto strays = [&] {
    int count = 0;
    for (const launcher::FoundProcess& process : launcher::findJobProcesses(id)) count += process.command == "sleep";
    return count;
  };
  ASSERT_TRUE(eventually([&] { return strays() == 2; }));
  ::kill(job.pid(), SIGSTOP);
  // Stopped first: the watcher is not to find out that its agent is gone.
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (const launcher::FoundProcess& process : launcher::findJobProcesses(id)) {
      if (process.command != "sleep") ::kill(process.pid, signal);
    }
  }
  ::kill(job.pid(), SIGKILL);
  (void)job.wait();
  ASSERT_TRUE(eventually([&] { return strays() == 1 && testing::processesOf(id).size() == 1; }));
  ASSERT_THAT(job.temporary(), ElementsAre(HasSubstr(id)));
  const std::string tmp = std::filesystem::path(job.temporary()[0]).parent_path().string();

  FarhopProcess dry({FARHOP_PROGRAM, "clean", "--dry-run", "--job", id}, {{"TMPDIR", tmp}});
  EXPECT_EQ(dry.wait(), 0);
  EXPECT_THAT(dry.out(), AllOf(HasSubstr("would end process"), HasSubstr("would remove")));
  EXPECT_THAT(testing::processesOf(id), SizeIs(1));

  FarhopProcess clean({FARHOP_PROGRAM, "clean", "--job", id}, {{"TMPDIR", tmp}});
  EXPECT_EQ(clean.wait(), 0) << clean.err();
  EXPECT_THAT(clean.out(), AllOf(HasSubstr("ended process"), HasSubstr("(sleep, job"), HasSubstr("removed " + tmp)));
  EXPECT_THAT(testing::processesOf(id), IsEmpty());
  EXPECT_THAT(job.temporary(), IsEmpty());

  FarhopProcess again({FARHOP_PROGRAM, "clean", "--job", id}, {{"TMPDIR", tmp}});
  EXPECT_EQ(again.wait(), 0);
  EXPECT_THAT(again.out(), HasSubstr("nothing of job"));
}

TEST(FarhopClean, FindsNothing_AfterANormalEnd) {
  FarhopProcess job({FARHOP_PROGRAM, "run", "--procs", "2", "--", "/bin/true"});
  ASSERT_EQ(job.wait(), 0);
  EXPECT_THAT(job.temporary(), IsEmpty());
  FarhopProcess clean({FARHOP_PROGRAM, "clean", "--job", job.jobId()});
  EXPECT_EQ(clean.wait(), 0);
  EXPECT_THAT(clean.out(), HasSubstr("nothing of job"));
}

// A process in the environment of a job, under this test, in a process group of its own; ends with what it has started.
class Stray {
 public:
  Stray(const std::string& jobId, const std::string& script) {
    pid_ = group_ = ::fork();
    ::setpgid(pid_, pid_);  // by both: whoever comes first
    if (pid_ != 0) return;
    ::setenv("FARHOP_JOB_ID", jobId.c_str(), 1);
    ::execl("/bin/sh", "sh", "-c", script.c_str(), jobId.c_str(), nullptr);
    ::_exit(127);
  }
  ~Stray() {
    if (group_ > 0) ::kill(-group_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Stray(const Stray&) = delete;
  Stray& operator=(const Stray&) = delete;
  int pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  int pid_ = -1, group_ = -1;
};

std::string uniqueJob(const char* name) { return absl::StrCat("clean-test-", name, "-", ::getpid()); }

TEST(CleanJob, KillsWhatIgnoresSigterm) {
  const std::string id = uniqueJob("stubborn");
  farhop::testing::TemporaryDirectory directory;
  Stray stray(id, absl::StrCat("trap '' TERM; : > ", directory / "set", "; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory / "set"); }));
  launcher::CleanOptions options;
  options.jobId = id;
  options.grace = milliseconds(300);
  const launcher::CleanResult result = cleanJob(options);
  EXPECT_THAT(result.failures, IsEmpty());
  EXPECT_EQ(stray.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::processesOf(id), IsEmpty());
}

TEST(CleanJob, LeavesOtherJobsAndOtherNamesAlone) {
  const std::string id = uniqueJob("mine"), other = uniqueJob("other");
  Stray mine(id, "sleep 60"), another(other, "sleep 60");
  // Its command line has the job's id, its environment does not.
  Stray named("", absl::StrCat("sleep 60 # ", id));
  ASSERT_TRUE(eventually([&] { return !testing::processesOf(id).empty() && !testing::processesOf(other).empty(); }));
  launcher::CleanOptions options;
  options.jobId = id;
  cleanJob(options);
  EXPECT_EQ(mine.wait(), 128 + SIGTERM);
  EXPECT_EQ(::kill(another.pid(), 0), 0);
  EXPECT_EQ(::waitpid(named.pid(), nullptr, WNOHANG), 0);
}

TEST(CleanJob, RemovesWhatTheJobHasInSharedMemory_UnlessOthersUseIt) {
  const std::string id = uniqueJob("shm");
  const std::string mine = absl::StrCat("/dev/shm/farhop-test-mine-", ::getpid());
  const std::string shared = absl::StrCat("/dev/shm/farhop-test-shared-", ::getpid());
  std::ofstream(mine) << "x";
  std::ofstream(shared) << "x";
  const std::ifstream held(shared);
  Stray stray(id, absl::StrCat("exec 8<", mine, " 9<", shared, "; sleep 60"));
  ASSERT_TRUE(eventually([&] { return launcher::sharedMemoryFilesOf(stray.pid()).size() == 2; }));
  launcher::CleanOptions options;
  options.jobId = id;
  const launcher::CleanResult result = cleanJob(options);
  EXPECT_THAT(result.removed, ElementsAre(mine));
  EXPECT_NE(::access(mine.c_str(), F_OK), 0);
  EXPECT_EQ(::access(shared.c_str(), F_OK), 0);
  ::unlink(shared.c_str());
}

TEST(CleanJob, FindsFilesOfDeadProcesses) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  const auto file = [](int pid) { return absl::StrCat("/dev/shm/", pid, ":", ::geteuid(), ":0"); };
  std::ofstream(file(dead)) << "x";
  std::ofstream(file(::getpid())) << "x";
  const std::set<std::string> found = launcher::filesOfDeadProcesses();
  ::unlink(file(dead).c_str());
  ::unlink(file(::getpid()).c_str());
  EXPECT_THAT(found, Contains(file(dead)));
  EXPECT_THAT(found, Not(Contains(file(::getpid()))));
}

// What libfabric's shm provider leaves of a killed trainer. The shell's own number is the trainer's.
TEST(FarhopRun, LeavesNothingInSharedMemory_OfATrainerThatIsKilled) {
  farhop::testing::TemporaryDirectory directory;
  const std::string script = absl::StrCat("f=/dev/shm/$$:", ::geteuid(), ":0; echo x > $f; echo $f > ", directory / "name",
                                          "; echo x > /dev/shm/$PPID:", ::geteuid(), ":77; echo /dev/shm/$PPID:", ::geteuid(),
                                          ":77 > ", directory / "other", "; kill -9 $$");
  FarhopProcess job({FARHOP_PROGRAM, "run", "--", "/bin/sh", "-c", script});
  EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
  const auto nameIn = [&](const char* file) {
    std::string name;
    std::ifstream(directory / file) >> name;
    return name;
  };
  ASSERT_FALSE(nameIn("name").empty() || nameIn("other").empty()) << job.err();
  EXPECT_NE(::access(nameIn("name").c_str(), F_OK), 0);
  EXPECT_EQ(::access(nameIn("other").c_str(), F_OK), 0);  // of no trainer
  ::unlink(nameIn("other").c_str());
}

TEST(FarhopClean, SparesItselfAndWhatStartedIt) {
  const std::string id = uniqueJob("self");
  Stray inside(id, absl::StrCat(FARHOP_PROGRAM, " clean --job ", id, " > /dev/null; exit 7"));
  EXPECT_EQ(inside.wait(), 7);
}

TEST(FarhopClean, WantsToKnowWhich) {
  FarhopProcess none({FARHOP_PROGRAM, "clean"}), both({FARHOP_PROGRAM, "clean", "--all", "--job", "x"});
  EXPECT_EQ(none.wait(), 2);
  EXPECT_EQ(both.wait(), 2);
  EXPECT_THAT(none.err(), HasSubstr("--job ID"));
}

}  // namespace
}  // namespace farhop
