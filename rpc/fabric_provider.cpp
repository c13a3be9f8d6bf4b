#include "rpc/fabric_provider.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"

namespace farhop::rpc {
namespace {

constexpr uint64_t kCapabilities = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr size_t kCompletionDataBytes = 4;
// Registration modes that this transport obeys where a provider demands them.
constexpr uint64_t kRegistrationModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

constexpr const char* kPreferred[] = {"verbs;ofi_rxm", "efa", "psm2", "tcp;ofi_rxm"};
// Their addresses are not IP addresses, so an interface's address finds none of them.
constexpr const char* kAddressless[] = {"efa", "psm2", "shm"};
// Short names; anything else is a provider's full name.
constexpr std::pair<const char*, const char*> kShortNames[] = {{"verbs", "verbs;ofi_rxm"}, {"tcp", "tcp;ofi_rxm"}};

FabricInfo makeHints(const FabricLibrary* library, const FabricOptions& options) {
  FabricInfo hints(library->duplicateInfo(nullptr), FreeFabricInfo{library});
  if (hints == nullptr) return hints;
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = kCapabilities;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = static_cast<int>(kRegistrationModes);
  // The one way to make a provider over ofi_rxm use virtual addresses and keys of its own.
  if ((options.forcedRegistrationModes & FI_MR_BASIC) != 0) hints->domain_attr->mr_mode = FI_MR_BASIC;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  return hints;
}

// Appends the offers for `node` (null: any).
absl::Status ask(const FabricLibrary* library, const fi_info* hints, const char* node, std::vector<FabricInfo>* offers) {
  fi_info* list = nullptr;
  const int result = library->getInfo(FI_VERSION(1, 17), node, nullptr, node == nullptr ? 0 : FI_SOURCE, hints, &list);
  if (result == -FI_ENODATA) return absl::OkStatus();
  if (result != 0) return library->status("fi_getinfo", result);
  const FabricInfo owned(list, FreeFabricInfo{library});
  for (const fi_info* offer = list; offer != nullptr; offer = offer->next) {
    FabricInfo copy(library->duplicateInfo(offer), FreeFabricInfo{library});
    if (copy == nullptr) return absl::ResourceExhaustedError("fi_dupinfo: out of memory");
    offers->push_back(std::move(copy));
  }
  return absl::OkStatus();
}

bool fits(const fi_info& offer) {
  return (offer.caps & kCapabilities) == kCapabilities && offer.domain_attr->cq_data_size >= kCompletionDataBytes &&
         (offer.mode & ~(FI_CONTEXT | FI_CONTEXT2)) == 0;
}

bool isAddressless(const std::string& name) {
  return std::find(std::begin(kAddressless), std::end(kAddressless), name) != std::end(kAddressless);
}

FabricInfo take(std::vector<FabricInfo>* offers, const std::string& name) {
  for (FabricInfo& offer : *offers) {
    if (offer != nullptr && fits(*offer) && providerName(*offer) == name) return std::move(offer);
  }
  return nullptr;
}

std::string fullName(const std::string& choice) {
  for (const auto& [shortName, name] : kShortNames) {
    if (choice == shortName) return name;
  }
  return choice;
}

absl::Status nothingFits(const std::vector<FabricInfo>& offers, const FabricOptions& options) {
  std::set<std::string> names;
  for (const FabricInfo& offer : offers) {
    if (offer != nullptr && fits(*offer)) names.insert(providerName(*offer));
  }
  const char* restricted = std::getenv("FI_PROVIDER");
  return absl::UnavailableError(absl::StrCat(
      options.choice.empty() ? "no libfabric provider" : absl::StrCat("no libfabric provider \"", options.choice, "\""),
      " works on ", options.bindAddress, "; there ", names.empty() ? "is none" : "are: ", absl::StrJoin(names, ", "),
      restricted == nullptr ? "" : absl::StrCat(" (FI_PROVIDER=", restricted, ")"),
      "; set FARHOP_FABRIC to one of them, or to none"));
}

}  // namespace

std::string providerName(const fi_info& info) {
  return info.fabric_attr->prov_name == nullptr ? "" : info.fabric_attr->prov_name;
}

std::string fabricChoiceFromEnvironment() {
  const char* value = std::getenv("FARHOP_FABRIC");
  return value == nullptr ? "" : value;
}

absl::StatusOr<FabricInfo> chooseFabricProvider(const FabricLibrary* library, const FabricOptions& options) {
  const FabricInfo hints = makeHints(library, options);
  if (hints == nullptr) return absl::ResourceExhaustedError("fi_dupinfo: out of memory");
  std::vector<FabricInfo> offers;
  FARHOP_RETURN_IF_ERROR(ask(library, hints.get(), options.bindAddress.c_str(), &offers));
  std::erase_if(offers, [](const FabricInfo& offer) { return isAddressless(providerName(*offer)); });
  std::vector<FabricInfo> unbound;
  FARHOP_RETURN_IF_ERROR(ask(library, hints.get(), nullptr, &unbound));
  for (FabricInfo& offer : unbound) {
    if (isAddressless(providerName(*offer))) offers.push_back(std::move(offer));
  }

  FabricInfo chosen;
  if (!options.choice.empty()) {
    chosen = take(&offers, fullName(options.choice));
    // Later libraries offer reliable datagrams in the provider itself.
    if (chosen == nullptr) chosen = take(&offers, options.choice);
  } else {
    for (const char* name : kPreferred) {
      if (chosen == nullptr) chosen = take(&offers, name);
    }
    if (chosen == nullptr && std::getenv("FI_PROVIDER") != nullptr) {
      auto first = std::find_if(offers.begin(), offers.end(), [](const FabricInfo& offer) { return fits(*offer); });
      if (first != offers.end()) chosen = std::move(*first);
    }
  }
  if (chosen == nullptr) return nothingFits(offers, options);
  chosen->domain_attr->mr_mode |= static_cast<int>(options.forcedRegistrationModes & kRegistrationModes);
  return chosen;
}

}  // namespace farhop::rpc
