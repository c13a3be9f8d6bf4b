// GraphSAGE with the mean aggregator, on Farhop's blocks.
#pragma once

#include <farhop/farhop.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

// One layer: own features and, per relation, the mean of the sampled neighbours' features.
struct SageLayerImpl : torch::nn::Module {
  SageLayerImpl(int64_t in, int64_t out, const std::vector<std::string>& relationNames) : relations(relationNames) {
    self = register_module("self", torch::nn::Linear(in, out));
    for (size_t i = 0; i < relations.size(); ++i) {
      neighbor.push_back(register_module("neighbor" + std::to_string(i),
                                         torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false))));
    }
  }

  torch::Tensor forward(const farhop::Block& block, const torch::Tensor& x) {
    torch::Tensor out = self->forward(x.narrow(0, 0, block.numDst()));
    for (size_t i = 0; i < relations.size(); ++i) {
      // A block is CSR: the mean over each row's neighbours is embedding_bag's "mean" (mode 1), which never
      // materialises a row per edge.
      const torch::Tensor mean =
          std::get<0>(torch::embedding_bag(x, block.indices(relations[i]), block.indptr(relations[i]), false, 1,
                                           false, {}, /*include_last_offset=*/true));
      out = out + neighbor[i]->forward(mean);
    }
    return out;
  }

  std::vector<std::string> relations;
  torch::nn::Linear self{nullptr};
  std::vector<torch::nn::Linear> neighbor;
};
TORCH_MODULE(SageLayer);

// With no relations it is a multi-layer perceptron on the seeds' own features.
struct SageImpl : torch::nn::Module {
  SageImpl(int64_t in, int64_t hidden, int64_t classes, size_t numLayers, double dropoutRate,
           const std::vector<std::string>& relations)
      : dropout(dropoutRate) {
    for (size_t i = 0; i < numLayers; ++i) {
      const SageLayer layer(i == 0 ? in : hidden, i + 1 < numLayers ? hidden : classes, relations);
      layers.push_back(register_module("layer" + std::to_string(i), layer));
    }
  }

  torch::Tensor activate(torch::Tensor h) { return torch::dropout(torch::relu(h), dropout, is_training()); }

  torch::Tensor forward(const farhop::Batch& batch, const torch::Tensor& x) {
    torch::Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) h = activate(h);
      h = layers[i]->forward(batch.block(static_cast<int>(i)), h);
    }
    return h.index_select(0, batch.seedIndex());
  }

  torch::Tensor forwardWithoutNeighbors(torch::Tensor h) {
    for (size_t i = 0; i < layers.size(); ++i) h = layers[i]->self->forward(i > 0 ? activate(h) : h);
    return h;
  }

  double dropout;
  std::vector<SageLayer> layers;
};
TORCH_MODULE(Sage);
