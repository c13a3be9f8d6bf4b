#include "launcher/receive_command.h"

#include <CLI/CLI.hpp>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "launcher/run_command.h"
#include "launcher/store_copy.h"
#include "launcher/text_table.h"
#include "partition/layout.h"

namespace farhop::launcher {
namespace {

struct ReceiveArguments {
  std::string directory;
  int machine = 0, machines = 1;
  bool check = false;
};

absl::StatusOr<std::string> readStandardInput() {
  std::string text;
  char bytes[size_t{64} << 10];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n == 0) return text;
    if (n < 0 && errno != EINTR) return errnoStatus("reading graph.json", errno);
    if (n > 0) text.append(bytes, static_cast<size_t>(n));
    if (text.size() > partition::kMaxManifestBytes) return absl::InvalidArgumentError("graph.json is too long");
  }
}

absl::Status checkRoom(const std::string& directory, uint64_t bytes) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return errnoStatus(directory, errno);
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(directory, " has ", formatBytes(free), " free, and ", formatBytes(bytes),
                                                   " are missing; make room, or name another place with --to"));
}

// For what is missing. Another store's graph.json goes, so that nobody opens what is half replaced; this store's stays: the
// directory may be the very one that is copied from.
absl::Status makeReady(const std::string& directory, bool manifestSame, uint64_t bytes) {
  FARHOP_RETURN_IF_ERROR(makeDirectories(directory));
  const std::string manifest = absl::StrCat(directory, "/", partition::kManifestFile);
  if (!manifestSame && ::unlink(manifest.c_str()) != 0 && errno != ENOENT) return errnoStatus(absl::StrCat("removing ", manifest), errno);
  return checkRoom(directory, bytes);
}

absl::Status receive(const ReceiveArguments& arguments) {
  FARHOP_ASSIGN_OR_RETURN(const std::string text, readStandardInput());
  FARHOP_ASSIGN_OR_RETURN(const partition::Manifest manifest, partition::parseManifest(text));
  const std::vector<std::string> files = filesOfMachine(manifest, arguments.machine, arguments.machines);
  FARHOP_ASSIGN_OR_RETURN(const CopyState state, compareCopy(arguments.directory, manifest, text, files));
  if (!arguments.check && !state.wrong.empty()) {
    FARHOP_RETURN_IF_ERROR(makeReady(arguments.directory, state.manifestSame, state.wrongBytes));
  } else if (!arguments.check && !state.manifestSame) {
    FARHOP_RETURN_IF_ERROR(makeDirectories(arguments.directory));
    FARHOP_RETURN_IF_ERROR(writeFileAtomically(absl::StrCat(arguments.directory, "/", partition::kManifestFile), text));
  }
  for (const std::string& path : state.wrong) std::printf("%s\n", path.c_str());
  if (arguments.check && !state.manifestSame) std::printf("%s\n", partition::kManifestFile);
  const bool complete = state.wrong.empty() && (state.manifestSame || !arguments.check);
  std::printf("%s\n", complete ? kReceiveComplete : kReceiveIncomplete);
  return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::UnavailableError("the answer cannot be written");
}

}  // namespace

void addReceiveCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<ReceiveArguments>();
  CLI::App* command = app.add_subcommand("receive", "Internal: what farhop dispatch starts on every machine");
  command->group("");  // not in the help
  command->add_option("DIR", arguments->directory)->required();
  command->add_option("--machine", arguments->machine)->required();
  command->add_option("--machines", arguments->machines)->required();
  command->add_flag("--check", arguments->check);
  command->callback([arguments, exitCode] {
    const absl::Status status = receive(*arguments);
    *exitCode = status.ok() ? 0 : kFailedExitCode;
    if (!status.ok()) std::fprintf(stderr, "farhop: %s\n", std::string(status.message()).c_str());
  });
}

}  // namespace farhop::launcher
