// The side of `farhop doctor --hosts` that runs on each host.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <thread>

#include "launcher/agent.h"
#include "launcher/doctor_remote.h"
#include "launcher/line_channel.h"

namespace farhop::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kConnectTime{3'000};
constexpr std::chrono::milliseconds kIdleTime{3'600'000};
constexpr size_t kMaxPorts = 1'024, kMaxTargets = 70'000;
constexpr size_t kWordBytes = 32;

// Listens on ports and sends whoever connects a word.
class Listeners {
 public:
  ~Listeners() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    (void)!::write(wakeup_.get(), &one, sizeof(one));
    thread_.join();
  }

  // The ports, 0 meaning any.
  absl::StatusOr<std::vector<int>> listen(const std::vector<int>& ports, const std::string& word) {
    std::vector<int> bound;
    if (thread_.joinable()) return absl::FailedPreconditionError("listens already");
    for (const int port : ports) {
      FARHOP_ASSIGN_OR_RETURN(FileDescriptor fd, listenTcp({"", static_cast<uint16_t>(port)}, 128));
      FARHOP_ASSIGN_OR_RETURN(const uint16_t number, boundPort(fd.get()));
      bound.push_back(number);
      fds_.push_back(std::move(fd));
    }
    wakeup_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
    word_ = word;
    thread_ = std::thread([this] { run(); });
    return bound;
  }

 private:
  void run() {
    for (;;) {
      std::vector<pollfd> entries{{wakeup_.get(), POLLIN, 0}};
      for (const FileDescriptor& fd : fds_) entries.push_back({fd.get(), POLLIN, 0});
      (void)::poll(entries.data(), entries.size(), -1);
      if (entries[0].revents != 0) return;
      for (size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].revents == 0) continue;
        const FileDescriptor peer(::accept4(entries[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (peer.valid()) (void)!::send(peer.get(), word_.data(), word_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
  }

  std::vector<FileDescriptor> fds_;
  FileDescriptor wakeup_;
  std::string word_;
  std::thread thread_;
};

absl::Status reach(const HostPort& address, const std::string& word) {
  const Deadline deadline = Deadline::after(kConnectTime);
  FARHOP_ASSIGN_OR_RETURN(const FileDescriptor fd, connectTcp(address, deadline, false));
  std::string received(word.size(), '\0');
  FARHOP_RETURN_IF_ERROR(receiveAll(fd.get(), received.data(), received.size(), deadline));
  return received == word ? absl::OkStatus() : absl::PermissionDeniedError("another program answers there");
}

Json connectAll(const Json& targets) {
  Json results = Json::array();
  if (targets.size() > kMaxTargets) throw Json::other_error::create(500, "too many targets", nullptr);
  for (const Json& target : targets) {
    const std::string word = target.at("word").get<std::string>().substr(0, kWordBytes);
    const absl::Status reached = reach({target.at("address").get<std::string>(), target.at("port").get<uint16_t>()}, word);
    results.push_back(std::string(reached.message()));
  }
  return results;
}

Json answer(const Json& request, const std::string& version, Listeners* listeners) {
  const std::string what = request.at("do").get<std::string>();
  if (what == "clock") {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {{"unix", std::chrono::duration<double>(now).count()}};
  }
  if (what == "checks") {
    const DoctorOptions options = doctorOptionsFrom(request.at("options"));
    const auto address = findOwnAddress(options.shape.machine == 0 ? options.interface : "");
    return {{"checks", Json::parse(toJson(checkThisMachine(options, version)).dump(-1, ' ', false, Json::error_handler_t::replace))},
            {"address", address.ok() ? *address : ""}};
  }
  if (what == "listen") {
    const auto ports = request.at("ports").get<std::vector<int>>();
    if (ports.size() > kMaxPorts) return {{"error", "too many ports"}};
    const auto bound = listeners->listen(ports, request.at("word").get<std::string>().substr(0, kWordBytes));
    if (!bound.ok()) return {{"error", std::string(bound.status().message())}};
    return {{"ports", *bound}};
  }
  if (what == "connect") return {{"results", connectAll(request.at("targets"))}};
  return {{"error", absl::StrCat("unknown request '", what.substr(0, 40), "'")}};
}

}  // namespace

int serveDoctor(const std::string& version) {
  ::signal(SIGPIPE, SIG_IGN);
  FileDescriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!setNonBlocking(in.get()).ok() || !setNonBlocking(out.get()).ok()) return 1;
  LineChannel channel(std::move(in), std::move(out));
  char host[256] = {};
  (void)::gethostname(host, sizeof(host) - 1);
  const Json hello{{"protocol", kDoctorProtocol}, {"version", version}, {"host", host}};
  if (!channel.send(kDoctorMagic + hello.dump(), Deadline::after(kIdleTime)).ok()) return 1;
  Listeners listeners;
  for (;;) {
    const auto line = channel.receive(Deadline::after(kIdleTime));
    if (absl::IsUnavailable(line.status())) return 0;
    if (!line.ok()) return 1;
    Json reply;
    try {
      reply = answer(Json::parse(*line), version, &listeners);
    } catch (const Json::exception& error) {
      reply = {{"error", error.what()}};
    }
    if (!channel.send(reply.dump(-1, ' ', false, Json::error_handler_t::replace), Deadline::after(kIdleTime)).ok()) return 1;
  }
}

}  // namespace farhop::launcher
