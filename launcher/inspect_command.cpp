#include "launcher/inspect_command.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "launcher/degree_figures.h"
#include "launcher/node_view.h"
#include "launcher/store_summary.h"
#include "launcher/text_table.h"
#include "partition/graph_store.h"

namespace farhop::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct InspectArguments {
  std::string store;
  bool verify = false;
  bool json = false;
  std::string node;
  uint64_t neighbors = 10;
  std::string svgFile;
};

struct VerifyResult {
  absl::Status status;
  std::vector<std::string> checks;
};

std::string featuresText(const std::vector<partition::FeatureSpec>& features) {
  std::string text;
  for (const partition::FeatureSpec& feature : features) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", feature.name, " ", dtypeName(feature.dtype));
    for (uint64_t dimension : feature.rowShape) absl::StrAppend(&text, " x ", dimension);
  }
  return text.empty() ? "-" : text;
}

std::string schemaTables(const partition::GraphStore& store) {
  const partition::Schema& schema = store.schema();
  std::vector<std::vector<std::string>> types = {{"node type", "nodes", "features"}};
  for (const partition::NodeType& type : schema.nodeTypes) {
    types.push_back({type.name, formatCount(type.count), featuresText(type.features)});
  }
  std::vector<std::vector<std::string>> relations = {
      {"relation", "edges", "reverse of", "times", "weights", "features"}};
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    const partition::Relation& relation = schema.relations[r];
    relations.push_back({schema.relationText(static_cast<int>(r)), formatCount(relation.count),
                         relation.reverseOf < 0 ? "-" : schema.relations[relation.reverseOf].name,
                         timesText(schema, static_cast<int>(r)),
                         relation.weightFeature.empty() ? "-" : relation.weightFeature,
                         featuresText(relation.features)});
  }
  std::string text = formatTable(types) + "\n" + formatTable(relations);
  if (store.splits().empty() && store.edgeSplits().empty()) return text;
  std::vector<std::vector<std::string>> splits = {{"split", "of", "seeds", "labels"}};
  for (const partition::SplitInfo& split : store.splits()) {
    splits.push_back({split.name, schema.nodeTypes[split.nodeType].name, formatCount(split.count), "-"});
  }
  for (const partition::EdgeSplitInfo& split : store.edgeSplits()) {
    splits.push_back({split.name, schema.relationText(split.relation), formatCount(split.count),
                      split.labels ? std::string(dtypeName(split.labels->dtype)) : "-"});
  }
  return text + "\n" + formatTable(splits);
}

struct Findings {
  StoreSummary summary;
  StoreDegrees degrees;
  const VerifyResult* verified = nullptr;  // null unless asked for
};

void printText(const partition::GraphStore& store, const Findings& findings) {
  const auto& [summary, degrees, verified] = findings;
  const partition::Manifest& manifest = store.manifest();
  std::cout << "store      " << store.directory() << "\n"
            << "format     version " << partition::kStoreFormatVersion << "\n"
            << "data set   " << (manifest.dataset.empty() ? "-" : manifest.dataset) << "\n";
  if (!manifest.task.empty() || manifest.numClasses > 0) {
    std::cout << "task       " << manifest.task << ", " << manifest.numClasses << " classes\n";
  }
  std::cout << "partitions " << store.numPartitions() << " by "
            << (manifest.method.empty() ? "-" : manifest.method) << ", seed " << manifest.seed << "\n"
            << "edge cut   " << formatCount(summary.cutEdges) << " of " << formatCount(summary.forwardEdges)
            << " (" << formatShare(summary.cutEdges, summary.forwardEdges) << ")\n";
  if (manifest.cache) std::cout << "cache      " << cacheText(store) << "\n";
  std::cout << "\n"
            << schemaTables(store) << "\n"
            << summaryTable(summary) << "balance    largest / mean: nodes "
            << formatFixed(imbalance(summary, &PartitionFigures::nodes), 3) << ", train seeds "
            << formatFixed(imbalance(summary, &PartitionFigures::trainSeeds), 3) << ", in-edges "
            << formatFixed(imbalance(summary, &PartitionFigures::edges), 3) << "\n\n"
            << degreeTables(store.schema(), degrees);
  if (verified != nullptr) {
    std::cout << "\n";
    for (const std::string& check : verified->checks) std::cout << "verify     " << check << "\n";
    std::cout << "verify     " << (verified->status.ok() ? "the store is sound" : "the store is NOT sound")
              << "\n";
  }
  std::cout << std::flush;
}

OrderedJson featuresJson(const std::vector<partition::FeatureSpec>& features) {
  OrderedJson list = OrderedJson::array();
  for (const partition::FeatureSpec& feature : features) {
    list.push_back({{"name", feature.name},
                    {"dtype", std::string(dtypeName(feature.dtype))},
                    {"row_shape", feature.rowShape}});
  }
  return list;
}

