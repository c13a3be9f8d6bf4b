#include "benchmarks/rmat_graph.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/npy.h"
#include "partition/partitioner.h"
#include "partition/store_writer.h"

namespace farhop::benchmarks {
namespace {

// Part of the directory's name and of the key: another generator makes another graph.
constexpr int kGeneratorVersion = 1;
constexpr size_t kEdgesPerChunk = size_t{1} << 20;
// Quadrants' upper bounds in 32-bit fixed point: source and destination low; destination high; source high;
// both.
constexpr double kTwoTo32 = 4294967296.0;
constexpr uint32_t kA = static_cast<uint32_t>(0.57 * kTwoTo32);
constexpr uint32_t kAB = static_cast<uint32_t>((0.57 + 0.19) * kTwoTo32);
constexpr uint32_t kABC = static_cast<uint32_t>((0.57 + 0.19 + 0.19) * kTwoTo32);

absl::Status checkOptions(const RmatOptions& options) {
  if (options.nodesLog2 < 1 || options.nodesLog2 > 31) {
    return absl::InvalidArgumentError(absl::StrCat("--nodes-log2 is ", options.nodesLog2,
                                                   "; 1 to 31 are possible, since ids are 32 bits wide"));
  }
  if (options.edges == 0) return absl::InvalidArgumentError("--edges is 0; a graph to sample needs some");
  if (options.parts < 1)
    return absl::InvalidArgumentError(absl::StrCat("--parts is ", options.parts, "; at least 1"));
  return absl::OkStatus();
}

// Makes all edges, chunk by chunk on all threads, and streams them into two files.
absl::Status writeEdges(const RmatOptions& options, const std::string& sourcePath,
                        const std::string& destinationPath) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter sources, NpyWriter::create(sourcePath, DType::kUInt32, {options.edges}));
  FARHOP_ASSIGN_OR_RETURN(NpyWriter destinations,
                          NpyWriter::create(destinationPath, DType::kUInt32, {options.edges}));
  const RmatEdges rmat(options);
  struct Chunk {
    std::vector<uint32_t> sources, destinations;
  };
  std::vector<Chunk> chunks(std::max(1U, std::thread::hardware_concurrency()));
  for (uint64_t first = 0; first < options.edges;) {
    std::vector<std::thread> threads;
    for (Chunk& chunk : chunks) {
      const uint64_t count = std::min<uint64_t>(kEdgesPerChunk, options.edges - first);
      chunk.sources.resize(count);
      chunk.destinations.resize(count);
      if (count == 0) continue;
      threads.emplace_back([&rmat, &chunk, first, count] {
        for (uint64_t i = 0; i < count; ++i) {
          const Edge edge = rmat(first + i);
          chunk.sources[i] = edge.source;
          chunk.destinations[i] = edge.destination;
        }
      });
      first += count;
    }
    for (std::thread& thread : threads) thread.join();
    for (const Chunk& chunk : chunks) {
      FARHOP_RETURN_IF_ERROR(sources.write(chunk.sources.data(), chunk.sources.size() * sizeof(uint32_t)));
      FARHOP_RETURN_IF_ERROR(
          destinations.write(chunk.destinations.data(), chunk.destinations.size() * sizeof(uint32_t)));
    }
  }
  FARHOP_RETURN_IF_ERROR(sources.commit());
  return destinations.commit();
}

// Writes valueOf(edge) of every edge, chunk by chunk.
template <typename T, typename ValueOf>
absl::Status writeFeature(const std::string& path, DType dtype, uint64_t edges, const ValueOf& valueOf) {
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, dtype, {edges}));
  std::vector<T> chunk;
  for (uint64_t first = 0; first < edges; first += chunk.size()) {
    chunk.resize(std::min<uint64_t>(kEdgesPerChunk, edges - first));
    for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = valueOf(first + i);
    FARHOP_RETURN_IF_ERROR(writer.write(chunk.data(), chunk.size() * sizeof(T)));
  }
  return writer.commit();
}

absl::StatusOr<partition::FeatureColumn> mapFeature(const std::string& path, uint64_t edges) {
  FARHOP_ASSIGN_OR_RETURN(NpyArray opened, NpyArray::open(path));
  auto array = std::make_shared<const NpyArray>(std::move(opened));
  return partition::FeatureColumn{array->data().data(), edges, array, path};
}

