#include "benchmarks/partition_bench.h"

#include <CLI/CLI.hpp>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/npy.h"
#include "base/peak_memory.h"
#include "benchmarks/report.h"
#include "benchmarks/rmat_graph.h"
#include "partition/dataset.h"
#include "partition/graph_store.h"
#include "partition/partitioner.h"
#include "partition/store_writer.h"

namespace farhop::benchmarks {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct PartitionBenchOptions {
  RmatOptions graph;
  uint64_t floats = 64;
  std::string method = "random";
  std::string order = "id";
  uint64_t memoryBytes = 0;
  int threads = 0;
  std::string directory;
  bool keep = false;
  bool small = false;
  std::string json;
};

constexpr uint64_t kEdgesPerChunk = uint64_t{1} << 20;

// Edges of shape (E, 2), made on all threads.
absl::Status writeEdges(const RmatOptions& options, const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kUInt32, {options.edges, 2}));
  const RmatEdges rmat(options);
  std::vector<std::vector<uint32_t>> chunks(std::max(1U, std::thread::hardware_concurrency()));
  for (uint64_t first = 0; first < options.edges;) {
    std::vector<std::thread> threads;
    for (std::vector<uint32_t>& chunk : chunks) {
      const uint64_t count = std::min(kEdgesPerChunk, options.edges - first);
      chunk.resize(2 * count);
      threads.emplace_back([&rmat, &chunk, first, count] {
        for (uint64_t i = 0; i < count; ++i) {
          const Edge edge = rmat(first + i);
          chunk[2 * i] = edge.source;
          chunk[2 * i + 1] = edge.destination;
        }
      });
      first += count;
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& chunk : chunks) FARHOP_RETURN_IF_ERROR(writer.write(chunk.data(), chunk.size() * sizeof(uint32_t)));
  }
  return writer.commit();
}

absl::Status writeRows(uint64_t rows, uint64_t floats, const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kFloat32, {rows, floats}));
  std::vector<float> row(floats);
  for (uint64_t id = 0; id < rows; ++id) {
    for (uint64_t i = 0; i < floats; ++i) row[i] = static_cast<float>((id * 31 + i) % 16'000'003);
    FARHOP_RETURN_IF_ERROR(writer.write(row.data(), floats * sizeof(float)));
  }
  return writer.commit();
}

// Every tenth node is a train seed.
absl::Status writeDataset(const PartitionBenchOptions& options, const std::string& directory) {
  const std::string metadata = absl::StrCat(directory, "/metadata.yaml");
  if (pathExists(metadata)) return absl::OkStatus();
  std::fprintf(stderr, "making %llu edges among %llu nodes in %s\n", static_cast<unsigned long long>(options.graph.edges),
               static_cast<unsigned long long>(options.graph.nodes()), directory.c_str());
  FARHOP_RETURN_IF_ERROR(makeDirectories(directory));
  FARHOP_RETURN_IF_ERROR(writeEdges(options.graph, directory + "/edges.npy"));
  FARHOP_RETURN_IF_ERROR(writeRows(options.graph.nodes(), options.floats, directory + "/x.npy"));
  std::vector<uint64_t> train;
  for (uint64_t id = 0; id < options.graph.nodes(); id += 10) train.push_back(id);
  FARHOP_RETURN_IF_ERROR(writeNpy<uint64_t>(directory + "/train.npy", train).status());
  return writeFileAtomically(
      metadata, absl::StrCat("dataset_name: rmat\ngraph:\n  nodes: [{num: ", options.graph.nodes(),
                             "}]\n  edges: [{format: numpy, path: edges.npy}]\n"
                             "feature_data:\n  - {domain: node, name: x, format: numpy, path: x.npy}\n"
                             "tasks:\n  - name: nodes\n    train_set:\n      - data: [{name: seeds, format: numpy, path: "
                             "train.npy}]\n"));
}

