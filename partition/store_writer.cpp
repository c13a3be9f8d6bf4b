#include "partition/store_writer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/memory_info.h"
#include "base/npy.h"
#include "partition/array_sink.h"
#include "partition/cache_plan.h"
#include "partition/cache_writer.h"
#include "partition/dataset_key.h"
#include "partition/graph_store.h"
#include "partition/layout.h"
#include "partition/manifest.h"
#include "partition/node_writer.h"
#include "partition/parallel.h"
#include "partition/partition_book.h"
#include "partition/relation_writer.h"
#include "partition/stage_journal.h"
#include "partition/staged_directory.h"

namespace farhop::partition {
namespace {

constexpr char kAssignmentFolder[] = "assignment";
// Buffers of open files: of what is being written anyway, and of each thread.
constexpr uint64_t kFileBytes = uint64_t{32} << 20;
constexpr uint64_t kLeastWorkingBytes = uint64_t{8} << 20;

// Bytes that lie in memory all the time: see writeStore().
uint64_t residentBytesOf(const Dataset& dataset, const StoreWriterOptions& options, int threads) {
  const Schema& schema = dataset.schema;
  uint64_t nodes = 0, largest = 0;
  for (const NodeType& type : schema.nodeTypes) nodes += 12 * type.count, largest = std::max(largest, 8 * type.count);
  for (const Relation& relation : schema.relations) {
    const uint64_t ends[] = {schema.nodeTypes[static_cast<size_t>(relation.source)].count,
                             schema.nodeTypes[static_cast<size_t>(relation.destination)].count};
    uint64_t bytes = 16 * ends[1] + 8 * ends[0];
    if (options.addReverse) bytes = std::max(bytes, 16 * ends[0] + 8 * ends[1]);
    if (options.mergeParallel) bytes += relation.count / 4;
    largest = std::max(largest, bytes);
  }
  if (options.order != NodeOrder::kOriginalId) largest = std::max(largest, 2 * nodes);
  return nodes + largest + kFileBytes * static_cast<uint64_t>(1 + threads);
}

absl::StatusOr<WriterResources> planResources(const Dataset& dataset, const StoreWriterOptions& options,
                                              const std::string& scratchDirectory) {
  WriterResources resources;
  resources.threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  resources.maxBucketItems = options.maxBucketItems;
  resources.scratchDirectory = scratchDirectory;
  resources.meter = options.meter;
  const uint64_t resident = residentBytesOf(dataset, options, resources.threads);
  const uint64_t memory = options.memoryBytes > 0
                              ? options.memoryBytes
                              : std::max(availableMemoryBytes() / 2, resident + 8 * kLeastWorkingBytes);
  if (memory < resident + kLeastWorkingBytes) {
    constexpr uint64_t kMegabyte = 1'000'000;
    return absl::ResourceExhaustedError(absl::StrCat(
        "the nodes of this data set need ", (resident + kLeastWorkingBytes) / kMegabyte + 1,
        " MB of memory while a store is written, with ", resources.threads, " threads; --memory allows ",
        memory / kMegabyte, " MB"));
  }
  resources.workingBytes = memory - resident;
  return resources;
}

class StoreWriter {
 public:
  // `assignment` is made by makeAssignment() where it is null.
  StoreWriter(const Dataset& dataset, const StoreWriterOptions& options, const StagedDirectory& staged,
              StageJournal journal, WriterResources resources)
      : dataset_(dataset),
        options_(options),
        staged_(staged),
        journal_(std::move(journal)),
        resources_(std::move(resources)),
        sink_(staged.path(), &manifest_.files) {}