absl::Status addTimesAndWeights(const RmatOptions& options, const std::string& directory, partition::Dataset* dataset) {
  partition::Relation& relation = dataset->schema.relations[0];
  const std::string times = absl::StrCat(directory, "/t.npy"), weights = absl::StrCat(directory, "/w.npy");
  FARHOP_RETURN_IF_ERROR(writeFeature<int64_t>(times, DType::kInt64, options.edges,
                                               [&](uint64_t edge) { return rmatTime(options.seed, edge); }));
  FARHOP_RETURN_IF_ERROR(writeFeature<float>(weights, DType::kFloat32, options.edges,
                                             [&](uint64_t edge) { return rmatWeight(options.seed, edge); }));
  for (const std::string& path : {times, weights}) {
    FARHOP_ASSIGN_OR_RETURN(partition::FeatureColumn column, mapFeature(path, options.edges));
    dataset->edgeFeatures[0].push_back(std::move(column));
  }
  relation.features = {{"t", DType::kInt64, {}}, {"w", DType::kFloat32, {}}};
  relation.timeFeature = "t";
  relation.weightFeature = "w";
  return absl::OkStatus();
}

// Row by row, so that a wide feature takes no memory.
absl::Status addNodeFeature(const RmatOptions& options, const std::string& directory, partition::Dataset* dataset) {
  const std::string path = absl::StrCat(directory, "/x.npy");
  FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::create(path, DType::kFloat32, {options.nodes(), options.floats}));
  std::vector<float> row(options.floats);
  for (uint64_t node = 0; node < options.nodes(); ++node) {
    for (uint64_t column = 0; column < options.floats; ++column) row[column] = rmatFeature(options.seed, node, column);
    FARHOP_RETURN_IF_ERROR(writer.write(row.data(), row.size() * sizeof(float)));
  }
  FARHOP_RETURN_IF_ERROR(writer.commit());
  FARHOP_ASSIGN_OR_RETURN(partition::FeatureColumn column, mapFeature(path, options.nodes()));
  dataset->nodeFeatures[0].push_back(std::move(column));
  dataset->schema.nodeTypes[0].features = {{"x", DType::kFloat32, {options.floats}}};
  return absl::OkStatus();
}

absl::StatusOr<partition::IdColumn> mapColumn(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(NpyArray array, NpyArray::open(path));
  const uint64_t size = array.elements();
  return partition::IdColumn::view(std::make_shared<const NpyArray>(std::move(array)), 0, 1, size);
}

// Removes a directory, whatever happens in between.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status makeStore(const RmatOptions& options, const std::string& directory,
                       const std::function<void(const std::string&)>& progress) {
  const ScratchDirectory scratch(absl::StrCat(directory, ".edges"));
  FARHOP_RETURN_IF_ERROR(makeDirectories(scratch.path()));
  progress(absl::StrCat("making ", options.edges, " edges among ", options.nodes(), " nodes"));
  FARHOP_RETURN_IF_ERROR(writeEdges(options, scratch / "source.npy", scratch / "destination.npy"));

  partition::Dataset dataset;
  dataset.name = "rmat";
  dataset.schema.nodeTypes.push_back({partition::kHomogeneousNodeType, options.nodes(), {}});
  dataset.schema.relations.push_back({partition::kHomogeneousRelation, 0, 0, options.edges, -1, {}});
  partition::EdgeList edges;
  FARHOP_ASSIGN_OR_RETURN(edges.source, mapColumn(scratch / "source.npy"));
  FARHOP_ASSIGN_OR_RETURN(edges.destination, mapColumn(scratch / "destination.npy"));
  edges.origin = scratch.path();
  dataset.edges.push_back(std::move(edges));
  dataset.nodeFeatures.emplace_back();
  dataset.edgeFeatures.emplace_back();
  if (options.timesAndWeights) FARHOP_RETURN_IF_ERROR(addTimesAndWeights(options, scratch.path(), &dataset));
  if (options.floats > 0) FARHOP_RETURN_IF_ERROR(addNodeFeature(options, scratch.path(), &dataset));

  partition::PartitionOptions split;
  split.parts = options.parts;
  split.method = partition::PartitionMethod::kRandom;
  split.seed = options.seed;
  FARHOP_ASSIGN_OR_RETURN(const partition::PartitionAssignment assignment,
                          partition::assignPartitions(dataset, split));
  partition::StoreWriterOptions writing;
  writing.directory = directory;
  writing.method = std::string(partition::partitionMethodName(split.method));
  writing.seed = options.seed;
  writing.progress = progress;
  return partition::writeStore(dataset, assignment, writing);
}

}  // namespace

