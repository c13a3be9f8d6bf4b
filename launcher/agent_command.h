// `farhop agent`: what `farhop run` starts on every machine. Not for people.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace farhop::launcher {

void addAgentCommand(CLI::App& app, const std::string& version, int* exitCode);

}  // namespace farhop::launcher
