#include "importers/edge_list.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "importers/array_view.h"
#include "importers/delimited.h"
#include "importers/growing_npy.h"
#include "importers/id_dictionary.h"
#include "importers/text_blocks.h"

namespace farhop::importers {
namespace {

// What metadata.yaml counts at most.
constexpr uint64_t kMaxNodes = uint64_t{1} << 48;
constexpr int kSkipped = -1, kSourceEnd = -2, kDestinationEnd = -3;

// What one file's parser needs to know; read-only while it runs.
struct ParsePlan {
  std::string path;
  char delimiter = 0;
  std::string comments;
  uint64_t headingLine = 0;  // 0: there is none
  bool stringIds = false;
  bool sourceFirst = true;
  std::vector<int> roles;  // by column: kSkipped, kSourceEnd, kDestinationEnd, or an index into `columns`
  std::vector<EdgeColumn> columns;
  // Ids must be below these.
  uint64_t sourceLimit = kMaxNodes;
  uint64_t destinationLimit = kMaxNodes;
  // What to say of an id at or above the limit.
  std::string sourceHint, destinationHint;
};

// The edges of one block.
struct EdgeBlock {
  std::shared_ptr<const std::string> text;  // what `names` point into
  std::vector<uint64_t> ends;               // source, destination, source, ...: integer ids
  std::vector<absl::string_view> names;     // likewise: string ids
  std::vector<std::string> columns;         // the values, back to back
};

class BlockParser {
 public:
  BlockParser(const ParsePlan& plan, TextBlock block)
      : plan_(plan), text_(std::make_shared<const std::string>(std::move(block.text))), firstLine_(block.firstLine) {}

  absl::StatusOr<EdgeBlock> parse() {
    edges_.columns.resize(plan_.columns.size());
    if (plan_.stringIds) {
      edges_.text = text_;
    } else {
      edges_.ends.reserve(text_->size() / 8);
    }
    FARHOP_RETURN_IF_ERROR(eachLine(*text_, firstLine_, plan_.comments, [&](absl::string_view line, uint64_t number) {
      return number == plan_.headingLine ? absl::OkStatus() : parseLine(line, number);
    }));
    return std::move(edges_);
  }

 private:
  absl::Status parseLine(absl::string_view line, uint64_t number) {
    FieldReader reader(line, plan_.delimiter);
    absl::string_view field, ends[2];
    for (size_t index = 0; index < plan_.roles.size(); ++index) {
      if (!reader.next(&field)) {
        return absl::InvalidArgumentError(absl::StrCat(at(number), ": the line is too short: '", shown(line), "' has ",
                                                       index, " fields, at least ", plan_.roles.size(),
                                                       " are needed (delimiter: ", delimiterName(plan_.delimiter), ")"));
      }
      const int role = plan_.roles[index];
      if (role == kSkipped) continue;
      if (role == kSourceEnd || role == kDestinationEnd) {
        ends[role == kDestinationEnd] = field;
      } else {
        FARHOP_RETURN_IF_ERROR(parseColumn(static_cast<size_t>(role), field, number));
      }
    }
    if (!plan_.stringIds) {
      FARHOP_RETURN_IF_ERROR(parseEnd(ends[0], plan_.sourceLimit, plan_.sourceHint, number));
      return parseEnd(ends[1], plan_.destinationLimit, plan_.destinationHint, number);
    }
    for (const absl::string_view end : ends) {
      if (end.empty()) return absl::InvalidArgumentError(absl::StrCat(at(number), ": a node id is empty"));
      edges_.names.push_back(end);
    }
    return absl::OkStatus();
  }

  absl::Status parseEnd(absl::string_view field, uint64_t limit, const std::string& hint, uint64_t number) {
    uint64_t id = 0;
    for (const char c : field) {
      const unsigned digit = static_cast<unsigned char>(c) - static_cast<unsigned>('0');
      if (digit > 9 || id >= kMaxNodes) return badEnd(field, number);
      id = id * 10 + digit;
    }
    if (field.empty()) return badEnd(field, number);
    if (id >= limit) return absl::OutOfRangeError(absl::StrCat(at(number), ": node id ", id, " is out of range: ", hint));
    edges_.ends.push_back(id);
    return absl::OkStatus();
  }
  absl::Status badEnd(absl::string_view field, uint64_t number) {
    int64_t value = 0;
    if (parseNumber(field, &value) && value < 0) {
      return absl::OutOfRangeError(absl::StrCat(at(number), ": node id ", value, " is negative"));
    }
    const bool digits = !field.empty() && field.find_first_not_of("0123456789") == absl::string_view::npos;
    if (digits) {
      return absl::OutOfRangeError(
          absl::StrCat(at(number), ": node id ", shown(field), " is too large; --ids string takes any"));
    }
    return absl::InvalidArgumentError(absl::StrCat(at(number), ": '", shown(field),
                                                   "' is no integer node id; --ids string reads ids that are text"));
  }

