#include "rpc/gloo_store.h"

#include <utility>

namespace farhop::rpc {
namespace {

void throwUnlessOk(const absl::Status& status, const std::string& key) {
  if (!status.ok()) throw GlooStoreError(annotate(status, absl::StrCat("Gloo's rendezvous (key '", key, "')")));
}

}  // namespace

GlooStore::GlooStore(StoreClient* client, std::string prefix, std::chrono::milliseconds timeout, Deadline deadline)
    : client_(client), prefix_(std::move(prefix)), timeout_(timeout), deadline_(deadline) {}

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  const Deadline until = Deadline::earliest(deadline_, Deadline::after(timeout_));
  throwUnlessOk(client_->set(prefix_ + key, std::string(data.begin(), data.end()), until), key);
}

std::vector<char> GlooStore::get(const std::string& key) {
  absl::StatusOr<std::string> value =
      client_->get(prefix_ + key, Deadline::earliest(deadline_, Deadline::after(timeout_)));
  throwUnlessOk(value.status(), key);
  return std::vector<char>(value->begin(), value->end());
}

void GlooStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void GlooStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  waitUntil(keys, Deadline::earliest(deadline_, Deadline::after(timeout)));
}

void GlooStore::waitUntil(const std::vector<std::string>& keys, Deadline until) {
  for (const std::string& key : keys) throwUnlessOk(client_->get(prefix_ + key, until).status(), key);
}

}  // namespace farhop::rpc
