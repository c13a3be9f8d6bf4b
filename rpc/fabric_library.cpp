#include "rpc/fabric_library.h"

#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>

#include <array>
#include <cstdlib>


namespace farhop::rpc {
namespace {

constexpr char kLibraryName[] = "libfabric.so.1";

// What the library reads when it starts. A user's own values stay.
struct Setting {
  const char* name;
  const char* value;
};
constexpr Setting kSettings[] = {
    // Eager messages' buffers: nothing here sends messages, and the default of 16 KiB makes 70 MB per endpoint.
    {"FI_OFI_RXM_BUFFER_SIZE", "256"},
    // Removing a peer closes its connection: then nothing of that peer's can come in any more.
    {"FI_AV_REMOVE_CLEANUP", "1"},
};

// Puts the process's signal handlers back as they were.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (size_t i = 1; i < saved_.size(); ++i) valid_[i] = ::sigaction(static_cast<int>(i), nullptr, &saved_[i]) == 0;
  }
  ~SignalHandlers() {
    for (size_t i = 1; i < saved_.size(); ++i) {
      if (valid_[i]) ::sigaction(static_cast<int>(i), &saved_[i], nullptr);
    }
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  std::array<struct sigaction, 32> saved_{};  // the real-time signals are not the library's
  std::array<bool, 32> valid_{};
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<FabricLibrary> load() {
  for (const Setting& setting : kSettings) ::setenv(setting.name, setting.value, 0);
  void* library;
  {
    SignalHandlers handlers;
    library = ::dlopen(kLibraryName, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* error = ::dlerror();
    return absl::UnavailableError(absl::StrCat("cannot load libfabric (", error == nullptr ? "unknown error" : error,
                                               "); install libfabric1, or set FARHOP_FABRIC=none"));
  }
  FabricLibrary result;
  if (!find(library, "fi_getinfo", &result.getInfo) || !find(library, "fi_freeinfo", &result.freeInfo) ||
      !find(library, "fi_dupinfo", &result.duplicateInfo) || !find(library, "fi_fabric", &result.openFabric) ||
      !find(library, "fi_strerror", &result.errorText) || !find(library, "fi_version", &result.version)) {
    return absl::UnavailableError(absl::StrCat(kLibraryName, " lacks a function that libfabric 1.17 has"));
  }
  return result;
}

}  // namespace

absl::Status FabricLibrary::status(absl::string_view what, ssize_t error) const {
  const int number = static_cast<int>(error < 0 ? -error : error);
  const std::string text = absl::StrCat(what, ": ", errorText(number), " (", number, ")");
  if (number == FI_ENOMEM) return absl::ResourceExhaustedError(text);
  if (number == FI_EINVAL || number == FI_EKEYREJECTED) return absl::InvalidArgumentError(text);
  return absl::UnavailableError(text);
}

absl::StatusOr<const FabricLibrary*> loadFabricLibrary() {
  // Never unloaded: the providers' threads and handlers would not survive it.
  static const auto* library = new absl::StatusOr<FabricLibrary>(load());
  if (!library->ok()) return library->status();
  return &**library;
}

bool fabricClosesRemovedPeers() {
  const char* value = std::getenv("FI_AV_REMOVE_CLEANUP");
  if (value == nullptr) return false;
  for (const char* yes : {"1", "yes", "true", "on"}) {
    if (::strcasecmp(value, yes) == 0) return true;
  }
  return false;
}

}  // namespace farhop::rpc
