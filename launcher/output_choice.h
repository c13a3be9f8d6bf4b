// Whose output the terminal shows (--tee); the logs have all of it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/output_pump.h"

namespace farhop::launcher {

class OutputChoice {
 public:
  // Everything.
  OutputChoice() = default;

  // "all", "none", or a list of machines and processes: "m0", "p0", "m1p3,m2". Also torchrun's numbers: 0 none, 1 output,
  // 2 errors, 3 both, of all processes or, as in "0:3,1:2", of those of a local rank and nothing of the others.
  static absl::StatusOr<OutputChoice> parse(const std::string& text);

  OutputShown shown(int machine, int proc) const;

 private:
  struct Rule {
    int machine = -1, proc = -1;  // -1: any
    OutputShown shown;
  };
  bool restricted_ = false;
  std::vector<Rule> rules_;
};

}  // namespace farhop::launcher
