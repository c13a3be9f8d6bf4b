// What `farhop run` would start, as text.
#pragma once

#include <string>

#include "launcher/run_options.h"

namespace farhop::launcher {

// Per machine: the command that reaches it, where that is not this one. Per process: where it starts, the variables it gets
// besides the inherited ones, and its command. The token and what is only known at the start appear as placeholders.
std::string describeRun(const RunOptions& options, const std::string& trainer);

}  // namespace farhop::launcher