  absl::Status parseColumn(size_t index, absl::string_view field, uint64_t number) {
    const EdgeColumn& column = plan_.columns[index];
    std::string& values = edges_.columns[index];
    if (!appendNumber(field, column.dtype, &values)) {
      return absl::InvalidArgumentError(absl::StrCat(at(number), ": '", shown(field), "' is no ",
                                                     dtypeName(column.dtype), " (column '", column.column, "')"));
    }
    if (!column.isWeight) return absl::OkStatus();
    double weight = 0;
    if (column.dtype == DType::kFloat64) {
      std::memcpy(&weight, values.data() + values.size() - sizeof(double), sizeof(double));
    } else {
      float narrow = 0;
      std::memcpy(&narrow, values.data() + values.size() - sizeof(float), sizeof(float));
      weight = narrow;
    }
    if (std::isfinite(weight) && weight >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(at(number), ": weight '", shown(field),
                                                   "' must be finite and not negative (column '", column.column, "')"));
  }

  std::string at(uint64_t number) const { return absl::StrCat(plan_.path, ":", number); }

  const ParsePlan& plan_;
  std::shared_ptr<const std::string> text_;
  uint64_t firstLine_;
  EdgeBlock edges_;
};

absl::StatusOr<bool> beginsAsNpy(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, ByteSource::open(path));
  char first[6] = {};
  FARHOP_ASSIGN_OR_RETURN(const size_t n, source->read(first, sizeof(first)));
  return n == sizeof(first) && std::memcmp(first, "\x93NUMPY", sizeof(first)) == 0;
}

// What is known of a node type while files are read.
struct TypeIds {
  StringDictionary strings;
  IntegerDictionary integers;
  uint64_t bound = 0;  // 1 more than the largest id, without dictionaries
  bool text = false;
};

class EdgeListImporter {
 public:
  EdgeListImporter(const EdgeListOptions& options, const ProgressReport& progress, DatasetOutput* output)
      : options_(options), progress_(progress), output_(*output) {}

