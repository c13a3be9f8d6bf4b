#include "base/log.h"

#include <mutex>

namespace farhop {
namespace {
// Leaked on purpose: threads may log while the process exits.
std::string& identityStorage() {
  static auto* identity = new std::string;
  return *identity;
}
}  // namespace

void initLogging(const std::string& identity) {
  static std::once_flag once;
  std::call_once(once, [&] {
    identityStorage() = identity.empty() ? "" : "[" + identity + "] ";
    if (!google::IsGoogleLoggingInitialized()) {
      FLAGS_logtostderr = true;
      google::InitGoogleLogging("farhop");
    }
  });
}

const std::string& logIdentity() { return identityStorage(); }

}  // namespace farhop
