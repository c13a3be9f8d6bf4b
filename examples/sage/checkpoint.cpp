#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace {

torch::Tensor toTensor(const std::string& bytes) {
  torch::Tensor tensor = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kUInt8);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string toBytes(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous();
  return flat.numel() == 0 ? std::string() : std::string(static_cast<const char*>(flat.data_ptr()), flat.nbytes());
}

std::string errnoText(const std::string& what, const std::string& path) { return what + " " + path + ": " + std::strerror(errno); }

// Written beside, synced, renamed. Returns what went wrong, or nothing.
std::string replaceFile(const std::string& directory, const std::string& path, const std::string& bytes) {
  const std::string written = path + ".new";
  const int file = ::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return errnoText("cannot create", written);
  std::string error;
  for (size_t at = 0; at < bytes.size() && error.empty();) {
    const ssize_t count = ::write(file, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno != EINTR) error = errnoText("cannot write", written);
    if (count > 0) at += static_cast<size_t>(count);
  }
  if (error.empty() && ::fsync(file) != 0) error = errnoText("cannot sync", written);
  ::close(file);
  if (error.empty() && ::rename(written.c_str(), path.c_str()) != 0) error = errnoText("cannot rename to", path);
  if (!error.empty()) {
    ::unlink(written.c_str());
    return error;
  }
  const int parent = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0 || ::fsync(parent) != 0) error = errnoText("cannot sync", directory);
  if (parent >= 0) ::close(parent);
  return error;
}

std::string generatorState() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return toBytes(generator.get_state());
}

void setGeneratorState(const std::string& bytes) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(toTensor(bytes));
}

std::string pack(const Progress& progress) {
  const auto binary = [](const std::string& bytes) {
    return nlohmann::json::binary(std::vector<uint8_t>(bytes.begin(), bytes.end()));
  };
  const nlohmann::json record = {{"position", binary(progress.position)},
                                 {"generator", binary(generatorState())},
                                 {"totals", progress.totals},
                                 {"history", progress.history}};
  const std::vector<uint8_t> packed = nlohmann::json::to_cbor(record);
  return {packed.begin(), packed.end()};
}

Progress unpack(const std::string& bytes) {
  const nlohmann::json record = nlohmann::json::from_cbor(bytes);
  const auto text = [&](const char* name) {
    const auto& binary = record.at(name).get_binary();
    return std::string(binary.begin(), binary.end());
  };
  setGeneratorState(text("generator"));
  return {text("position"), record.at("totals").get<std::vector<double>>(), record.at("history")};
}

}  // namespace

Checkpoint::Checkpoint(farhop::Runtime& runtime, const std::string& directory, const std::vector<torch::Tensor>& parameters,
                       torch::optim::Optimizer& optimizer)
    : runtime_(runtime), directory_(directory), file_(directory + "/checkpoint"), parameters_(parameters), optimizer_(optimizer) {
  std::string error;
  if (runtime_.worldRank() == 0) {
    std::error_code code;
    std::filesystem::create_directories(directory, code);
    if (code) error = "cannot create " + directory + ": " + code.message();
  }
  agree(error);
}

void Checkpoint::save(const Progress& progress) {
  const std::vector<std::string> records = runtime_.gather(pack(progress));
  std::string error;
  if (runtime_.worldRank() == 0) {
    const torch::NoGradGuard noGrad;
    torch::serialize::OutputArchive archive, optimizer;
    for (size_t i = 0; i < parameters_.size(); ++i) archive.write("parameter" + std::to_string(i), parameters_[i]);
    optimizer_.save(optimizer);
    archive.write("optimizer", optimizer);
    archive.write("processes", torch::tensor(static_cast<int64_t>(records.size())));
    for (size_t rank = 0; rank < records.size(); ++rank) archive.write("process" + std::to_string(rank), toTensor(records[rank]));
    std::ostringstream bytes;
    archive.save_to(bytes);
    error = replaceFile(directory_, file_, bytes.str());
  }
  agree(error);
}

std::optional<Progress> Checkpoint::load() {
  std::string bytes, error;
  if (runtime_.worldRank() == 0 && std::filesystem::exists(file_)) {
    std::ifstream in(file_, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    if (!in || bytes.empty()) error = "cannot read " + file_;
  }
  agree(error);
  bytes = share(std::move(bytes));
  if (bytes.empty()) return std::nullopt;
  try {
    const torch::NoGradGuard noGrad;
    std::istringstream in(bytes);
    torch::serialize::InputArchive archive, optimizer;
    archive.load_from(in);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::Tensor saved, parameter = parameters_[i];
      archive.read("parameter" + std::to_string(i), saved);
      if (saved.sizes() != parameter.sizes()) throw std::runtime_error("it is of a model of other widths");
      parameter.copy_(saved);
    }
    archive.read("optimizer", optimizer);
    optimizer_.load(optimizer);
    torch::Tensor processes, record;
    archive.read("processes", processes);
    const int64_t rank = runtime_.worldRank() % processes.item<int64_t>();
    archive.read("process" + std::to_string(rank), record);
    return unpack(toBytes(record));
  } catch (const std::exception& problem) {
    throw farhop::Error(farhop::ErrorCode::kDataLoss, "checkpoint " + file_ + " cannot be used: " + problem.what() +
                                                          "; remove it to start anew");
  }
}

std::string Checkpoint::share(std::string bytes) const {
  torch::Tensor size = torch::tensor(static_cast<int64_t>(bytes.size()));
  runtime_.broadcast({size});
  torch::Tensor content = torch::zeros({size.item<int64_t>()}, torch::kUInt8);
  if (runtime_.worldRank() == 0) content = toTensor(bytes);
  if (content.numel() > 0) runtime_.broadcast({content});
  return toBytes(content);
}

void Checkpoint::agree(const std::string& error) const {
  for (const std::string& text : runtime_.gather(error)) {
    if (!text.empty()) throw farhop::Error(farhop::ErrorCode::kFailedPrecondition, "checkpoint: " + text);
  }
}
