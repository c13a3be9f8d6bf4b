// A training's state in one file, so that a job that ended early goes on where it stood.
#pragma once

#include <farhop/farhop.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

// What a process has to remember besides model and optimiser.
struct Progress {
  std::string position;        // NeighborLoader::state()
  std::vector<double> totals;  // of the epoch under way
  nlohmann::json history;      // of those that are over
};

// DIRECTORY/checkpoint holds the parameters, the optimiser's state, and for each process its progress and the state of
// libtorch's generator. Every function is collective.
class Checkpoint {
 public:
  // Borrows all; creates the directory where missing.
  Checkpoint(farhop::Runtime& runtime, const std::string& directory, const std::vector<torch::Tensor>& parameters,
             torch::optim::Optimizer& optimizer);

  // Rank 0 writes, and the others wait until it has: the file is the one before or the new one, whatever ends whom.
  // Throws Error on all processes when it cannot be written.
  void save(const Progress& progress);

  // What the file says, brought into model, optimiser and generator; nullopt without a file. Only rank 0 needs to see it.
  // A process that the saved job had not gets what another had. Throws Error for a damaged file and for another model.
  std::optional<Progress> load();

 private:
  // The same bytes on all processes: rank 0's.
  std::string share(std::string bytes) const;
  void agree(const std::string& error) const;

  farhop::Runtime& runtime_;
  const std::string directory_, file_;
  const std::vector<torch::Tensor> parameters_;
  torch::optim::Optimizer& optimizer_;
};
