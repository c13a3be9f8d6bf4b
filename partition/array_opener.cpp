#include "partition/array_opener.h"

#include "partition/layout.h"

namespace farhop::partition {
namespace {

std::string shapeText(const std::vector<uint64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, shape[i], i + 1 < shape.size() ? ", " : (shape.size() == 1 ? "," : ""));
  }
  return text + ")";
}

}  // namespace

absl::StatusOr<NpyArray> ArrayOpener::open(const std::string& path, DType dtype,
                              const std::vector<uint64_t>& shape) const {
  const std::string full = absl::StrCat(directory_, "/", path);
  auto listed = manifest_.files.find(path);
  if (listed == manifest_.files.end()) {
    return absl::InternalError(absl::StrCat(directory_, "/", kManifestFile, " does not list ", path));
  }
  auto opened = NpyArray::open(full);
  if (absl::IsNotFound(opened.status())) {
    return absl::NotFoundError(absl::StrCat(full, " is missing; copy it again or write the store again"));
  }
  FARHOP_RETURN_IF_ERROR(opened.status());
  NpyArray array = *std::move(opened);
  const uint64_t bytes = array.fileBytes().size();
  if (bytes != listed->second.bytes) {
    return absl::DataLossError(absl::StrCat(full, " has ", bytes, " bytes instead of ",
                                            listed->second.bytes,
                                            "; it belongs to another store or is damaged, copy it again"));
  }
  if (npyDescriptor(array.dtype()) != npyDescriptor(dtype) || array.shape() != shape ||
      array.header().fortranOrder) {
    return absl::DataLossError(absl::StrCat(full, " holds ", dtypeName(array.dtype()), " of shape ",
                                            shapeText(array.shape()), " instead of ", dtypeName(dtype),
                                            " of shape ", shapeText(shape), "; copy it again"));
  }
  return array;
}

absl::StatusOr<IdArray> ArrayOpener::openIds(const std::string& path, uint64_t count, uint64_t nodes,
                                             std::vector<NpyArray>* files) const {
  IdArray ids;
  if (nodes < kSmallNodeCount) {
    FARHOP_ASSIGN_OR_RETURN(ids.narrow, openColumn<uint32_t>(path, count, files));
  } else {
    FARHOP_ASSIGN_OR_RETURN(ids.wide, openColumn<uint64_t>(path, count, files));
  }
  return ids;
}

absl::StatusOr<FeatureTable> ArrayOpener::openFeature(const std::string& path, const FeatureSpec& spec, uint64_t rows,
                                         std::vector<NpyArray>* files) const {
  std::vector<uint64_t> shape = {rows};
  shape.insert(shape.end(), spec.rowShape.begin(), spec.rowShape.end());
  FARHOP_ASSIGN_OR_RETURN(NpyArray array, open(path, spec.dtype, shape));
  FeatureTable table{spec, rows, array.data().data()};
  files->push_back(std::move(array));
  return table;
}

}  // namespace farhop::partition