  absl::Status assign(const PartitionOptions& how, double* seconds) {
    const auto before = std::chrono::steady_clock::now();
    if (const FinishedStage* finished = journal_.find("assign")) {
      progress("the assignment of nodes is taken from the earlier run");
      return readAssignment(static_cast<int>(finished->numbers.at(0).at(0)));
    }
    progress(absl::StrCat("assigning nodes to ", how.parts, " partitions by ", options_.method));
    FARHOP_ASSIGN_OR_RETURN(assignment_, assignPartitions(dataset_, how));
    FARHOP_RETURN_IF_ERROR(checkAssignment(dataset_, assignment_));
    if (seconds != nullptr) {
      *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    }
    if (!options_.resume) return absl::OkStatus();
    std::map<std::string, StoredFile> files;
    ArraySink sink(staged_.path(), &files);
    for (size_t t = 0; t < assignment_.partitionOf.size(); ++t) {
      const std::vector<int32_t>& partitionOf = assignment_.partitionOf[t];
      FARHOP_RETURN_IF_ERROR(sink.writeColumn<int32_t>(assignmentPath(t), partitionOf.size(),
                                                       [&](uint64_t id) { return partitionOf[id]; }));
    }
    return journal_.add("assign", {files, {{static_cast<uint64_t>(assignment_.numPartitions)}}});
  }
  void takeAssignment(const PartitionAssignment& assignment) { assignment_ = assignment; }

  absl::Status write() {
    FARHOP_RETURN_IF_ERROR(describe());
    FARHOP_RETURN_IF_ERROR(numberAll());
    NodeWriter nodes({dataset_, assignment_, book_, gids_, resources_}, &manifest_, &sink_);
    FARHOP_RETURN_IF_ERROR(writeNodes(&nodes));
    FARHOP_RETURN_IF_ERROR(nodes.writeSplits());
    RelationWriter relations({dataset_, book_, gids_, resources_, options_.mergeParallel}, &manifest_, &sink_);
    for (int r = 0; r < static_cast<int>(schema().relations.size()); ++r) {
      FARHOP_RETURN_IF_ERROR(writeRelation(r, &relations));
    }
    FARHOP_RETURN_IF_ERROR(stage("halo", "counting halo nodes", [&] { return countHaloNodes(); },
                                 [&] { return FinishedStage{{}, {manifest_.haloNodes}}; },
                                 [&](const FinishedStage& finished) { manifest_.haloNodes = finished.numbers.at(0); }));
    FARHOP_RETURN_IF_ERROR(writeCaches(dataset_, options_.cache, options_.progress, &manifest_, &sink_));
    FARHOP_RETURN_IF_ERROR(checkManifest(manifest_));
    // graph.json makes a directory a store: it comes when all else is on the disk.
    FARHOP_RETURN_IF_ERROR(removeTraces());
    FARHOP_RETURN_IF_ERROR(staged_.sync());
    return writeFileAtomically(absl::StrCat(sink_.root(), "/", kManifestFile), formatManifest(manifest_));
  }

 private:
  const Schema& schema() const { return manifest_.schema; }
  int parts() const { return assignment_.numPartitions; }
  void progress(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }
  std::string assignmentPath(size_t type) const {
    return absl::StrCat(kAssignmentFolder, "/", pathComponent(dataset_.schema.nodeTypes[type].name), ".npy");
  }

  absl::Status readAssignment(int parts) {
    assignment_.numPartitions = parts;
    for (size_t t = 0; t < dataset_.schema.nodeTypes.size(); ++t) {
      FARHOP_ASSIGN_OR_RETURN(const NpyArray array,
                              NpyArray::open(absl::StrCat(staged_.path(), "/", assignmentPath(t))));
      FARHOP_ASSIGN_OR_RETURN(const auto partitionOf, array.as<int32_t>());
      assignment_.partitionOf.emplace_back(partitionOf.begin(), partitionOf.end());
    }
    return checkAssignment(dataset_, assignment_);
  }

