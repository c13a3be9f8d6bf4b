#include "launcher/degree_figures.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "launcher/text_table.h"
#include "partition/parallel.h"

namespace farhop::launcher {
namespace {

// Nodes of a type that one thread counts at a time.
constexpr uint64_t kChunkNodes = uint64_t{1} << 18;
constexpr size_t kBarColumns = 24;

// The degrees that the nodes of one type have in one relation and direction, by original id.
struct DegreeColumn {
  std::span<const uint32_t> degrees;
  DegreeFigures* figures;
};

struct ChunkFigures {
  std::vector<DegreeFigures> columns;
  uint64_t isolated = 0;
};

ChunkFigures countChunk(const std::vector<DegreeColumn>& columns, uint64_t begin, uint64_t end) {
  ChunkFigures chunk;
  chunk.columns.resize(columns.size());
  std::vector<bool> connected(end - begin, false);
  for (size_t c = 0; c < columns.size(); ++c) {
    for (uint64_t node = begin; node < end; ++node) {
      const uint32_t degree = columns[c].degrees[node];
      chunk.columns[c].add(node, degree);
      if (degree > 0) connected[node - begin] = true;
    }
  }
  chunk.isolated = static_cast<uint64_t>(std::count(connected.begin(), connected.end(), false));
  return chunk;
}

absl::StatusOr<uint64_t> countType(const std::vector<DegreeColumn>& columns, uint64_t nodes, int threads) {
  uint64_t isolated = 0;
  std::vector<ChunkFigures> prepared(static_cast<size_t>(threads));
  partition::OrderedWork work;
  work.prepare = [&](uint64_t item, int thread) {
    const uint64_t begin = item * kChunkNodes;
    prepared[static_cast<size_t>(thread)] = countChunk(columns, begin, std::min(nodes, begin + kChunkNodes));
    return absl::OkStatus();
  };
  work.finish = [&](uint64_t, int thread) {
    const ChunkFigures& chunk = prepared[static_cast<size_t>(thread)];
    for (size_t c = 0; c < columns.size(); ++c) columns[c].figures->merge(chunk.columns[c]);
    isolated += chunk.isolated;
    return absl::OkStatus();
  };
  FARHOP_RETURN_IF_ERROR(partition::runInOrder(threads, (nodes + kChunkNodes - 1) / kChunkNodes, work));
  return isolated;
}

std::string bar(uint64_t nodes, uint64_t most) {
  if (nodes == 0 || most == 0) return "";
  const double share = static_cast<double>(nodes) / static_cast<double>(most);
  return std::string(std::max<size_t>(1, static_cast<size_t>(share * kBarColumns + 0.5)), '#');
}

std::vector<std::string> figuresRow(const std::string& name, const char* direction, const DegreeFigures& figures) {
  return {name,
          direction,
          formatFixed(figures.mean(), 1),
          formatCount(figures.buckets[0]),
          formatCount(figures.largest),
          figures.largest == 0 ? "-" : std::to_string(figures.largestNode)};
}

std::string histogramTable(const std::string& relation, const RelationDegrees& degrees) {
  const size_t buckets = std::max(degrees.in.usedBuckets(), degrees.out.usedBuckets());
  const uint64_t mostIn = *std::max_element(degrees.in.buckets.begin(), degrees.in.buckets.end());
  const uint64_t mostOut = *std::max_element(degrees.out.buckets.begin(), degrees.out.buckets.end());
  std::vector<std::vector<std::string>> rows = {{"degree", "nodes, in", "", "nodes, out", ""}};
  for (size_t b = 0; b < buckets; ++b) {
    const uint64_t in = degrees.in.buckets[b], out = degrees.out.buckets[b];
    rows.push_back({degreeRangeText(b), formatCount(in), bar(in, mostIn), formatCount(out), bar(out, mostOut)});
  }
  return relation + "\n" + formatTable(rows);
}

nlohmann::ordered_json figuresJson(const DegreeFigures& figures) {
  nlohmann::ordered_json json = {{"mean", figures.mean()}, {"largest", figures.largest}};
  json["largest_node"] = nullptr;
  if (figures.largest > 0) json["largest_node"] = figures.largestNode;
  nlohmann::ordered_json& list = json["histogram"] = nlohmann::ordered_json::array();
  for (size_t b = 0; b < figures.usedBuckets(); ++b) {
    const auto [first, last] = degreeRange(b);
    list.push_back({{"from", first}, {"to", last}, {"nodes", figures.buckets[b]}});
  }
  return json;
}

}  // namespace

void DegreeFigures::add(uint64_t node, uint32_t degree) {
  ++buckets[static_cast<size_t>(std::bit_width(degree))];
  ++nodes;
  edges += degree;
  if (degree <= largest) return;
  largest = degree;
  largestNode = node;
}

void DegreeFigures::merge(const DegreeFigures& later) {
  for (size_t b = 0; b < kBuckets; ++b) buckets[b] += later.buckets[b];
  nodes += later.nodes;
  edges += later.edges;
  if (later.largest <= largest) return;
  largest = later.largest;
  largestNode = later.largestNode;
}

size_t DegreeFigures::usedBuckets() const {
  size_t used = kBuckets;
  while (used > 1 && buckets[used - 1] == 0) --used;
  return used;
}

std::pair<uint64_t, uint64_t> degreeRange(size_t bucket) {
  if (bucket == 0) return {0, 0};
  return {uint64_t{1} << (bucket - 1), (uint64_t{1} << bucket) - 1};
}

std::string degreeRangeText(size_t bucket) {
  const auto [first, last] = degreeRange(bucket);
  return first == last ? std::to_string(first) : absl::StrCat(first, "-", last);
}

absl::StatusOr<StoreDegrees> countDegrees(const partition::GraphStore& store, int threads) {
  const partition::Schema& schema = store.schema();
  if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  StoreDegrees result;
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    if (schema.relations[r].reverseOf < 0) result.relations.push_back({static_cast<int>(r), {}, {}});
  }
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    std::vector<DegreeColumn> columns;
    for (RelationDegrees& degrees : result.relations) {
      const partition::Relation& relation = schema.relations[static_cast<size_t>(degrees.relation)];
      if (relation.destination == static_cast<int>(t)) {
        FARHOP_ASSIGN_OR_RETURN(const auto in, store.inDegrees(degrees.relation));
        columns.push_back({in, &degrees.in});
      }
      if (relation.source == static_cast<int>(t)) {
        FARHOP_ASSIGN_OR_RETURN(const auto out, store.outDegrees(degrees.relation));
        columns.push_back({out, &degrees.out});
      }
    }
    FARHOP_ASSIGN_OR_RETURN(const uint64_t isolated, countType(columns, schema.nodeTypes[t].count, threads));
    result.isolated.push_back(isolated);
  }
  return result;
}

