// libfabric, loaded when the first process of a group wants it.
//
// Loading costs 0.2 s, since the library brings the user libraries of all the networks it knows, and one of these
// (libinfinipath) replaces the handlers of SIGINT, SIGTERM, SIGSEGV and others by its own: a process that is
// terminated would then exit with code 1. So a process loads it only when it needs it, and gets its handlers back.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "base/status.h"

namespace farhop::rpc {

// The library's entry points; everything else is reached through the objects that these make.
struct FabricLibrary {
  decltype(&::fi_getinfo) getInfo = nullptr;
  decltype(&::fi_freeinfo) freeInfo = nullptr;
  decltype(&::fi_dupinfo) duplicateInfo = nullptr;
  decltype(&::fi_fabric) openFabric = nullptr;
  decltype(&::fi_strerror) errorText = nullptr;
  decltype(&::fi_version) version = nullptr;

  // "fi_write: Connection refused"; `error` negative or positive.
  absl::Status status(absl::string_view what, ssize_t error) const;
};

// Thread-safe; loads once. Unavailable, saying what to install, where there is no libfabric. Sets what the library
// reads from the environment when it starts, where the user has not set it: call it early, before other threads
// read the environment.
absl::StatusOr<const FabricLibrary*> loadFabricLibrary();

// Whether the loaded library closes a connection when its peer is removed (FI_AV_REMOVE_CLEANUP).
bool fabricClosesRemovedPeers();

}  // namespace farhop::rpc