  // Runs `work`, or, where an earlier run has, `restore`s what it left beside files. `remember` says what that is.
  template <typename Work, typename Remember, typename Restore>
  absl::Status stage(const std::string& name, const std::string& line, const Work& work, const Remember& remember,
                     const Restore& restore) {
    progress(line);
    if (const FinishedStage* finished = journal_.find(name)) {
      manifest_.files.insert(finished->files.begin(), finished->files.end());
      restore(*finished);
      return absl::OkStatus();
    }
    std::map<std::string, StoredFile> before;
    before.swap(manifest_.files);
    const absl::Status status = work();
    FinishedStage finished = remember();
    finished.files = manifest_.files;
    manifest_.files.insert(before.begin(), before.end());
    FARHOP_RETURN_IF_ERROR(status);
    return options_.resume ? journal_.add(name, finished) : absl::OkStatus();
  }
  template <typename Work>
  absl::Status stage(const std::string& name, const std::string& line, const Work& work) {
    return stage(name, line, work, [] { return FinishedStage(); }, [](const FinishedStage&) {});
  }

  absl::Status describe() {
    manifest_.dataset = dataset_.name;
    manifest_.task = dataset_.task;
    manifest_.numClasses = dataset_.numClasses;
    manifest_.method = options_.method;
    manifest_.seed = options_.seed;
    manifest_.order = std::string(nodeOrderName(options_.order));
    manifest_.schema = dataset_.schema;
    manifest_.haloNodes.assign(static_cast<size_t>(parts()), 0);
    if (options_.addReverse) FARHOP_RETURN_IF_ERROR(addReverseRelations());
    manifest_.partitionEdges.resize(schema().relations.size());
    manifest_.remoteEdges.resize(schema().relations.size());
    return absl::OkStatus();
  }

