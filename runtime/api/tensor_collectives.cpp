#include "runtime/api/tensor_collectives.h"

#include <torch/autograd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

namespace farhop::api {
namespace {

absl::Status checkParameter(const torch::Tensor& parameter) {
  if (!parameter.device().is_cpu()) return absl::InvalidArgumentError("averageGradients: parameters must be CPU tensors");
  if (parameter.scalar_type() != torch::kFloat32 && parameter.scalar_type() != torch::kFloat64) {
    return absl::InvalidArgumentError(absl::StrCat("averageGradients: parameters must be float32 or float64, not ",
                                                   torch::toString(parameter.scalar_type())));
  }
  const torch::Tensor& gradient = parameter.grad();
  if (gradient.defined() && (gradient.layout() != torch::kStrided || !gradient.device().is_cpu() ||
                             gradient.scalar_type() != parameter.scalar_type())) {
    return absl::InvalidArgumentError("averageGradients: gradients must be dense, on the CPU, of their parameter's dtype");
  }
  return absl::OkStatus();
}

// All gradients of one dtype behind each other, and last the number of active processes, in one message: summed,
// divided, put back. Returns that number; 0 also when there is no parameter of the dtype.
template <typename T>
absl::StatusOr<int64_t> averageOf(const std::vector<torch::Tensor>& parameters, torch::ScalarType dtype, bool active,
                                  runtime::Collectives& collectives, Deadline deadline) {
  std::vector<T> flat;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.scalar_type() != dtype) continue;
    const size_t at = flat.size();
    flat.resize(at + static_cast<size_t>(parameter.numel()), T{0});
    if (!active || !parameter.grad().defined()) continue;
    const torch::Tensor gradient = parameter.grad().contiguous();
    std::memcpy(flat.data() + at, gradient.data_ptr<T>(), gradient.nbytes());
  }
  if (flat.empty()) return 0;
  flat.push_back(active ? T{1} : T{0});  // exact up to 2^24 processes
  FARHOP_RETURN_IF_ERROR(collectives.allReduceSum(std::span<T>(flat), deadline));
  const int64_t count = static_cast<int64_t>(flat.back());
  if (count == 0) return 0;
  const T scale = T{1} / static_cast<T>(count);
  for (T& value : flat) value *= scale;
  size_t at = 0;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.scalar_type() != dtype) continue;
    const torch::Tensor average = torch::from_blob(flat.data() + at, parameter.sizes(), dtype);
    if (!parameter.grad().defined()) {
      parameter.mutable_grad() = average.clone();
    } else {
      parameter.mutable_grad().copy_(average);
    }
    at += static_cast<size_t>(parameter.numel());
  }
  return count;
}

}  // namespace

absl::StatusOr<int64_t> averageGradients(const std::vector<torch::Tensor>& parameters, bool active,
                                         runtime::Collectives& collectives, Deadline deadline) {
  if (parameters.empty()) return absl::InvalidArgumentError("averageGradients: no parameters");
  for (const torch::Tensor& parameter : parameters) FARHOP_RETURN_IF_ERROR(checkParameter(parameter));
  const torch::NoGradGuard noGrad;
  FARHOP_ASSIGN_OR_RETURN(const int64_t narrow,
                          averageOf<float>(parameters, torch::kFloat32, active, collectives, deadline));
  FARHOP_ASSIGN_OR_RETURN(const int64_t wide,
                          averageOf<double>(parameters, torch::kFloat64, active, collectives, deadline));
  return std::max(narrow, wide);
}

absl::Status broadcastTensors(const std::vector<torch::Tensor>& tensors, int worldRank,
                              runtime::Collectives& collectives, Deadline deadline) {
  const torch::NoGradGuard noGrad;
  std::string bytes;
  size_t total = 0;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.device().is_cpu() || !tensor.is_contiguous()) {
      return absl::InvalidArgumentError("broadcast: tensors must be contiguous and on the CPU");
    }
    total += tensor.nbytes();
    if (worldRank == 0) bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  FARHOP_ASSIGN_OR_RETURN(bytes, collectives.broadcastJob(bytes, deadline));
  if (bytes.size() != total) {
    return absl::InvalidArgumentError(absl::StrCat("broadcast: rank 0 sends ", bytes.size(), " bytes, these tensors have ",
                                                   total, "; every process must pass tensors of the same shapes"));
  }
  size_t at = 0;
  for (const torch::Tensor& tensor : tensors) {
    std::memcpy(tensor.data_ptr(), bytes.data() + at, tensor.nbytes());
    at += tensor.nbytes();
  }
  return absl::OkStatus();
}

}  // namespace farhop::api
