#include "benchmarks/wide_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "base/socket.h"
#include "partition/partitioner.h"
#include "partition/store_writer.h"

namespace farhop::benchmarks {
namespace {

constexpr int kGeneratorVersion = 1;

// The rows as a mapped file without a name, of which only the pages with an id take space.
absl::StatusOr<partition::FeatureColumn> sparseRows(const WideStoreOptions& options) {
  const size_t bytes = options.featureBytes(), rowBytes = options.floats * sizeof(float);
  const FileDescriptor file(::open(options.cacheDirectory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return errnoStatus(absl::StrCat("cannot make a temporary file in ", options.cacheDirectory), errno);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return errnoStatus("ftruncate of the rows' file", errno);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return errnoStatus("cannot map the rows' file", errno);
  std::shared_ptr<void> owner(mapped, [bytes](void* address) { ::munmap(address, bytes); });
  auto* const data = static_cast<std::byte*>(mapped);
  for (uint64_t node = 0; node < options.nodes; ++node) {
    const float id = static_cast<float>(node);
    std::memcpy(data + node * rowBytes, &id, sizeof(id));
  }
  return partition::FeatureColumn{data, options.nodes, std::move(owner), "x"};
}

absl::Status makeStore(const WideStoreOptions& options, const std::string& directory) {
  std::fprintf(stderr, "writing %.1f GB of features to %s\n", static_cast<double>(options.featureBytes()) * 1e-9, directory.c_str());
  partition::Dataset dataset;
  dataset.name = "wide";
  const uint64_t edges = options.nodes * options.degree;
  dataset.schema.nodeTypes = {{partition::kHomogeneousNodeType, options.nodes, {{"x", DType::kFloat32, {options.floats}}}}};
  dataset.schema.relations.push_back({partition::kHomogeneousRelation, 0, 0, edges, -1, {}});
  std::vector<uint64_t> sources(edges), destinations(edges);
  for (uint64_t edge = 0; edge < edges; ++edge) {
    sources[edge] = KeyedRandom(combineKey(kGeneratorVersion, edge)).below(options.nodes);
    destinations[edge] = edge / options.degree;
  }
  dataset.edges = {{partition::IdColumn(std::move(sources)), partition::IdColumn(std::move(destinations)), "edges"}};
  dataset.edgeFeatures.resize(1);
  FARHOP_ASSIGN_OR_RETURN(partition::FeatureColumn rows, sparseRows(options));
  dataset.nodeFeatures.emplace_back().push_back(std::move(rows));
  std::vector<uint64_t> all(options.nodes);
  std::iota(all.begin(), all.end(), uint64_t{0});
  dataset.splits = {{"train", 0, std::move(all)}};
  partition::PartitionOptions split;
  split.parts = options.parts;
  split.method = partition::PartitionMethod::kRandom;
  split.seed = 1;
  FARHOP_ASSIGN_OR_RETURN(const partition::PartitionAssignment assignment, partition::assignPartitions(dataset, split));
  partition::StoreWriterOptions writing;
  writing.directory = directory;
  writing.method = std::string(partition::partitionMethodName(split.method));
  return partition::writeStore(dataset, assignment, writing);
}

}  // namespace

absl::StatusOr<std::string> wideStore(const WideStoreOptions& options) {
  if (options.nodes < static_cast<uint64_t>(options.parts) || options.floats == 0 || options.degree == 0 ||
      options.nodes >= (uint64_t{1} << 24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("nodes must be from ", options.parts, " to 2^24, floats and in-edges at least 1"));
  }
  const std::string directory =
      absl::StrCat(options.cacheDirectory, "/wide-v", kGeneratorVersion, "-format", partition::kStoreFormatVersion, "-nodes",
                   options.nodes, "-floats", options.floats, "-degree", options.degree, "-parts", options.parts);
  if (pathExists(directory)) return directory;
  FARHOP_RETURN_IF_ERROR(makeDirectories(options.cacheDirectory));
  const absl::Status made = makeStore(options, directory);
  // Another process may have made it meanwhile.
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  return directory;
}

}  // namespace farhop::benchmarks