  absl::Status addReverseRelations() {
    const size_t forward = dataset_.schema.relations.size();
    for (size_t r = 0; r < forward; ++r) {
      Relation reverse = dataset_.schema.relations[r];
      reverse.name = absl::StrCat("rev_", reverse.name);
      std::swap(reverse.source, reverse.destination);
      reverse.reverseOf = static_cast<int>(r);
      reverse.features.clear();
      manifest_.schema.relations.push_back(std::move(reverse));
      const std::string text = schema().relationText(static_cast<int>(forward + r));
      FARHOP_RETURN_IF_ERROR(checkName("the reverse relation", manifest_.schema.relations.back().name));
      for (size_t other = 0; other < forward; ++other) {
        if (schema().relationText(static_cast<int>(other)) == text) {
          return absl::AlreadyExistsError(absl::StrCat("the data set has a relation ", text,
                                                       " of its own; leave out --add-reverse or rename it"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status numberAll() {
    book_ = makeBook(assignment_);
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t) {
      manifest_.offsets.push_back(book_.offsets(static_cast<int>(t)));
    }
    // An earlier run's numbers lie in its files.
    if (journal_.find(idsStage(schema().nodeTypes.size() - 1)) != nullptr) {
      for (size_t t = 0; t < schema().nodeTypes.size(); ++t) {
        FARHOP_ASSIGN_OR_RETURN(
            const NpyArray array,
            NpyArray::open(absl::StrCat(sink_.root(), "/", gidMapPath(schema(), static_cast<int>(t)))));
        FARHOP_ASSIGN_OR_RETURN(const auto gids, array.as<uint64_t>());
        gids_.emplace_back(gids.begin(), gids.end());
      }
      return absl::OkStatus();
    }
    FARHOP_ASSIGN_OR_RETURN(gids_, numberNodes(dataset_, assignment_, book_, options_.order, resources_));
    return absl::OkStatus();
  }
  std::string idsStage(size_t type) const { return absl::StrCat("ids ", type); }

  absl::Status writeNodes(NodeWriter* nodes) {
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t) {
      const NodeType& type = schema().nodeTypes[t];
      const int index = static_cast<int>(t);
      FARHOP_RETURN_IF_ERROR(stage(idsStage(t), absl::StrCat("writing ", type.count, " nodes of type ", type.name),
                                   [&] { return nodes->writeIds(index); }));
    }
    for (size_t t = 0; t < schema().nodeTypes.size(); ++t) {
      const NodeType& type = schema().nodeTypes[t];
      for (size_t f = 0; f < type.features.size(); ++f) {
        const std::string what = absl::StrCat("writing feature ", type.features[f].name, " of ", type.name);
        FARHOP_RETURN_IF_ERROR(stage(absl::StrCat("feature ", t, " ", f), what, [&] {
          return nodes->writeFeature(static_cast<int>(t), static_cast<int>(f));
        }));
      }
    }
    return absl::OkStatus();
  }

  absl::Status writeRelation(int r, RelationWriter* relations) {
    const std::string text = schema().relationText(r);
    Relation& relation = manifest_.schema.relations[static_cast<size_t>(r)];
    std::vector<uint64_t>& edges = manifest_.partitionEdges[static_cast<size_t>(r)];
    std::vector<uint64_t>& remote = manifest_.remoteEdges[static_cast<size_t>(r)];
    FARHOP_RETURN_IF_ERROR(stage(
        absl::StrCat("edges ", r), absl::StrCat("writing ", relation.count, " edges of ", text),
        [&] { return relations->writeEdges(r); },
        [&] { return FinishedStage{{}, {edges, remote, {relation.count, relation.inputCount}}}; },
        [&](const FinishedStage& finished) {
          edges = finished.numbers.at(0);
          remote = finished.numbers.at(1);
          relation.count = finished.numbers.at(2).at(0);
          relation.inputCount = finished.numbers.at(2).at(1);
        }));
    for (const RelationWriter::Column& column : relations->columns(r)) {
      FARHOP_RETURN_IF_ERROR(stage(absl::StrCat("column ", r, " ", column.feature),
                                   absl::StrCat("writing ", column.name, " of ", text),
                                   [&] { return relations->writeColumn(r, column); }));
    }
    return absl::OkStatus();
  }

  // From the files just written, a bit per node for each partition that is counted.
  absl::Status countHaloNodes() {
    resources_.begin("counting halo nodes", "partitions", static_cast<uint64_t>(parts()));
    uint64_t bits = 0;
    for (const NodeType& type : schema().nodeTypes) bits += type.count;
    const int threads = static_cast<int>(std::clamp<uint64_t>(resources_.workingBytes / (bits / 8 + 1), 1,
                                                              static_cast<uint64_t>(resources_.threads)));
    return runInParallel(threads, static_cast<uint64_t>(parts()), [&](uint64_t part, int) {
      resources_.advance(1);
      return countHaloNodesOf(static_cast<int>(part));
    });
  }

  absl::Status countHaloNodesOf(int k) {
    std::vector<std::vector<bool>> seen(schema().nodeTypes.size());
    uint64_t found = 0;
    for (size_t r = 0; r < schema().relations.size(); ++r) {
      const int source = schema().relations[r].source;
      std::vector<bool>& nodes = seen[static_cast<size_t>(source)];
      nodes.resize(book_.numNodes(source));
      FARHOP_ASSIGN_OR_RETURN(
          NpyArray neighbors,
          NpyArray::open(
              absl::StrCat(sink_.root(), "/", relationPath(schema(), k, static_cast<int>(r), "neighbors"))));
      auto mark = [&](const auto& gids) {
        for (uint64_t gid : gids) {
          const bool own = gid >= book_.begin(source, k) && gid < book_.end(source, k);
          if (own || nodes[gid]) continue;
          nodes[gid] = true;
          ++found;
        }
      };
      if (neighbors.dtype() == DType::kUInt32) {
        FARHOP_ASSIGN_OR_RETURN(auto gids, neighbors.as<uint32_t>());
        mark(gids);
      } else {
        FARHOP_ASSIGN_OR_RETURN(auto gids, neighbors.as<uint64_t>());
        mark(gids);
      }
    }
    manifest_.haloNodes[static_cast<size_t>(k)] = found;
    return absl::OkStatus();
  }

  absl::Status removeTraces() const {
    std::error_code error;
    std::filesystem::remove_all(absl::StrCat(staged_.path(), "/", kAssignmentFolder), error);
    if (!error) std::filesystem::remove(absl::StrCat(staged_.path(), "/", kJournalFile), error);
    if (error) return errnoStatus(absl::StrCat("clearing ", staged_.path()), error.value());
    return absl::OkStatus();
  }

  const Dataset& dataset_;
  const StoreWriterOptions& options_;
  const StagedDirectory& staged_;
  StageJournal journal_;
  const WriterResources resources_;
  PartitionAssignment assignment_;
  Manifest manifest_;
  ArraySink sink_;  // after manifest_, into which it writes
  PartitionBook book_;
  std::vector<std::vector<uint64_t>> gids_;  // [node type][original id]
};

// All that decides about the bytes of a store, but the data set and the assignment.
std::string optionsKey(const StoreWriterOptions& options) {
  std::string key = absl::StrCat(kStoreFormatVersion, " ", options.addReverse, options.mergeParallel, " ",
                                 nodeOrderName(options.order), " ", options.method, " ", options.seed, " ");
  const CacheOptions& cache = options.cache;
  absl::StrAppend(&key, cache.fraction, " ", cachePolicyName(cache.policy), " ", cache.batch);
  for (int64_t fanout : cache.fanouts) absl::StrAppend(&key, ",", fanout);
  for (const std::string& feature : cache.features) absl::StrAppend(&key, ";", feature);
  return key;
}

std::string assignmentKey(const PartitionAssignment& assignment) {
  std::string key = absl::StrCat("given ", assignment.numPartitions);
  for (const std::vector<int32_t>& partitionOf : assignment.partitionOf) {
    absl::StrAppend(&key, " ", checksum64(std::as_bytes(std::span<const int32_t>(partitionOf))));
  }
  return key;
}

}  // namespace

absl::Status writeStore(const Dataset& dataset, const PartitionAssignment& assignment,
                        const StoreWriterOptions& options) {
  FARHOP_RETURN_IF_ERROR(checkDataset(dataset));
  FARHOP_RETURN_IF_ERROR(checkAssignment(dataset, assignment));
  FARHOP_RETURN_IF_ERROR(checkCacheOptions(dataset, options.cache));
  FARHOP_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::create(options.directory, options.force));
  FARHOP_ASSIGN_OR_RETURN(WriterResources resources, planResources(dataset, options, staged.path()));
  std::string key;
  if (options.resume) key = absl::StrCat(datasetKey(dataset), " ", optionsKey(options), " ", assignmentKey(assignment));
  FARHOP_ASSIGN_OR_RETURN(StageJournal journal, StageJournal::open(staged.path(), key));
  StoreWriter writer(dataset, options, staged, std::move(journal), std::move(resources));
  writer.takeAssignment(assignment);
  FARHOP_RETURN_IF_ERROR(writer.write());
  return staged.commit();
}

absl::Status partitionStore(const Dataset& dataset, const PartitionOptions& how, const StoreWriterOptions& options,
                            double* assignSeconds) {
  FARHOP_RETURN_IF_ERROR(checkDataset(dataset));
  FARHOP_RETURN_IF_ERROR(checkCacheOptions(dataset, options.cache));
  FARHOP_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::create(options.directory, options.force));
  FARHOP_ASSIGN_OR_RETURN(WriterResources resources, planResources(dataset, options, staged.path()));
  std::string key;
  if (options.resume) {
    key = absl::StrCat(datasetKey(dataset), " ", optionsKey(options), " ", partitionOptionsKey(how));
  }
  FARHOP_ASSIGN_OR_RETURN(StageJournal journal, StageJournal::open(staged.path(), key));
  if (options.progress && journal.stagesFound() > 0) {
    options.progress(absl::StrCat("going on after ", journal.stagesFound(), " stages of an earlier run"));
  }
  StoreWriter writer(dataset, options, staged, std::move(journal), std::move(resources));
  FARHOP_RETURN_IF_ERROR(writer.assign(how, assignSeconds));
  FARHOP_RETURN_IF_ERROR(writer.write());
  return staged.commit();
}

}  // namespace farhop::partition
