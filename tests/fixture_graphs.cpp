#include "tests/fixture_graphs.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/random.h"
#include "partition/store_writer.h"

namespace farhop::testing {
namespace {

using partition::Dataset;
using partition::EdgeList;
using partition::FeatureColumn;
using partition::FeatureSpec;
using partition::IdColumn;

void check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename T>
FeatureColumn columnOf(std::vector<T> values, uint64_t rows) {
  auto shared = std::make_shared<const std::vector<T>>(std::move(values));
  return {reinterpret_cast<const std::byte*>(shared->data()), rows, shared, "fixture"};
}

uint64_t connectedNodes(uint64_t nodes) {
  return std::max<uint64_t>(1, nodes - nodes / 10);
}

// Square of a uniform number: low ids get most of the edges.
uint64_t skewed(KeyedRandom& random, uint64_t bound) {
  const double u = random.uniform();
  return std::min(bound - 1, static_cast<uint64_t>(u * u * static_cast<double>(bound)));
}

void addRelation(const FixtureOptions& options, const std::string& name, int source, int destination,
                 uint64_t edges, Dataset* dataset) {
  const int index = static_cast<int>(dataset->schema.relations.size());
  KeyedRandom random(
      combineKey(combineKey(options.seed, hashName(name)), static_cast<uint64_t>(Purpose::kTest)));
  const uint64_t sources = connectedNodes(dataset->schema.nodeTypes[source].count);
  const uint64_t destinations = connectedNodes(dataset->schema.nodeTypes[destination].count);
  std::vector<uint64_t> from, to;
  for (uint64_t e = 0; e < edges; ++e) {
    const uint64_t kind = random.below(100);
    if (kind < 5 && e > 0) {
      const uint64_t earlier = random.below(e);
      from.push_back(from[earlier]);
      to.push_back(to[earlier]);
    } else if (kind < 7 && source == destination) {
      from.push_back(random.below(sources));
      to.push_back(from.back());
    } else {
      from.push_back(random.below(sources));
      to.push_back(skewed(random, destinations));
    }
  }
  partition::Relation relation{name, source, destination, edges, -1, {}};
  std::vector<FeatureColumn> features;
  if (options.edgeFeatures) {
    std::vector<float> weights(edges);
    for (uint64_t e = 0; e < edges; ++e) weights[e] = fixtureEdgeFeature(index, e);
    relation.features.push_back({"w", DType::kFloat32, {}});
    features.push_back(columnOf(std::move(weights), edges));
    if (options.declaredWeights) relation.weightFeature = "w";
  }
  if (options.edgeTimes) {
    std::vector<int64_t> times(edges);
    for (uint64_t e = 0; e < edges; ++e) times[e] = fixtureEdgeTime(index, e);
    relation.features.push_back({"t", DType::kInt64, {}});
    features.push_back(columnOf(std::move(times), edges));
    relation.timeFeature = "t";
  }
  dataset->schema.relations.push_back(std::move(relation));
  dataset->edges.push_back({IdColumn(std::move(from)), IdColumn(std::move(to)), "fixture"});
  dataset->edgeFeatures.push_back(std::move(features));
}

void addNodeType(const FixtureOptions& options, const std::string& name, uint64_t nodes, Dataset* dataset) {
  const int index = static_cast<int>(dataset->schema.nodeTypes.size());
  partition::NodeType type{name, nodes, {}};
  std::vector<FeatureColumn> features;
  if (options.featureDim > 0) {
    std::vector<float> x;
    for (uint64_t id = 0; id < nodes; ++id) {
      for (uint64_t c = 0; c < options.featureDim; ++c) x.push_back(fixtureFeature(index, id, c));
    }
    type.features.push_back({"x", DType::kFloat32, {options.featureDim}});
    features.push_back(columnOf(std::move(x), nodes));
  }
  std::vector<int64_t> labels(nodes);
  for (uint64_t id = 0; id < nodes; ++id) labels[id] = fixtureLabel(index, id);
  type.features.push_back({partition::kLabelFeature, DType::kInt64, {}});
  features.push_back(columnOf(std::move(labels), nodes));
  if (options.nodeTimes) {
    std::vector<int32_t> times(nodes);
    for (uint64_t id = 0; id < nodes; ++id) times[id] = fixtureNodeTime(index, id);
    type.features.push_back({"nt", DType::kInt32, {}});
    features.push_back(columnOf(std::move(times), nodes));
    type.timeFeature = "nt";
  }
  dataset->schema.nodeTypes.push_back(std::move(type));
  dataset->nodeFeatures.push_back(std::move(features));
}

void addSplits(const FixtureOptions& options, Dataset* dataset) {
  dataset->splits = {{"train", 0, {}}, {"validation", 0, {}}, {"test", 0, {}}};
  for (uint64_t id = 0; id < options.nodes; ++id) {
    const uint64_t quarter = mix64(combineKey(options.seed + 77, id)) % 4;
    dataset->splits[quarter < 2 ? 0 : quarter - 1].ids.push_back(id);
  }
}

// As FixtureOptions::edgeSplits says.
void addEdgeSplits(const FixtureOptions& options, Dataset* dataset) {
  const EdgeList& edges = dataset->edges[0];
  const partition::Relation& relation = dataset->schema.relations[0];
  KeyedRandom random(combineKey(options.seed, hashName("edge splits")));
  for (uint64_t fifth = 0; fifth < 3; ++fifth) {
    const bool train = fifth == 0;
    std::vector<uint64_t> source, destination;
    std::vector<int64_t> labels;
    for (uint64_t e = fifth; e < edges.source.size(); e += 5) {
      source.push_back(edges.source[e]);
      destination.push_back(edges.destination[e]);
      labels.push_back(1);
    }
    const uint64_t real = source.size();
    for (uint64_t i = 0; i < real; ++i) {
      if (train) {
        const uint64_t other = random.below(i + 1);
        std::swap(source[i], source[other]);
        std::swap(destination[i], destination[other]);
      } else {
        source.push_back(random.below(dataset->schema.nodeTypes[relation.source].count));
        destination.push_back(random.below(dataset->schema.nodeTypes[relation.destination].count));
        labels.push_back(0);
      }
    }
    if (train && real > 0) {
      source.push_back(source[0]);
      destination.push_back(destination[0]);
    }
    partition::EdgeSplitSeeds split;
    split.name = train ? "train" : fifth == 1 ? "validation" : "test";
    if (!train) {
      split.labelSpec = FeatureSpec{partition::kLabelsName, DType::kInt64, {}};
      split.labels = columnOf(std::move(labels), source.size());
    }
    split.source = IdColumn(std::move(source));
    split.destination = IdColumn(std::move(destination));
    split.origin = "fixture";
    dataset->edgeSplits.push_back(std::move(split));
  }
}

template <typename T>
void saveNpy(const std::string& path, const std::vector<T>& values, std::vector<uint64_t> shape) {
  check(writeNpy<T>(path, std::span<const T>(values), std::move(shape)).status());
}

// Writes a feature's rows as they are; returns nothing but the file.
void saveFeature(const std::string& path, const FeatureSpec& spec, const FeatureColumn& column) {
  std::vector<uint64_t> shape = {column.rows};
  shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
  auto writer = NpyWriter::create(path, spec.dtype, shape);
  check(writer.status());
  check(writer->write(column.data, column.rows * spec.rowBytes()));
  check(writer->commit());
}

void saveEdges(const Dataset& dataset, size_t relation, const std::string& directory, std::ofstream& yaml) {
  const EdgeList& edges = dataset.edges[relation];
  const bool csv = relation % 2 == 1;
  const std::string file = absl::StrCat("edges_", relation, csv ? ".csv" : ".npy");
  if (csv) {
    std::ofstream out(directory + "/" + file);
    for (uint64_t e = 0; e < edges.source.size(); ++e)
      out << edges.source[e] << "," << edges.destination[e] << "\n";
  } else {
    std::vector<int64_t> both;
    for (const IdColumn* column : {&edges.source, &edges.destination}) {
      for (uint64_t e = 0; e < column->size(); ++e) both.push_back(static_cast<int64_t>((*column)[e]));
    }
    saveNpy(directory + "/" + file, both, {2, edges.source.size()});
  }
  yaml << "  - type: \"" << dataset.schema.relationText(static_cast<int>(relation)) << "\"\n"
       << "    format: " << (csv ? "csv" : "numpy") << "\n    path: " << file << "\n";
}

// The splits' sets, by the name of the split.
using SetTexts = std::map<std::string, std::string>;

void saveSplits(const Dataset& dataset, const std::string& directory, SetTexts* sets) {
  for (const partition::SplitSeeds& split : dataset.splits) {
    const std::string file = split.name + ".npy";
    saveNpy(directory + "/" + file, std::vector<int64_t>(split.ids.begin(), split.ids.end()),
            {split.ids.size()});
    (*sets)[split.name] += absl::StrCat("  - type: ", dataset.schema.nodeTypes[split.nodeType].name,
                                        "\n    data:\n    - name: seeds\n      format: numpy\n      path: ", file, "\n");
  }
}

void saveEdgeSplits(const Dataset& dataset, const std::string& directory, SetTexts* sets) {
  for (const partition::EdgeSplitSeeds& split : dataset.edgeSplits) {
    const std::string stem = absl::StrCat(split.name, "_edges_", split.relation);
    std::vector<int32_t> ends;
    for (uint64_t i = 0; i < split.source.size(); ++i) {
      ends.push_back(static_cast<int32_t>(split.source[i]));
      ends.push_back(static_cast<int32_t>(split.destination[i]));
    }
    saveNpy(directory + "/" + stem + ".npy", ends, {split.source.size(), 2});
    std::string& text = (*sets)[split.name];
    absl::StrAppend(&text, "  - type: \"", dataset.schema.relationText(split.relation),
                    "\"\n    data:\n    - name: seeds\n      format: numpy\n      path: ", stem, ".npy\n");
    if (!split.labelSpec) continue;
    saveFeature(directory + "/" + stem + "_labels.npy", *split.labelSpec, split.labels);
    absl::StrAppend(&text, "    - name: labels\n      format: numpy\n      path: ", stem, "_labels.npy\n");
  }
}

void saveTask(const Dataset& dataset, const std::string& directory, std::ofstream& yaml) {
  yaml << "tasks:\n- name: " << dataset.task << "\n  num_classes: " << dataset.numClasses << "\n";
  SetTexts sets;
  saveSplits(dataset, directory, &sets);
  saveEdgeSplits(dataset, directory, &sets);
  for (const auto& [name, text] : sets) yaml << "  " << name << "_set:\n" << text;
}

}  // namespace

float fixtureFeature(int nodeType, uint64_t originalId, uint64_t column) {
  return static_cast<float>(nodeType * 1000) + static_cast<float>(originalId) +
         static_cast<float>(column) / 16;
}

int64_t fixtureLabel(int nodeType, uint64_t originalId) {
  return static_cast<int64_t>((originalId * 3 + static_cast<uint64_t>(nodeType)) % kFixtureClasses);
}

float fixtureEdgeFeature(int relation, uint64_t edgeId) {
  return static_cast<float>(relation) * 0.25F + static_cast<float>(edgeId);
}

int64_t fixtureEdgeTime(int relation, uint64_t edgeId) {
  return static_cast<int64_t>(mix64(combineKey(static_cast<uint64_t>(relation) + 901, edgeId)) % 40) - 5;
}

int32_t fixtureNodeTime(int nodeType, uint64_t originalId) {
  return static_cast<int32_t>(mix64(combineKey(static_cast<uint64_t>(nodeType) + 511, originalId)) % 30) - 5;
}

int64_t fixtureVisibleTime(const FixtureOptions& options, int relation, uint64_t edgeId, int sourceType,
                           uint64_t source) {
  if (!options.nodeTimes) return fixtureEdgeTime(relation, edgeId);
  const int64_t nodeTime = fixtureNodeTime(sourceType, source);
  return options.edgeTimes ? std::max(nodeTime, fixtureEdgeTime(relation, edgeId)) : nodeTime;
}

Dataset makeFixtureDataset(const FixtureOptions& options) {
  Dataset dataset;
  dataset.name = options.heterogeneous ? "fixture-heterogeneous" : "fixture";
  dataset.task = "classify";
  dataset.numClasses = kFixtureClasses;
  if (options.heterogeneous) {
    addNodeType(options, "user", options.nodes, &dataset);
    addNodeType(options, "item", options.nodes / 2 + 1, &dataset);
    addRelation(options, "follows", 0, 0, options.edges, &dataset);
    addRelation(options, "likes", 0, 1, options.edges, &dataset);
    addRelation(options, "similar", 1, 1, options.edges / 2, &dataset);
  } else {
    addNodeType(options, partition::kHomogeneousNodeType, options.nodes, &dataset);
    addRelation(options, partition::kHomogeneousRelation, 0, 0, options.edges, &dataset);
  }
  addSplits(options, &dataset);
  if (options.edgeSplits) addEdgeSplits(options, &dataset);
  return dataset;
}

void writeRawDataset(const Dataset& dataset, const std::string& directory) {
  check(makeDirectories(directory));
  std::ofstream yaml(directory + "/metadata.yaml");
  yaml << "dataset_name: " << dataset.name << "\ngraph:\n  nodes:\n";
  for (const partition::NodeType& type : dataset.schema.nodeTypes) {
    yaml << "  - type: " << type.name << "\n    num: " << type.count << "\n";
  }
  yaml << "  edges:\n";
  for (size_t r = 0; r < dataset.edges.size(); ++r) saveEdges(dataset, r, directory, yaml);
  yaml << "feature_data:\n";
  auto feature = [&](const std::string& domain, const std::string& type, const std::string& file,
                     const FeatureSpec& spec, const FeatureColumn& column) {
    saveFeature(directory + "/" + file, spec, column);
    yaml << "- domain: " << domain << "\n  type: \"" << type << "\"\n  name: " << spec.name
         << "\n  format: numpy\n  in_memory: false\n  path: " << file << "\n";
  };
  for (size_t t = 0; t < dataset.nodeFeatures.size(); ++t) {
    const partition::NodeType& type = dataset.schema.nodeTypes[t];
    for (size_t f = 0; f < type.features.size(); ++f) {
      feature("node", type.name, absl::StrCat("node_", t, "_", f, ".npy"), type.features[f],
              dataset.nodeFeatures[t][f]);
    }
  }
  for (size_t r = 0; r < dataset.edgeFeatures.size(); ++r) {
    const partition::Relation& relation = dataset.schema.relations[r];
    for (size_t f = 0; f < relation.features.size(); ++f) {
      feature("edge", dataset.schema.relationText(static_cast<int>(r)),
              absl::StrCat("edge_", r, "_", f, ".npy"), relation.features[f], dataset.edgeFeatures[r][f]);
    }
  }
  saveTask(dataset, directory, yaml);
  if (!yaml.flush()) throw std::runtime_error("writing metadata.yaml in " + directory);
}

std::string writeFixtureStore(const FixtureOptions& options, int parts, const std::string& directory) {
  const Dataset dataset = makeFixtureDataset(options);
  partition::PartitionOptions how;
  how.parts = parts;
  how.method = options.method;
  how.seed = options.seed;
  auto assignment = partition::assignPartitions(dataset, how);
  check(assignment.status());
  partition::StoreWriterOptions writer;
  writer.directory = directory;
  writer.addReverse = options.addReverse;
  writer.method = std::string(partition::partitionMethodName(options.method));
  writer.seed = options.seed;
  writer.cache = options.cache;
  check(partition::writeStore(dataset, *assignment, writer));
  return directory;
}

}  // namespace farhop::testing