struct Directory {
  ~Directory() {
    std::error_code ignored;
    if (remove) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
  bool remove = true;
};

double secondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

absl::Status runPartition(PartitionBenchOptions options) {
  if (options.small) {
    options.graph.nodesLog2 = 10;
    options.graph.edges = 20'000;
    options.graph.parts = 3;
    options.floats = 8;
  }
  Directory directory;
  directory.remove = !options.keep;
  directory.path = options.directory;
  if (directory.path.empty()) {
    directory.path = (std::filesystem::temp_directory_path() / "farhop-bench-XXXXXX").string();
    if (::mkdtemp(directory.path.data()) == nullptr) return absl::InternalError("no temporary directory can be made");
  }
  const std::string raw = directory.path + "/raw", out = directory.path + "/store";
  FARHOP_RETURN_IF_ERROR(writeDataset(options, raw));

  PeakMemory peak;
  const auto begin = SteadyClock::now();
  FARHOP_ASSIGN_OR_RETURN(const partition::Dataset dataset, partition::readDataset(raw));
  const double read = secondsSince(begin);
  partition::PartitionOptions how;
  how.parts = options.graph.parts;
  FARHOP_ASSIGN_OR_RETURN(how.method, partition::parsePartitionMethod(options.method));
  partition::StoreWriterOptions writer;
  writer.directory = out;
  writer.force = true;
  writer.method = options.method;
  writer.memoryBytes = options.memoryBytes;
  writer.threads = options.threads;
  FARHOP_ASSIGN_OR_RETURN(writer.order, partition::parseNodeOrder(options.order));
  writer.progress = [&](const std::string& line) {
    if (!options.small) std::fprintf(stderr, "%8.1f s  %s\n", secondsSince(begin), line.c_str());
  };
  double assign = 0;
  FARHOP_RETURN_IF_ERROR(partition::partitionStore(dataset, how, writer, &assign));
  const double total = secondsSince(begin);
  FARHOP_ASSIGN_OR_RETURN(const auto store, partition::GraphStore::open(out));
  uint64_t cut = 0;
  for (uint64_t remote : store->manifest().remoteEdges[0]) cut += remote;

  Report report("partition", options.graph.parameters(), options.graph.seed, options.small);
  const auto add = [&](const char* name, double value, const char* unit) {
    report.add({name, Series({value}), unit, 1, std::nullopt, std::nullopt});
  };
  add("read", read, "s");
  add("assign", assign, "s");
  add("write", total - read - assign, "s");
  add("total", total, "s");
  add("total", static_cast<double>(options.graph.edges) / total, "edges/s");
  add("cut", static_cast<double>(cut) / static_cast<double>(options.graph.edges), "share of edges");
  add("process", static_cast<double>(peak.bytes()), "bytes at peak");
  return publish(report, options.json);
}

}  // namespace

void addPartitionBench(CLI::App& app, absl::Status* status) {
  auto options = std::make_shared<PartitionBenchOptions>();
  CLI::App* const command = app.add_subcommand(
      "partition", "Time and memory from a data set to a store: an R-MAT graph with one feature of every node");
  command->add_option("--nodes-log2", options->graph.nodesLog2, "The graph has 2^N nodes")->capture_default_str();
  command->add_option("--edges", options->graph.edges, "Directed edges of the graph")->capture_default_str();
  command->add_option("--graph-seed", options->graph.seed, "Seed of the graph")->capture_default_str();
  options->graph.parts = 8;
  command->add_option("--parts", options->graph.parts, "Partitions")->capture_default_str();
  command->add_option("--floats", options->floats, "Width of the feature")->capture_default_str();
  command->add_option("--method", options->method, "As `farhop partition` takes it")->capture_default_str();
  command->add_option("--order", options->order, "As `farhop partition` takes it")->capture_default_str();
  command->add_option("--memory", options->memoryBytes, "Bytes, or 6G; half of what is free if not given")
      ->transform(CLI::AsSizeValue(true));
  command->add_option("--threads", options->threads, "One per core if not given");
  command->add_option("--dir", options->directory,
                      "Where data set and store are written; the data set is used again if it is there. A temporary one "
                      "if not given");
  command->add_flag("--keep", options->keep, "Leave them there");
  command->add_flag("--small", options->small, "A small graph, for tests; its figures mean nothing");
  command->add_option("--json", options->json, "Also write the rows to this file");
  command->callback([options, status] { *status = runPartition(*options); });
}

}  // namespace farhop::benchmarks