void addRmatOptions(CLI::App& command, RmatOptions* options) {
  command.add_option("--nodes-log2", options->nodesLog2, "The graph has 2^N nodes")->capture_default_str();
  command.add_option("--edges", options->edges, "Directed edges of the graph")->capture_default_str();
  command.add_option("--graph-seed", options->seed, "Seed of the graph")->capture_default_str();
  command.add_option("--parts", options->parts, "Random partitions of the store")->capture_default_str();
  command.add_option("--cache", options->cacheDirectory, "Where graphs are kept between runs")
      ->capture_default_str();
}

int64_t rmatTime(uint64_t seed, uint64_t edge) {
  return static_cast<int64_t>(KeyedRandom(combineKey(combineKey(seed, hashName("times")), edge)).below(kRmatTimes));
}

float rmatWeight(uint64_t seed, uint64_t edge) {
  const uint64_t bits = combineKey(combineKey(seed, hashName("weights")), edge);
  return static_cast<float>((bits >> 40) + 1) * 0x1.0p-24F;
}

float rmatFeature(uint64_t seed, uint64_t node, uint64_t column) {
  return static_cast<float>((combineKey(seed, node) + column * 0x9E3779B97F4A7C15U) >> 44);
}

RmatEdges::RmatEdges(const RmatOptions& options)
    : levels_(options.nodesLog2),
      key_(combineKey(combineKey(options.seed, hashName("rmat")), kGeneratorVersion)),
      permutation_(combineKey(key_, hashName("ids")), options.nodes()) {}

Edge RmatEdges::operator()(uint64_t edge) const {
  KeyedRandom random(combineKey(key_, edge));
  uint32_t source = 0, destination = 0;
  uint64_t bits = 0;
  for (int level = 0; level < levels_; ++level) {
    // 32 bits choose a quadrant: one draw serves two levels.
    bits = level % 2 == 0 ? random.next() : bits >> 32;
    const uint32_t point = static_cast<uint32_t>(bits);
    const uint32_t sourceHigh = point >= kAB,
                   destinationHigh = (point >= kA) ^ (point >= kAB) ^ (point >= kABC);
    source = 2 * source + sourceHigh;
    destination = 2 * destination + destinationHigh;
  }
  return {static_cast<uint32_t>(permutation_(source)), static_cast<uint32_t>(permutation_(destination))};
}

absl::StatusOr<std::shared_ptr<const partition::GraphStore>> openRmatGraph(
    const RmatOptions& options, const std::function<void(const std::string&)>& progress) {
  FARHOP_RETURN_IF_ERROR(checkOptions(options));
  const std::string directory =
      absl::StrCat(options.cacheDirectory, "/rmat-v", kGeneratorVersion, "-format", partition::kStoreFormatVersion, "-nodes", options.nodesLog2,
                   "-edges", options.edges, "-seed", options.seed, "-parts", options.parts,
                   options.timesAndWeights ? "-timed" : "", options.floats > 0 ? absl::StrCat("-x", options.floats) : "");
  if (!pathExists(directory)) {
    FARHOP_RETURN_IF_ERROR(makeDirectories(options.cacheDirectory));
    const absl::Status made = makeStore(options, directory, progress);
    // Another process may have made it meanwhile.
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  }
  FARHOP_ASSIGN_OR_RETURN(std::shared_ptr<const partition::GraphStore> store,
                          partition::GraphStore::open(directory));
  const partition::Schema& schema = store->schema();
  if (schema.nodeTypes.size() != 1 || schema.relations.size() != 1 ||
      schema.nodeTypes[0].count != options.nodes() || schema.relations[0].count != options.edges ||
      store->numPartitions() != options.parts || schema.hasTimes(0) != options.timesAndWeights) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is not the graph that its name says; remove it and run again"));
  }
  return store;
}

}  // namespace farhop::benchmarks
