#include "launcher/binding_drawing.h"

#include <algorithm>

#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

using runtime::BindingPlan;
using runtime::Core;

bool touches(const std::vector<int>& ascending, const Core& core) {
  return std::any_of(core.processors.begin(), core.processors.end(), [&](int processor) {
    return std::binary_search(ascending.begin(), ascending.end(), processor);
  });
}

// "p0 p1", "p0 sampling", "p0 training, sampling".
std::string usersOf(const Core& core, const std::vector<BindingPlan>& plans, bool bound) {
  if (!bound) return "any";
  std::string text;
  for (size_t proc = 0; proc < plans.size(); ++proc) {
    if (!touches(plans[proc].processors, core)) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", "p", proc);
    if (!plans[proc].split) continue;
    const bool compute = touches(plans[proc].computeProcessors, core), service = touches(plans[proc].serviceProcessors, core);
    absl::StrAppend(&text, compute && service ? "(training, sampling)" : compute ? "(training)" : "(sampling)");
  }
  return text;
}

std::string threadsText(const BindingPlan& plan) {
  return absl::StrCat(plan.computeThreads, plan.computeThreads == 1 ? " thread" : " threads", " of libtorch, ",
                      plan.samplerThreads, plan.samplerThreads == 1 ? " sampler" : " samplers");
}

}  // namespace

absl::StatusOr<std::string> drawBindings(const runtime::Topology& topology, int procs, const runtime::BindingChoice& choice) {
  const std::vector<Core> cores = topology.cores();
  std::vector<BindingPlan> plans;
  for (int proc = 0; proc < procs; ++proc) {
    FARHOP_ASSIGN_OR_RETURN(BindingPlan plan, planBinding(topology, procs, proc, choice));
    plans.push_back(std::move(plan));
  }
  const bool bound = choice.to != runtime::BindTo::kNone;
  std::vector<std::vector<std::string>> rows = {{"cores", "socket", "node", "logical processors", "processes"}};
  for (size_t begin = 0; begin < cores.size();) {
    const std::string users = usersOf(cores[begin], plans, bound);
    std::vector<int> processors;
    size_t end = begin;
    for (; end < cores.size() && cores[end].package == cores[begin].package && cores[end].node == cores[begin].node &&
           usersOf(cores[end], plans, bound) == users;
         ++end) {
      processors.insert(processors.end(), cores[end].processors.begin(), cores[end].processors.end());
    }
    std::sort(processors.begin(), processors.end());
    rows.push_back({end == begin + 1 ? std::to_string(begin) : absl::StrCat(begin, "-", end - 1),
                    absl::StrCat("s", cores[begin].package), absl::StrCat("n", cores[begin].node),
                    runtime::processorRanges(processors), users});
    begin = end;
  }
  std::string text = absl::StrCat(formatTable(rows), "\n");
  for (int proc = 0; proc < procs; ++proc) {
    const BindingPlan& plan = plans[static_cast<size_t>(proc)];
    absl::StrAppend(&text, "p", proc, ": ", plan.text(), "; ", threadsText(plan), "\n");
  }
  if (plans.front().shared) {
    absl::StrAppend(&text, "warning: ", procs, " processes share ", cores.size(), cores.size() == 1 ? " core" : " cores",
                    "; fewer would run faster\n");
  }
  return text;
}

}  // namespace farhop::launcher
