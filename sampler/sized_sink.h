// Takes the arrays of a reply whose sizes are known beforehand, and no others.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "rpc/agent.h"
#include "rpc/bytes.h"

namespace farhop::sampler {

class SizedSink : public rpc::ReplySink {
 public:
  // `expected`: bytes of each array. `refusal`: what to say of other sizes, as an Internal error; it must outlive this.
  SizedSink(std::vector<size_t> expected, const char* refusal) : expected_(std::move(expected)), refusal_(refusal) {}

  absl::StatusOr<std::vector<void*>> allocate(std::span<const size_t> sizes) override {
    if (!std::equal(sizes.begin(), sizes.end(), expected_.begin(), expected_.end())) return absl::InternalError(refusal_);
    std::vector<void*> addresses;
    for (size_t size : sizes) {
      arrays.push_back(rpc::Bytes::allocate(size));
      addresses.push_back(arrays.back().data());
    }
    return addresses;
  }

  std::vector<rpc::Bytes> arrays;

 private:
  std::vector<size_t> expected_;
  const char* refusal_;
};

}  // namespace farhop::sampler
