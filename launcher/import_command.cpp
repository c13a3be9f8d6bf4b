#include "launcher/import_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_info.h"
#include "importers/delimited.h"
#include "importers/import.h"
#include "launcher/step_progress.h"
#include "launcher/text_table.h"

namespace farhop::launcher {
namespace {

struct ImportArguments {
  importers::ImportOptions options;
  std::string kind = "auto";
  std::string delimiter;
  std::string heading = "auto";
  std::string ids = "auto";
  std::string weightColumn, timeColumn;
  std::vector<std::string> columns;
  std::vector<std::string> nodeCounts;
  std::vector<std::string> nodeFeatures, edgeFeatures;
  std::string train, validation, test, labels;
};

// "A=B" at its last equals sign but one that follows a slash; `left` is empty where there is none.
void splitAtEquals(const std::string& text, std::string* left, std::string* right) {
  const size_t equals = text.find('=');
  *left = equals == std::string::npos ? "" : text.substr(0, equals);
  *right = equals == std::string::npos ? text : text.substr(equals + 1);
}

// COLUMN[:FEATURE[:DTYPE]]
absl::StatusOr<importers::EdgeColumn> parseColumn(const std::string& text) {
  importers::EdgeColumn column;
  const size_t first = text.find(':');
  column.column = text.substr(0, first);
  column.feature = column.column;
  if (first == std::string::npos) return column;
  const size_t second = text.find(':', first + 1);
  column.feature = text.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  if (second == std::string::npos) return column;
  FARHOP_ASSIGN_OR_RETURN(column.dtype, dtypeFromName(text.substr(second + 1)));
  for (const DType known : {DType::kInt32, DType::kInt64, DType::kFloat32, DType::kFloat64}) {
    if (column.dtype == known) return column;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--column ", text, ": columns become int32, int64, float32 or float64"));
}

absl::Status addColumns(const ImportArguments& arguments, importers::EdgeListOptions* edges) {
  if (!arguments.weightColumn.empty()) {
    edges->columns.push_back({arguments.weightColumn, "weight", DType::kFloat32, true});
  }
  if (!arguments.timeColumn.empty()) edges->columns.push_back({arguments.timeColumn, "time", DType::kInt64, false});
  for (const std::string& text : arguments.columns) {
    FARHOP_ASSIGN_OR_RETURN(importers::EdgeColumn column, parseColumn(text));
    edges->columns.push_back(std::move(column));
  }
  return absl::OkStatus();
}

// [TYPE:]NAME=PATH
absl::StatusOr<importers::AttachedArray> parseFeature(const std::string& text) {
  importers::AttachedArray array;
  splitAtEquals(text, &array.name, &array.path);
  if (array.name.empty()) return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not of the form [TYPE:]NAME=PATH"));
  const size_t colon = array.name.rfind(':');
  if (colon == std::string::npos) return array;
  array.type = array.name.substr(0, colon);
  array.name = array.name.substr(colon + 1);
  return array;
}

absl::Status addArrays(const ImportArguments& arguments, importers::ImportOptions* options) {
  for (const std::string& text : arguments.nodeFeatures) {
    FARHOP_ASSIGN_OR_RETURN(importers::AttachedArray array, parseFeature(text));
    options->nodeFeatures.push_back(std::move(array));
  }
  for (const std::string& text : arguments.edgeFeatures) {
    FARHOP_ASSIGN_OR_RETURN(importers::AttachedArray array, parseFeature(text));
    options->edgeFeatures.push_back(std::move(array));
  }
  const std::pair<const char*, const std::string*> splits[] = {
      {"train", &arguments.train}, {"validation", &arguments.validation}, {"test", &arguments.test}};
  for (const auto& [split, text] : splits) {
    if (text->empty()) continue;
    importers::AttachedArray array;
    splitAtEquals(*text, &array.type, &array.path);
    array.name = split;
    options->seeds.push_back(std::move(array));
  }
  if (!arguments.labels.empty()) {
    options->labels.emplace();
    splitAtEquals(arguments.labels, &options->labels->type, &options->labels->path);
  }
  return absl::OkStatus();
}

absl::Status readOptions(const ImportArguments& arguments, importers::ImportOptions* options) {
  FARHOP_ASSIGN_OR_RETURN(options->kind, importers::parseSourceKind(arguments.kind));
  importers::EdgeListOptions& edges = options->edges;
  if (!arguments.delimiter.empty()) {
    FARHOP_ASSIGN_OR_RETURN(edges.delimiter, importers::parseDelimiter(arguments.delimiter));
  }
  using importers::Heading;
  using importers::IdKind;
  edges.heading = arguments.heading == "yes" ? Heading::kYes : arguments.heading == "no" ? Heading::kNo : Heading::kAuto;
  edges.ids = arguments.ids == "integer" ? IdKind::kInteger : arguments.ids == "string" ? IdKind::kString : IdKind::kAuto;
  FARHOP_RETURN_IF_ERROR(addColumns(arguments, &edges));
  for (const std::string& text : arguments.nodeCounts) {
    std::string type, count;
    splitAtEquals(text, &type, &count);
    if (type.empty()) type = "_N";
    if (!importers::parseNumber(count, &edges.nodeCounts[type]) || edges.nodeCounts[type] >> 48 != 0) {
      return absl::InvalidArgumentError(absl::StrCat("--nodes ", text, ": '", count, "' is no number of nodes"));
    }
  }
  return addArrays(arguments, options);
}

void printResult(const ImportArguments& arguments, const importers::DatasetDescription& description, double seconds) {
  std::cout << "data set     " << arguments.options.directory << "\n";
  std::vector<std::vector<std::string>> nodes = {{"node type", "nodes", "partition", "ids"}};
  for (const importers::DatasetDescription::Nodes& type : description.nodes) {
    nodes.push_back({type.type, formatCount(type.count), type.partitionPath.empty() ? "-" : type.partitionPath,
                     type.dictionaryPath.empty() ? "-" : type.dictionaryPath});
  }
  std::cout << "relations   ";
  for (const importers::DatasetDescription::Edges& edges : description.edges) std::cout << " " << edges.type;
  std::cout << "\nfeatures    ";
  for (const importers::DatasetDescription::Feature& feature : description.features) {
    std::cout << " " << feature.type << (feature.type.empty() ? "" : ".") << feature.name;
  }
  std::cout << (description.features.empty() ? " none" : "") << "\ntasks       ";
  for (const importers::DatasetDescription::Task& task : description.tasks) std::cout << " " << task.name;
  std::cout << (description.tasks.empty() ? " none" : "") << "\ntime         " << formatFixed(seconds, 2)
            << " s\npeak memory  " << formatBytes(peakResidentBytes()) << "\n\n"
            << formatTable(nodes) << std::flush;
  if (description.numPartitions > 0) {
    std::cout << "\nThe assignment to " << description.numPartitions << " partitions is kept: farhop partition "
              << arguments.options.directory << " --method given --parts " << description.numPartitions << " uses it.\n"
              << std::flush;
  }
}

absl::Status runImport(const ImportArguments& arguments) {
  importers::ImportOptions options = arguments.options;
  FARHOP_RETURN_IF_ERROR(readOptions(arguments, &options));
  const auto begin = std::chrono::steady_clock::now();
  StepProgress progress("farhop import");
  options.progress = [&](const std::string& step, uint64_t done, uint64_t total) { progress.report(step, done, total); };
  auto description = importers::importDataset(options);
  progress.finish();
  FARHOP_RETURN_IF_ERROR(description.status());
  printResult(arguments, *description,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return absl::OkStatus();
}

void addEdgeListOptions(CLI::App* command, ImportArguments* arguments) {
  const std::string group = "Edge lists";
  importers::EdgeListOptions& edges = arguments->options.edges;
  command->add_option("--delimiter", arguments->delimiter,
                      "comma, tab, semicolon, blank or a character; told by the first line if not given")->group(group);
  command->add_option("--comments", edges.comments, "Lines that begin with one of these characters are skipped")
      ->capture_default_str()->group(group);
  command->add_option("--heading", arguments->heading, "Whether the first line names the columns")
      ->check(CLI::IsMember({"auto", "yes", "no"}))->capture_default_str()->group(group);
  command->add_option("--ids", arguments->ids, "What node ids are; strings get numbers, and a dictionary is written")
      ->check(CLI::IsMember({"auto", "integer", "string"}))->capture_default_str()->group(group);
  command->add_flag("--renumber", edges.renumber, "Number integer ids densely, too, and write a dictionary")->group(group);
  command->add_option("--source", edges.sourceColumn, "Column of the sources: a name or a number from 0")
      ->capture_default_str()->group(group);
  command->add_option("--destination", edges.destinationColumn, "Column of the destinations")
      ->capture_default_str()->group(group);
  command->add_option("--weight", arguments->weightColumn, "Column that becomes the edge feature 'weight' (float32)")->group(group);
  command->add_option("--time", arguments->timeColumn, "Column that becomes the edge feature 'time' (int64)")->group(group);
  command->add_option("--column", arguments->columns,
                      "COLUMN[:FEATURE[:DTYPE]]: another column that becomes an edge feature (float32 if not said)")->group(group);
  command->add_option("--nodes", arguments->nodeCounts, "[TYPE=]COUNT: number of nodes, where there are more than edges name")
      ->group(group);
  command->add_option("--node-feature", arguments->nodeFeatures, "[TYPE:]NAME=PATH: a .npy with a row per node")->group(group);
  command->add_option("--edge-feature", arguments->edgeFeatures, "[RELATION:]NAME=PATH: a .npy with a row per edge")->group(group);
  command->add_option("--train", arguments->train, "[TYPE=]PATH: a .npy of node ids, or a mask")->group(group);
  command->add_option("--validation", arguments->validation, "Likewise")->group(group);
  command->add_option("--test", arguments->test, "Likewise")->group(group);
  command->add_option("--labels", arguments->labels, "[TYPE=]PATH: a .npy with a label per node")->group(group);
}

}  // namespace

void addImportCommand(CLI::App& app, int* exitCode) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command = app.add_subcommand("import", "Bring a graph from another format to a data set directory");
  command->footer(
      "Examples:\n"
      "  farhop import soc-LiveJournal1.txt.gz --out raw\n"
      "  farhop import ratings.csv --out raw --source user --destination item --weight rating --time timestamp\n"
      "  farhop import user:likes:item=likes.tsv.zst item:like:item=alike.npy --out raw --nodes user=1000000\n"
      "  farhop import edges.npy --out raw --node-feature x=x.npy --train train.npy --labels y.npy\n"
      "  farhop import dataset/ogbn_arxiv --out raw          (OGB)\n"
      "  farhop import partitions/ --out raw                 (DGL, GraphLearn-for-PyTorch or PyG; the assignment is kept)");
  command->add_option("SOURCE", arguments->options.sources,
                      "A directory or file; of edge lists one or several, each PATH or source:relation:destination=PATH")
      ->required();
  command->add_option("--out", arguments->options.directory, "Directory of the data set to write")->required();
  command->add_option("--from", arguments->kind, "What the source is; told by what is there if not given")
      ->check(CLI::IsMember({"auto", "edges", "graphbolt", "ogb", "dgl", "graphlearn", "pyg"}))
      ->capture_default_str();
  command->add_option("--name", arguments->options.name, "Name of the data set; the source's if not given");
  command->add_flag("--force", arguments->options.force, "Replace a data set that farhop import or export has written");
  arguments->options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command->add_option("--threads", arguments->options.threads, "Threads that read text")
      ->check(CLI::Range(1, 256))->capture_default_str();
  addEdgeListOptions(command, arguments.get());
  command->callback([arguments, exitCode] {
    const absl::Status status = runImport(*arguments);
    *exitCode = status.ok() ? 0 : 1;
    if (!status.ok()) std::cerr << "farhop: " << status.message() << std::endl;
  });
}

}  // namespace farhop::launcher
