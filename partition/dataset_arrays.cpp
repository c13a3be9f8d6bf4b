#include "partition/dataset_arrays.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/file.h"

namespace farhop::partition {
namespace {

absl::StatusOr<std::shared_ptr<const NpyArray>> openNumpy(const std::string& path) {
  auto array = NpyArray::open(path);
  FARHOP_RETURN_IF_ERROR(array.status());
  return std::make_shared<const NpyArray>(*std::move(array));
}

absl::Status unknownFormat(const std::string& path, const std::string& format, absl::string_view known) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": format '", format, "' is not read (", known, " is); convert it with numpy.save"));
}

std::string shapeText(const NpyArray& array) {
  std::string text = "(";
  for (size_t i = 0; i < array.shape().size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", array.shape()[i]);
  return text + ")";
}

absl::StatusOr<EdgeList> readNumpyEdges(const std::string& path) {
  FARHOP_ASSIGN_OR_RETURN(auto array, openNumpy(path));
  const std::vector<uint64_t>& shape = array->shape();
  if (!isIntegerDType(array->dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds ", dtypeName(array->dtype()), "; edges must be integers"));
  }
  if (shape.size() != 2 || (shape[0] != 2 && shape[1] != 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has shape ", shapeText(*array), "; edges must be of shape (2, E) or (E, 2)"));
  }
  const bool sourcesFirst = shape[0] == 2;
  const uint64_t edges = sourcesFirst ? shape[1] : shape[0];
  // In memory the two ends of an edge lie side by side for (E, 2) in C order and for (2, E) in Fortran order.
  const bool interleaved = sourcesFirst == array->header().fortranOrder;
  EdgeList list;
  list.source = IdColumn::view(array, 0, interleaved ? 2 : 1, edges);
  list.destination = IdColumn::view(array, interleaved ? 1 : edges, interleaved ? 2 : 1, edges);
  list.origin = path;
  return list;
}

// Parses one csv file; a line is "source,destination" with blanks and a carriage return allowed around
// numbers.
class EdgeCsvReader {
 public:
  EdgeCsvReader(std::string path, absl::string_view text) : path_(std::move(path)), text_(text) {}

  absl::StatusOr<EdgeList> read() {
    std::vector<uint64_t> source, destination;
    for (uint64_t number = 1; !text_.empty(); ++number) {
      const size_t end = std::min(text_.find('\n'), text_.size());
      absl::string_view line = trim(text_.substr(0, end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
      if (line.empty() || (number == 1 && isLetter(line[0]))) continue;
      const size_t comma = line.find(',');
      int64_t from = 0, to = 0;
      if (comma == absl::string_view::npos || !integer(line.substr(0, comma), &from) ||
          !integer(line.substr(comma + 1), &to)) {
        return absl::InvalidArgumentError(absl::StrCat(path_, ":", number, ": '", line.substr(0, 60),
                                                       "' is not an edge (source,destination)"));
      }
      if (from < 0 || to < 0) {
        return absl::OutOfRangeError(
            absl::StrCat(path_, ":", number, ": a node id is negative: ", line.substr(0, 60)));
      }
      source.push_back(static_cast<uint64_t>(from));
      destination.push_back(static_cast<uint64_t>(to));
    }
    return EdgeList{IdColumn(std::move(source)), IdColumn(std::move(destination)), path_};
  }

 private:
  static bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; }
  static bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static absl::string_view trim(absl::string_view text) {
    while (!text.empty() && isBlank(text.front())) text.remove_prefix(1);
    while (!text.empty() && isBlank(text.back())) text.remove_suffix(1);
    return text;
  }
  static bool integer(absl::string_view text, int64_t* value) {
    text = trim(text);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
  }

  std::string path_;
  absl::string_view text_;
};

}  // namespace

absl::StatusOr<EdgeList> readEdges(const std::string& path, const std::string& format) {
  if (format == "numpy") return readNumpyEdges(path);
  if (format != "csv") return unknownFormat(path, format, "numpy or csv");
  FARHOP_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  return EdgeCsvReader(path, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()})
      .read();
}

absl::StatusOr<SeedArray> readSeeds(const std::string& path, const std::string& format) {
  if (format != "numpy") return unknownFormat(path, format, "numpy");
  FARHOP_ASSIGN_OR_RETURN(auto array, openNumpy(path));
  if (!isIntegerDType(array->dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds ", dtypeName(array->dtype()), "; node ids must be integers"));
  }
  const std::vector<uint64_t>& shape = array->shape();
  SeedArray seeds;
  seeds.origin = path;
  if (shape.size() == 1) {
    seeds.nodes = IdColumn::view(array, 0, 1, shape[0]);
    return seeds;
  }
  if (shape.size() != 2 || shape[1] != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has shape ", shapeText(*array), "; seeds are nodes of one dimension, or edges of shape (n, 2)"));
  }
  const bool columnsApart = array->header().fortranOrder;
  seeds.isPairs = true;
  seeds.nodes = IdColumn::view(array, 0, columnsApart ? 1 : 2, shape[0]);
  seeds.destinations = IdColumn::view(array, columnsApart ? shape[0] : 1, columnsApart ? 1 : 2, shape[0]);
  return seeds;
}

absl::StatusOr<FeatureArray> readFeature(const std::string& path, const std::string& format,
                                         const std::string& name) {
  if (format != "numpy") return unknownFormat(path, format, "numpy");
  FARHOP_ASSIGN_OR_RETURN(auto array, openNumpy(path));
  const std::vector<uint64_t>& shape = array->shape();
  if (shape.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is a single number, not rows"));
  if (array->header().fortranOrder && shape.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is in Fortran order, so a row does not lie in one piece; save numpy.ascontiguousarray(...) of it"));
  }
  FeatureArray feature;
  feature.spec = {name, array->dtype(), std::vector<uint64_t>(shape.begin() + 1, shape.end())};
  feature.column = {array->data().data(), shape[0], array, path};
  return feature;
}

}  // namespace farhop::partition
