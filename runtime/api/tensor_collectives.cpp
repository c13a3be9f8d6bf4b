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

// All gradients of one dtype behind each other, and last what counts processes, in one message: summed, divided, put
// back. Returns the counts; zeros also when there is no parameter of the dtype.
template <typename T>
absl::StatusOr<PresenceCounts> averageOf(const std::vector<torch::Tensor>& parameters, torch::ScalarType dtype, Presence presence,
                                  runtime::Collectives& collectives, Deadline deadline) {
  std::vector<T> flat;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.scalar_type() != dtype) continue;
    const size_t at = flat.size();
    flat.resize(at + static_cast<size_t>(parameter.numel()), T{0});
    if (!presence.active || !parameter.grad().defined()) continue;
    const torch::Tensor gradient = parameter.grad().contiguous();
    std::memcpy(flat.data() + at, gradient.data_ptr<T>(), gradient.nbytes());
  }
  if (flat.empty()) return PresenceCounts{};
  // Exact up to 2^24 processes.
  flat.push_back(presence.active ? T{1} : T{0});
  flat.push_back(presence.stop ? T{1} : T{0});
  FARHOP_RETURN_IF_ERROR(collectives.allReduceSum(std::span<T>(flat), deadline));
  const PresenceCounts counts{static_cast<int64_t>(flat[flat.size() - 2]), static_cast<int64_t>(flat.back())};
  if (counts.active == 0) return counts;
  const T scale = T{1} / static_cast<T>(counts.active);
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
  return counts;
}

}  // namespace

absl::StatusOr<PresenceCounts> averageGradients(const std::vector<torch::Tensor>& parameters, Presence presence,
                                         runtime::Collectives& collectives, Deadline deadline) {
  if (parameters.empty()) return absl::InvalidArgumentError("averageGradients: no parameters");
  for (const torch::Tensor& parameter : parameters) FARHOP_RETURN_IF_ERROR(checkParameter(parameter));
  const torch::NoGradGuard noGrad;
  FARHOP_ASSIGN_OR_RETURN(const PresenceCounts narrow,
                          averageOf<float>(parameters, torch::kFloat32, presence, collectives, deadline));
  FARHOP_ASSIGN_OR_RETURN(const PresenceCounts wide,
                          averageOf<double>(parameters, torch::kFloat64, presence, collectives, deadline));
  return PresenceCounts{std::max(narrow.active, wide.active), std::max(narrow.stop, wide.stop)};
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