std::string degreeTables(const partition::Schema& schema, const StoreDegrees& degrees) {
  std::vector<std::vector<std::string>> rows = {
      {"degrees", "direction", "mean", "nodes without", "largest", "of node"}};
  for (const RelationDegrees& relation : degrees.relations) {
    const std::string name = schema.relationText(relation.relation);
    rows.push_back(figuresRow(name, "in", relation.in));
    rows.push_back(figuresRow(name, "out", relation.out));
  }
  std::string text = formatTable(rows);
  for (const RelationDegrees& relation : degrees.relations) {
    absl::StrAppend(&text, "\n", histogramTable(schema.relationText(relation.relation), relation));
  }
  std::vector<std::vector<std::string>> isolated = {{"isolated", "nodes", "of all"}};
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) {
    isolated.push_back({schema.nodeTypes[t].name, formatCount(degrees.isolated[t]),
                        formatShare(degrees.isolated[t], schema.nodeTypes[t].count)});
  }
  return text + "\n" + formatTable(isolated);
}

nlohmann::ordered_json degreesJson(const partition::Schema& schema, const StoreDegrees& degrees) {
  nlohmann::ordered_json json;
  nlohmann::ordered_json& relations = json["relations"] = nlohmann::ordered_json::array();
  for (const RelationDegrees& relation : degrees.relations) {
    relations.push_back({{"relation", schema.relationText(relation.relation)},
                         {"in", figuresJson(relation.in)},
                         {"out", figuresJson(relation.out)}});
  }
  nlohmann::ordered_json& isolated = json["isolated"] = nlohmann::ordered_json::object();
  for (size_t t = 0; t < schema.nodeTypes.size(); ++t) isolated[schema.nodeTypes[t].name] = degrees.isolated[t];
  return json;
}

}  // namespace farhop::launcher
