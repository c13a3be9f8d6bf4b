#include "launcher/doctor_remote.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/strings/str_format.h"
#include "launcher/job.h"
#include "launcher/line_channel.h"

namespace farhop::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kReachTime{30'000};
constexpr std::chrono::milliseconds kEndTime{2'000};
constexpr int kClockQuestions = 5;
constexpr double kClockYellowSeconds = 0.5, kClockRedSeconds = 60;
constexpr size_t kMaxBannerLines = 1'000;
constexpr size_t kMaxErrorBytes = 4'096;

// One host's conversation. Used by one thread at a time.
class Examination {
 public:
  Examination(const DoctorHost& host, int machine) : host_(host), machine_(machine) { report_.name = host.name; }

  // On the thread that lives longest: with it ends the program.
  void start() {
    SpawnRequest request;
    request.program = host_.command.front();
    request.arguments = host_.command;
    for (char** entry = ::environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
    request.workingDirectory = "/";
    request.openInput = true;
    auto process = Process::spawn(request);
    if (!process.ok()) return fail(process.status());
    process_.emplace(*std::move(process));
    errors_ = process_->takeErr();
    FileDescriptor out = process_->takeOut(), in = process_->takeIn();
    for (const int fd : {out.get(), in.get()}) (void)setNonBlocking(fd);
    channel_.emplace(std::move(out), std::move(in));
  }

  void hello(const std::string& version, std::chrono::milliseconds timeout) {
    if (!channel_) return;
    const Deadline deadline = Deadline::after(std::min(timeout, kReachTime));
    const std::string magic = kDoctorMagic;
    for (size_t lines = 0; lines < kMaxBannerLines; ++lines) {
      const auto line = channel_->receive(deadline);
      if (!line.ok()) return fail(line.status());
      if (line->rfind(magic, 0) != 0) continue;
      const Json json = Json::parse(line->substr(magic.size()), nullptr, false);
      const std::string theirs = json.value("version", "?");
      if (json.value("protocol", 0) != kDoctorProtocol || theirs != version) {
        return red({"version", CheckState::kRed, absl::StrCat("farhop ", theirs, " there, ", version, " here"),
                    "install the same version on all machines, or name it with --farhop"});
      }
      report_.checks.push_back({"reachable", CheckState::kGreen, absl::StrCat("over ssh, as ", json.value("host", "?")), ""});
      return;
    }
    fail(absl::InvalidArgumentError("farhop doctor does not answer there; is it another program or version?"));
  }

  void clock() {
    double bestTrip = 1e9, offset = 0;
    for (int question = 0; question < kClockQuestions; ++question) {
      const auto before = std::chrono::system_clock::now();
      const Json reply = ask({{"do", "clock"}}, kReachTime);
      const auto after = std::chrono::system_clock::now();
      if (!channel_ || !reply.contains("unix")) return;
      const double trip = std::chrono::duration<double>(after - before).count();
      if (trip >= bestTrip) continue;
      bestTrip = trip;
      offset = reply["unix"].get<double>() - std::chrono::duration<double>(before.time_since_epoch()).count() - trip / 2;
    }
    CheckResult result{"clock", CheckState::kGreen, absl::StrFormat("%+.3f s from this machine's (known to %.3f s)", offset, bestTrip / 2), ""};
    const double certain = std::abs(offset) - bestTrip / 2;
    if (certain > kClockYellowSeconds) {
      result.state = certain > kClockRedSeconds ? CheckState::kRed : CheckState::kYellow;
      result.todo = "logs and times of several machines do not fit together: run chronyd or systemd-timesyncd";
    }
    report_.checks.push_back(std::move(result));
  }

  void checks(DoctorOptions options, std::chrono::milliseconds timeout) {
    options.playsAll = false;
    options.shape.machine = machine_;
    const Json reply = ask({{"do", "checks"}, {"options", toJson(options)}}, timeout);
    if (!channel_) return;
    const auto results = checksFrom(reply.value("checks", Json()));
    if (!results.ok()) return fail(results.status());
    address_ = host_.address.empty() ? reply.value("address", "") : host_.address;
    report_.checks.insert(report_.checks.end(), results->begin(), results->end());
  }

  // Machine 0 where the groups will meet, the others anywhere, as groups do.
  void listen(const DoctorOptions& options, const std::string& word) {
    std::vector<int> ports = {0};
    for (int p = 1; machine_ == 0 && options.masterPort != 0 && p < options.shape.procs; ++p) ports.push_back(0);
    if (machine_ == 0 && options.masterPort != 0) {
      for (size_t p = 0; p < ports.size(); ++p) ports[p] = options.masterPort + static_cast<int>(p);
    }
    word_ = word;
    const Json reply = ask({{"do", "listen"}, {"ports", ports}, {"word", word}}, kReachTime);
    if (channel_ && reply.contains("ports")) ports_ = reply["ports"].get<std::vector<int>>();
  }

  void connect(const std::vector<std::unique_ptr<Examination>>& all, std::chrono::milliseconds timeout) {
    if (!channel_) return;
    std::vector<const Examination*> peers;
    Json targets = Json::array();
    for (const auto& peer : all) {
      if (peer.get() == this || peer->address_.empty()) continue;
      for (const int port : peer->ports_) {
        targets.push_back({{"address", peer->address_}, {"port", port}, {"word", peer->word_}});
        peers.push_back(peer.get());
      }
    }
    const Json reply = ask({{"do", "connect"}, {"targets", targets}}, timeout);
    if (!channel_) return;
    CheckResult result{"peers", CheckState::kGreen, absl::StrCat("reaches ", targets.size(), " ports of ", all.size() - 1, " machines"), ""};
    const Json results = reply.value("results", Json::array());
    std::string unreached;
    for (size_t i = 0; i < peers.size() && i < results.size(); ++i) {
      if (!results[i].is_string() || results[i].get<std::string>().empty()) continue;
      absl::StrAppend(&unreached, unreached.empty() ? "" : "; ", "does not reach ", peers[i]->report_.name, ": ", results[i].get<std::string>());
    }
    for (const auto& peer : all) {
      if (peer.get() != this && (peer->ports_.empty() || peer->address_.empty())) absl::StrAppend(&unreached, unreached.empty() ? "" : "; ", peer->report_.name, " was not there to be reached");
    }
    if (results.size() != peers.size()) unreached = "did not try to reach the others";
    if (!unreached.empty()) {
      result = {"peers", CheckState::kRed, unreached, "open all TCP ports between the machines, see the firewall and the "
                "addresses (addr= in the host file, --iface)"};
    }
    report_.checks.push_back(std::move(result));
  }

  void end() {
    channel_.reset();
    if (process_) process_->reap(Deadline::after(kEndTime));
  }
  MachineReport take() { return std::move(report_); }
  bool alive() const { return channel_.has_value(); }

 private:
  Json ask(const Json& request, std::chrono::milliseconds timeout) {
    if (!channel_) return Json::object();
    const Deadline deadline = Deadline::after(timeout);
    absl::Status sent = channel_->send(request.dump(), deadline);
    const auto line = sent.ok() ? channel_->receive(deadline) : absl::StatusOr<std::string>(sent);
    if (!line.ok()) {
      fail(line.status());
      return Json::object();
    }
    Json reply = Json::parse(*line, nullptr, false);
    if (!reply.is_object() || reply.contains("error")) {
      fail(absl::UnavailableError(reply.is_object() ? reply["error"].dump() : "what it answers is no JSON"));
      return Json::object();
    }
    return reply;
  }

  // What the connection's program said is nearer to the cause than that it ended.
  void fail(const absl::Status& status) {
    std::string said;
    char buffer[kMaxErrorBytes];
    pollfd entry{errors_.get(), POLLIN, 0};
    if (errors_.valid() && ::poll(&entry, 1, 200) > 0) {
      const ssize_t n = ::read(errors_.get(), buffer, sizeof(buffer));
      if (n > 0) said.assign(buffer, static_cast<size_t>(n));
    }
    std::replace(said.begin(), said.end(), '\n', ' ');
    red({"reachable", CheckState::kRed, absl::StrCat(std::string(status.message()), said.empty() ? "" : ": ", said),
         absl::StrCat("try by hand: ", host_.command.front(), " ... ", host_.name, " (keys, host keys, --ssh-port, --farhop)")});
  }
  void red(CheckResult result) {
    report_.checks.push_back(std::move(result));
    channel_.reset();
  }

  const DoctorHost& host_;
  const int machine_;
  MachineReport report_;
  std::optional<Process> process_;
  FileDescriptor errors_;
  std::optional<LineChannel> channel_;  // none once it has failed
  std::string address_, word_;
  std::vector<int> ports_;
};

template <typename Step>
void onAll(const std::vector<std::unique_ptr<Examination>>& all, Step step) {
  std::vector<std::thread> threads;
  for (const auto& one : all) threads.emplace_back([&step, raw = one.get()] { step(*raw); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

bool MachineReport::red() const {
  return std::any_of(checks.begin(), checks.end(), [](const CheckResult& check) { return check.state == CheckState::kRed; });
}

std::vector<MachineReport> examineHosts(const std::vector<DoctorHost>& hosts, const DoctorOptions& options,
                                        const std::string& version, std::chrono::milliseconds timeout) {
  std::vector<std::unique_ptr<Examination>> all;
  for (size_t i = 0; i < hosts.size(); ++i) {
    all.push_back(std::make_unique<Examination>(hosts[i], static_cast<int>(i)));
    all.back()->start();
  }
  onAll(all, [&](Examination& one) {
    one.hello(version, timeout);
    one.clock();
    one.checks(options, timeout);
  });
  if (all.size() > 1) {
    const std::string word = makeToken().value_or("farhop doctor");
    onAll(all, [&](Examination& one) { one.listen(options, word); });
    onAll(all, [&](Examination& one) { one.connect(all, timeout); });
  }
  std::vector<MachineReport> reports;
  for (const auto& one : all) {
    one->end();
    reports.push_back(one->take());
  }
  return reports;
}

}  // namespace farhop::launcher
