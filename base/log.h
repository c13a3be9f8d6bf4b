// glog, set up once per process: to standard error, prefixed with who this process is.
#pragma once

#include <glog/logging.h>

#include <string>

namespace farhop {

// Idempotent and thread-safe. `identity` ("m1 p0") goes into every message of FARHOP_LOG. A process that
// has already initialised glog keeps its own settings.
void initLogging(const std::string& identity);
const std::string& logIdentity();

}  // namespace farhop

// LOG(INFO/WARNING/ERROR) with the identity in front. FATAL is not for us: a library ends nobody's process.
#define FARHOP_LOG(severity) LOG(severity) << ::farhop::logIdentity()
