// farhop-startup-trainer DIRECTORY: a process of the jobs whose start `farhop-bench startup` watches, on the public API
// alone. It starts, opens the job's graph where there is one, computes something with libtorch, writes DIRECTORY/ready-RANK
// with the seconds that its start took, and leaves as soon as DIRECTORY/end exists.
#include <farhop/farhop.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

// Whoever watches has gone.
constexpr std::chrono::minutes kLongest{20};

void run(const std::string& directory) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const auto options = farhop::RuntimeOptions::fromEnvironment();
  farhop::Runtime runtime = farhop::Runtime::start(options);
  const double started = seconds();
  if (!options.graph.empty()) (void)runtime.openGraph();
  const torch::Tensor product = torch::ones({64, 64}).mm(torch::ones({64, 64}));
  if (product.sum().item<float>() != 64.0f * 64 * 64) throw std::runtime_error("libtorch computes something else");
  const std::string ready = directory + "/ready-" + std::to_string(runtime.worldRank());
  std::ofstream(ready + ".part") << started << " " << seconds() << "\n";
  std::filesystem::rename(ready + ".part", ready);
  while (!std::filesystem::exists(directory + "/end")) {
    if (std::chrono::steady_clock::now() - begin > kLongest) throw std::runtime_error("nobody says that it is over");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  runtime.leave();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: farhop-startup-trainer DIRECTORY\n");
    return 2;
  }
  try {
    run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farhop-startup-trainer: %s\n", error.what());
    return 1;
  }
}
