// `farhop receive`: what `farhop dispatch` and `farhop check` start on every machine. Not for people.
#pragma once

namespace CLI {
class App;
}

namespace farhop::launcher {

// The last line of its answer; the lines before are relative paths of files that are missing or differ.
inline constexpr char kReceiveComplete[] = "complete";
inline constexpr char kReceiveIncomplete[] = "incomplete";

// Reads the store's graph.json from standard input and answers on standard output. Without --check it prepares the
// directory for what is missing (another store's graph.json is taken away, and there must be room), and puts graph.json there
// when nothing is.
void addReceiveCommand(CLI::App& app, int* exitCode);

}  // namespace farhop::launcher
