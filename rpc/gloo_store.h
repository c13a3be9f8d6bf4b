// Gloo's rendezvous over Farhop's store: gloo_context.connectFullMesh(store, device).
//
// The only header of this module that needs Gloo's.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "base/status.h"
#include "rpc/rendezvous.h"

namespace farhop::rpc {

// What a GlooStore throws, Gloo's interface having no other way to fail. Catch it around Gloo's calls and pass
// the Status on; it still carries the peer.
class GlooStoreError : public std::exception {
 public:
  explicit GlooStoreError(absl::Status status) : status_(std::move(status)), text_(status_.ToString()) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
  std::string text_;
};

// Thread-safe, as its client is.
class GlooStore : public ::gloo::rendezvous::Store {
 public:
  // `client` is borrowed. Keys get `prefix` in front ("gloo/0/"), so that several contexts can share a store.
  // `timeout` bounds each operation for which Gloo names no other; `deadline` bounds all of them.
  GlooStore(StoreClient* client, std::string prefix, std::chrono::milliseconds timeout, Deadline deadline);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  void waitUntil(const std::vector<std::string>& keys, Deadline until);

  StoreClient* const client_;
  const std::string prefix_;
  const std::chrono::milliseconds timeout_;
  const Deadline deadline_;
};

}  // namespace farhop::rpc