  absl::Status run(const std::vector<EdgeListFile>& files) {
    for (const EdgeListFile& file : files) FARHOP_RETURN_IF_ERROR(importFile(file));
    for (const std::string& type : order_) FARHOP_RETURN_IF_ERROR(finishType(type));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<ParsePlan> planFor(const EdgeListFile& file, const EdgeListLayout& layout) {
    ParsePlan plan;
    plan.path = file.path;
    plan.delimiter = layout.delimiter;
    plan.comments = options_.comments;
    plan.stringIds = layout.ids == IdKind::kString;
    plan.columns = options_.columns;
    size_t last = std::max(layout.source, layout.destination);
    for (const size_t column : layout.columns) last = std::max(last, column);
    plan.roles.assign(last + 1, kSkipped);
    if (layout.source == layout.destination) {
      return absl::InvalidArgumentError(absl::StrCat(file.path, ": sources and destinations are both column ", layout.source));
    }
    plan.roles[layout.source] = kSourceEnd;
    plan.roles[layout.destination] = kDestinationEnd;
    for (size_t i = 0; i < layout.columns.size(); ++i) {
      int& role = plan.roles[layout.columns[i]];
      if (role != kSkipped) {
        return absl::InvalidArgumentError(absl::StrCat(file.path, ": column '", options_.columns[i].column,
                                                       "' is used twice"));
      }
      role = static_cast<int>(i);
    }
    if (layout.heading) {
      FARHOP_ASSIGN_OR_RETURN(plan.headingLine, firstLine(file.path));
    }
    setLimit(file.sourceType, &plan.sourceLimit, &plan.sourceHint);
    setLimit(file.destinationType, &plan.destinationLimit, &plan.destinationHint);
    return plan;
  }

  // The number of the first line that is no comment.
  absl::StatusOr<uint64_t> firstLine(const std::string& path) {
    FARHOP_ASSIGN_OR_RETURN(TextBlocks blocks, TextBlocks::open(path));
    for (;;) {
      FARHOP_ASSIGN_OR_RETURN(std::optional<TextBlock> block, blocks.next());
      if (!block) return uint64_t{0};
      uint64_t found = 0;
      FARHOP_RETURN_IF_ERROR(
          eachLine(block->text, block->firstLine, options_.comments, [&](absl::string_view, uint64_t number) {
            if (found == 0) found = number;
            return absl::OkStatus();
          }));
      if (found != 0) return found;
    }
  }

  void setLimit(const std::string& type, uint64_t* limit, std::string* hint) const {
    const auto given = options_.nodeCounts.find(type);
    if (given == options_.nodeCounts.end() || options_.renumber) {
      *hint = absl::StrCat("at most ", kMaxNodes - 1, "; --renumber gives nodes small numbers");
      return;
    }
    *limit = given->second;
    *hint = absl::StrCat("type '", type, "' was said to have ", given->second, " nodes");
  }

  TypeIds& typeOf(const std::string& name) {
    if (types_.find(name) == types_.end()) order_.push_back(name);
    return types_[name];
  }

  absl::Status importFile(const EdgeListFile& file) {
    FARHOP_ASSIGN_OR_RETURN(const bool isArray, beginsAsNpy(file.path));
    return isArray ? importArray(file) : importText(file);
  }

  // Integer ids of any width; columns are features of their own there.
  absl::Status importArray(const EdgeListFile& file) {
    if (!options_.columns.empty() || options_.ids == IdKind::kString) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, " is a .npy, which has no columns and no ids that are text; give features as .npy, too"));
    }
    FARHOP_ASSIGN_OR_RETURN(const ArrayView array, openNpy(file.path));
    TypeIds& source = typeOf(file.sourceType);
    TypeIds& destination = typeOf(file.destinationType);
    const auto limit = [&](const std::string& type) {
      const auto given = options_.nodeCounts.find(type);
      return given == options_.nodeCounts.end() || options_.renumber ? kMaxNodes : given->second;
    };
    FARHOP_ASSIGN_OR_RETURN(EdgeFile edges, startRelation(file));
    const auto renumber = [&](std::vector<uint64_t>* ends) {
      if (!options_.renumber) return;
      for (size_t i = 0; i < ends->size(); ++i) {
        (*ends)[i] = (i % 2 == 0 ? source : destination).integers.number((*ends)[i]);
      }
    };
    FARHOP_RETURN_IF_ERROR(addEdges(array, {limit(file.sourceType), limit(file.destinationType)}, renumber, &edges));
    if (edges.edges() == 0 && !options_.allowEmpty) return absl::InvalidArgumentError(absl::StrCat(file.path, " holds no edge"));
    return finishRelation(&edges, &source, &destination);
  }

  absl::StatusOr<EdgeFile> startRelation(const EdgeListFile& file) {
    const std::string path = output_.newFile({"edges", file.sourceType, file.relation, file.destinationType});
    output_.description().edges.push_back({relationText(file), path});
    return EdgeFile::create(output_.pathOf(path));
  }
  absl::Status finishRelation(EdgeFile* edges, TypeIds* source, TypeIds* destination) {
    source->bound = std::max(source->bound, edges->sourceBound());
    destination->bound = std::max(destination->bound, edges->destinationBound());
    return edges->commit();
  }
  static std::string relationText(const EdgeListFile& file) {
    return absl::StrCat(file.sourceType, ":", file.relation, ":", file.destinationType);
  }

  absl::Status importText(const EdgeListFile& file) {
    FARHOP_ASSIGN_OR_RETURN(const EdgeListLayout layout, tellLayout(file.path, options_));
    FARHOP_ASSIGN_OR_RETURN(const ParsePlan plan, planFor(file, layout));
    TypeIds& source = typeOf(file.sourceType);
    TypeIds& destination = typeOf(file.destinationType);
    for (TypeIds* type : {&source, &destination}) {
      const bool text = type->strings.size() > 0, numbers = type->integers.size() + type->bound > 0;
      if (plan.stringIds ? numbers : text) {
        return absl::InvalidArgumentError(absl::StrCat(file.path, " has ids that are ", plan.stringIds ? "text" : "integers",
                                                       ", an earlier file of the same node type has not; say --ids string"));
      }
      type->text = plan.stringIds;
    }
    FARHOP_ASSIGN_OR_RETURN(EdgeFile edges, startRelation(file));
    FARHOP_ASSIGN_OR_RETURN(std::vector<GrowingNpy> columns, startColumns(file));
    FARHOP_ASSIGN_OR_RETURN(TextBlocks blocks, TextBlocks::open(file.path));
    const auto parse = [&](TextBlock block) { return BlockParser(plan, std::move(block)).parse(); };
    const auto consume = [&](EdgeBlock block) -> absl::Status {
      number(&block, &source, &destination);
      FARHOP_RETURN_IF_ERROR(edges.add(block.ends));
      for (size_t i = 0; i < columns.size(); ++i) {
        FARHOP_RETURN_IF_ERROR(columns[i].write(block.columns[i].data(), block.columns[i].size()));
      }
      if (progress_) {
        progress_(absl::StrCat("reading ", file.path), blocks.source().bytesRead(), blocks.source().fileBytes());
      }
      return absl::OkStatus();
    };
    FARHOP_RETURN_IF_ERROR(parseBlocks<EdgeBlock>(&blocks, options_.threads, parse, consume));
    for (GrowingNpy& column : columns) FARHOP_RETURN_IF_ERROR(column.commit());
    return finishRelation(&edges, &source, &destination);
  }

  absl::StatusOr<std::vector<GrowingNpy>> startColumns(const EdgeListFile& file) {
    std::vector<GrowingNpy> columns;
    for (const EdgeColumn& column : options_.columns) {
      const std::string path =
          output_.newFile({"edge", file.sourceType, file.relation, file.destinationType, column.feature});
      FARHOP_ASSIGN_OR_RETURN(GrowingNpy npy, GrowingNpy::create(output_.pathOf(path), column.dtype, {}));
      columns.push_back(std::move(npy));
      output_.description().features.push_back({"edge", relationText(file), column.feature, path});
    }
    return columns;
  }

  // Turns the block's ids into node numbers, where dictionaries do that.
  void number(EdgeBlock* block, TypeIds* source, TypeIds* destination) const {
    // Dictionaries are larger than any cache, and each id is a miss unless its memory was asked for before.
    constexpr size_t kAhead = 16;
    if (!block->names.empty()) {
      block->ends.resize(block->names.size());
      for (size_t i = 0; i < block->names.size(); ++i) {
        if (i + kAhead < block->names.size()) {
          (i % 2 == 0 ? source : destination)->strings.prefetch(block->names[i + kAhead]);
        }
        block->ends[i] = (i % 2 == 0 ? source : destination)->strings.number(block->names[i]);
      }
    } else if (options_.renumber) {
      for (size_t i = 0; i < block->ends.size(); ++i) {
        if (i + kAhead < block->ends.size()) {
          (i % 2 == 0 ? source : destination)->integers.prefetch(block->ends[i + kAhead]);
        }
        block->ends[i] = (i % 2 == 0 ? source : destination)->integers.number(block->ends[i]);
      }
    }
  }

  absl::Status finishType(const std::string& name) {
    const TypeIds& type = types_[name];
    DatasetDescription::Nodes nodes;
    nodes.type = name;
    nodes.count = type.bound;
    if (type.text || options_.renumber) {
      nodes.dictionaryPath = output_.newFile({"ids", name}, type.text ? ".txt" : ".npy");
      const std::string path = output_.pathOf(nodes.dictionaryPath);
      FARHOP_RETURN_IF_ERROR(type.text ? type.strings.save(path) : type.integers.save(path));
    }
    const auto given = options_.nodeCounts.find(name);
    if (given != options_.nodeCounts.end()) {
      if (given->second < nodes.count) {
        return absl::OutOfRangeError(absl::StrCat("type '", name, "' was said to have ", given->second, " nodes; its edges name ",
                                                  nodes.count, " different ones"));
      }
      nodes.count = given->second;
    }
    output_.description().nodes.push_back(std::move(nodes));
    return absl::OkStatus();
  }

  const EdgeListOptions& options_;
  const ProgressReport& progress_;
  DatasetOutput& output_;
  std::map<std::string, TypeIds> types_;
  std::vector<std::string> order_;
};

}  // namespace

absl::Status importEdgeLists(const std::vector<EdgeListFile>& files, const EdgeListOptions& options,
                             const ProgressReport& progress, DatasetOutput* output) {
  for (const auto& [type, count] : options.nodeCounts) {
    const bool known = std::any_of(files.begin(), files.end(), [name = type](const EdgeListFile& file) {
      return file.sourceType == name || file.destinationType == name;
    });
    if (!known) return absl::InvalidArgumentError(absl::StrCat("no edges are between nodes of a type '", type, "'"));
  }
  return EdgeListImporter(options, progress, output).run(files);
}

}  // namespace farhop::importers
