// farhop-fabric-probe: prints which of libfabric's providers a bulk transport could use here, one line each.
//
// A program of its own, since loading libfabric loads the user libraries of every network that it knows, and one of these
// may crash or hang: `farhop doctor` runs it with a deadline. It prints "version MAJOR.MINOR", then "provider NAME usable" or
// "provider NAME"; exit code 1 and the reason on standard error without libfabric.
#include <cstdio>
#include <set>
#include <string>

#include "rpc/fabric_library.h"

namespace {

// Those from which a group chooses by itself.
bool isUsable(const std::string& provider) {
  static const std::set<std::string> kChosen = {"verbs;ofi_rxm", "efa", "psm2", "tcp;ofi_rxm"};
  return kChosen.count(provider) > 0;
}

}  // namespace

int main() {
  const auto library = farhop::rpc::loadFabricLibrary();
  if (!library.ok()) {
    std::fprintf(stderr, "%s\n", std::string(library.status().message()).c_str());
    return 1;
  }
  const uint32_t version = (*library)->version();
  std::printf("version %u.%u\n", FI_MAJOR(version), FI_MINOR(version));
  fi_info* found = nullptr;
  if ((*library)->getInfo(FI_VERSION(1, 9), nullptr, nullptr, 0, nullptr, &found) != 0) return 0;
  std::set<std::string> names;
  for (const fi_info* info = found; info != nullptr; info = info->next) names.insert(info->fabric_attr->prov_name);
  for (const std::string& name : names) std::printf("provider %s%s\n", name.c_str(), isUsable(name) ? " usable" : "");
  (*library)->freeInfo(found);
  return 0;
}
