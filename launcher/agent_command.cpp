#include "launcher/agent_command.h"

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "launcher/agent.h"
#include "launcher/run_command.h"
#include "launcher/supervisor.h"

namespace farhop::launcher {
namespace {

// The frames' own descriptors. What anything else in this process or under it prints must not come between frames.
absl::StatusOr<FrameStream> takeStandardStreams() {
  FileDescriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  FileDescriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const FileDescriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!in.valid() || !out.valid() || !null.valid()) return errnoStatus("opening standard streams", errno);
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  FARHOP_RETURN_IF_ERROR(setNonBlocking(in.get()));
  FARHOP_RETURN_IF_ERROR(setNonBlocking(out.get()));
  return FrameStream(std::move(in), std::move(out), FrameStream::Opening::kNone);
}

int runAgent(const std::string& version) {
  // A launcher that goes away shows as EPIPE.
  ::signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<AgentWatcher> watcher = AgentWatcher::start();
  if (!watcher.ok()) {
    std::fprintf(stderr, "farhop agent: %s\n", std::string(watcher.status().message()).c_str());
    return kFailedExitCode;
  }
  absl::StatusOr<FileDescriptor> signals = openSignals();
  absl::StatusOr<FrameStream> stream = signals.ok() ? takeStandardStreams() : signals.status();
  if (!stream.ok()) {
    std::fprintf(stderr, "farhop agent: %s\n", std::string(stream.status().message()).c_str());
    return kFailedExitCode;
  }
  return Agent(*std::move(stream), *std::move(signals), *std::move(watcher), version).run();
}

}  // namespace

void addAgentCommand(CLI::App& app, const std::string& version, int* exitCode) {
  CLI::App* agent = app.add_subcommand("agent", "Internal: what farhop run starts on every machine");
  agent->group("");  // not in the help
  agent->callback([version, exitCode] { *exitCode = runAgent(version); });
}

}  // namespace farhop::launcher