void printJson(const partition::GraphStore& store, const Findings& findings) {
  const auto& [summary, degrees, verified] = findings;
  const partition::Manifest& manifest = store.manifest();
  const partition::Schema& schema = store.schema();
  OrderedJson json = {{"store", store.directory()},
               {"format_version", partition::kStoreFormatVersion},
               {"dataset", manifest.dataset},
               {"task", manifest.task},
               {"num_classes", manifest.numClasses},
               {"method", manifest.method},
               {"seed", manifest.seed},
               {"parts", store.numPartitions()}};
  OrderedJson& types = json["node_types"] = OrderedJson::array();
  for (const partition::NodeType& type : schema.nodeTypes) {
    types.push_back({{"name", type.name}, {"nodes", type.count}, {"features", featuresJson(type.features)}});
  }
  OrderedJson& relations = json["relations"] = OrderedJson::array();
  for (size_t r = 0; r < schema.relations.size(); ++r) {
    OrderedJson relation = {{"name", schema.relationText(static_cast<int>(r))},
                     {"edges", schema.relations[r].count}};
    const int forward = schema.relations[r].reverseOf;
    if (forward >= 0) relation["reverse_of"] = schema.relationText(forward);
    if (schema.hasTimes(static_cast<int>(r))) relation["times"] = timesText(schema, static_cast<int>(r));
    if (schema.hasWeights(static_cast<int>(r))) relation["weights"] = schema.relations[r].weightFeature;
    relation["features"] = featuresJson(schema.relations[r].features);
    relations.push_back(std::move(relation));
  }
  OrderedJson& splits = json["splits"] = OrderedJson::array();
  for (const partition::SplitInfo& split : store.splits()) {
    splits.push_back(
        {{"name", split.name}, {"node_type", schema.nodeTypes[split.nodeType].name}, {"seeds", split.count}});
  }
  OrderedJson& edgeSplits = json["edge_splits"] = OrderedJson::array();
  for (const partition::EdgeSplitInfo& split : store.edgeSplits()) {
    edgeSplits.push_back({{"name", split.name},
                          {"relation", schema.relationText(split.relation)},
                          {"seeds", split.count},
                          {"labels", split.labels.has_value()}});
  }
  json.update(summaryJson(summary));
  json["degrees"] = degreesJson(schema, degrees);
  if (store.manifest().cache) json["cache"] = cacheJson(store);
  if (verified != nullptr) {
    json["verify"] = {{"ok", verified->status.ok()},
                      {"checks", verified->checks},
                      {"problems", std::string(verified->status.message())}};
  }
  std::cout << json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
}

absl::Status inspectNode(const partition::GraphStore& store, const InspectArguments& arguments) {
  FARHOP_ASSIGN_OR_RETURN(const NodeView view, viewNode(store, arguments.node, arguments.neighbors));
  if (arguments.json) {
    std::cout << nodeJson(view).dump(2, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
  } else {
    std::cout << nodeText(view) << std::flush;
  }
  return absl::OkStatus();
}

absl::Status runInspect(const InspectArguments& arguments) {
  FARHOP_ASSIGN_OR_RETURN(auto store, partition::GraphStore::open(arguments.store));
  if (!arguments.node.empty()) return inspectNode(*store, arguments);
  VerifyResult verified;
  if (arguments.verify) verified.status = store->verify(&verified.checks);
  Findings findings;
  findings.summary = summarizeStore(*store);
  findings.verified = arguments.verify ? &verified : nullptr;
  auto degrees = countDegrees(*store);
  // What verify() has found says more than the first file that cannot be opened.
  if (!degrees.ok()) return verified.status.ok() ? degrees.status() : verified.status;
  findings.degrees = *std::move(degrees);
  if (arguments.json) {
    printJson(*store, findings);
  } else {
    printText(*store, findings);
  }
  if (!arguments.svgFile.empty()) {
    FARHOP_RETURN_IF_ERROR(writeFileAtomically(arguments.svgFile, degreesSvg(store->schema(), findings.degrees)));
  }
  return verified.status;
}

}  // namespace

void addInspectCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect", "Print what a graph store holds, and check it");
  command->footer(
      "Examples:\n"
      "  farhop inspect store\n"
      "  farhop inspect store --verify\n"
      "  farhop inspect store --svg degrees.svg\n"
      "  farhop inspect store --node user:42");
  command->add_option("STORE", arguments->store, "Directory of the store")->required();
  CLI::Option* verify = command->add_flag("--verify", arguments->verify,
                                          "Check every checksum and every invariant; reads all of the store");
  CLI::Option* svg = command->add_option("--svg", arguments->svgFile, "Also draw the degree histograms into this file");
  CLI::Option* node = command->add_option("--node", arguments->node,
                                          "TYPE:ID, or ID where there is one node type: show this node alone, as samplers "
                                          "see it. Ids are the data set's");
  node->excludes(verify)->excludes(svg);
  command->add_option("--neighbors", arguments->neighbors, "With --node: neighbours to list per relation")
      ->needs(node)
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, exitCode] {
    const absl::Status status = runInspect(*arguments);
    *exitCode = status.ok() ? 0 : 1;
    if (!status.ok()) std::cerr << "farhop: " << status.message() << std::endl;
  });
}

}  // namespace farhop::launcher
