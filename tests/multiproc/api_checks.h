// What checks of the public API in trainers share. A check that fails ends the process.
#pragma once

#include <farhop/farhop.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace farhop::testing {

inline uint64_t digest(uint64_t hash, const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.data_ptr());
  for (size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
  return hash;
}

// Runs `call` and checks that it throws Error with that code and text.
template <typename Call>
void expectError(const char* what, farhop::ErrorCode code, const std::string& text, Call call) {
  try {
    call();
  } catch (const farhop::Error& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos) return;
    std::fprintf(stderr, "%s: unexpected error: %s\n", what, error.what());
    std::exit(7);
  }
  std::fprintf(stderr, "%s: no error\n", what);
  std::exit(7);
}

// The same, and nothing is sent by it. For calls with no batch under way.
template <typename Call>
void expectUnsentError(const farhop::Runtime& runtime, const char* what, farhop::ErrorCode code, const std::string& text,
                       Call call) {
  const farhop::RuntimeStats before = runtime.stats();
  expectError(what, code, text, call);
  const farhop::RuntimeStats after = runtime.stats();
  if (after.neighborRequests == before.neighborRequests && after.featureBytes == before.featureBytes) return;
  std::fprintf(stderr, "%s: a refused call sent something\n", what);
  std::exit(7);
}

}  // namespace farhop::testing
