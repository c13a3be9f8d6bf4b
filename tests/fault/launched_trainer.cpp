// A trainer without a graph that dies on the way: launched_trainer RANK STAGE HOW, where the process of that rank ends
// at a stage of its start (rpc/stages.h; "main" before it starts at all) by HOW: a signal's number, or exit:CODE.
// With HOW "stay" it ends nothing: it stays from its start until the session fails, and the others wait for its farewell.
// Every one that is not killed prints how it ended, as "ended: ...".
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "rpc/stages.h"
#include "runtime/session.h"

namespace {

using farhop::PeerName;

std::string fatalStage;
std::string how;

void reach(const char* stage) {
  if (fatalStage != stage || how == "stay") return;
  std::printf("dying at %s\n", stage);
  std::fflush(stdout);
  if (how.rfind("exit:", 0) == 0) std::_Exit(std::atoi(how.c_str() + 5));
  ::kill(::getpid(), std::atoi(how.c_str()));
  for (;;) ::pause();
}

}  // namespace

int main(int, char** argv) {
  const auto contract = farhop::runtime::readLaunchContract(farhop::runtime::processEnvironment());
  if (!contract.ok()) {
    std::fprintf(stderr, "%s\n", contract.status().ToString().c_str());
    return 99;
  }
  if (contract->worldRank() == std::atoi(argv[1])) fatalStage = argv[2];
  how = argv[3];
  farhop::rpc::stageHook = reach;
  reach("main");
  farhop::runtime::SessionOptions options;
  options.startTimeout = std::chrono::seconds(60);
  options.bind = false;
  auto session = farhop::runtime::Session::start(*contract, options);
  if (session.ok() && how == "stay") {
    std::printf("staying\n");
    std::fflush(stdout);
    if (!fatalStage.empty()) (void)(*session)->failure().waitFor(farhop::Deadline::after(std::chrono::seconds(60)));
  }
  const absl::Status status = session.ok() ? (*session)->leave(farhop::Deadline::after(std::chrono::seconds(60)))
                                           : session.status();
  const std::optional<PeerName> peer = farhop::peerOf(status);
  std::printf("ended: %s | %s\n", peer ? farhop::describePeer(*peer).c_str() : "nobody", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
