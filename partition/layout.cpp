#include "partition/layout.h"

#include <cstdio>

namespace farhop::partition {
namespace {

// Well-formed by RFC 3629, section 4: no overlong forms, no surrogates.
bool isUtf8(absl::string_view text) {
  auto byteAt = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = byteAt(i);
    size_t length = 0;
    if (lead < 0x80)
      length = 1;
    else if (lead >= 0xC2 && lead < 0xE0)
      length = 2;
    else if ((lead & 0xF0) == 0xE0)
      length = 3;
    else if (lead >= 0xF0 && lead < 0xF5)
      length = 4;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byteAt(i + k) & 0xC0) != 0x80) return false;
    }
    if ((lead == 0xE0 && byteAt(i + 1) < 0xA0) || (lead == 0xED && byteAt(i + 1) >= 0xA0) ||
        (lead == 0xF0 && byteAt(i + 1) < 0x90) || (lead == 0xF4 && byteAt(i + 1) >= 0x90)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace

std::string pathComponent(absl::string_view name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string component;
  for (char c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (plain) {
      component += c;
    } else {
      component += '%';
      component += kDigits[static_cast<unsigned char>(c) >> 4];
      component += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return component;
}

absl::Status checkName(absl::string_view what, absl::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " has an empty name"));
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " '", name.substr(0, kMaxNameBytes),
                                                   "...' has a name of ", name.size(), " bytes; at most ",
                                                   kMaxNameBytes, " are taken"));
  }
  // graph.json is JSON, which is UTF-8.
  if (!isUtf8(name)) return absl::InvalidArgumentError(absl::StrCat(what, " has a name that is not UTF-8"));
  return absl::OkStatus();
}

std::string partitionPath(int partition) {
  char text[32];
  std::snprintf(text, sizeof(text), "part-%05d", partition);
  return text;
}

std::string relationComponent(const Schema& schema, int relation) {
  const Relation& r = schema.relations[relation];
  return absl::StrCat(pathComponent(schema.nodeTypes[r.source].name), ".", pathComponent(r.name), ".",
                      pathComponent(schema.nodeTypes[r.destination].name));
}

namespace {

std::string nodesPath(const Schema& schema, int partition, int nodeType) {
  return absl::StrCat(partitionPath(partition), "/nodes/", pathComponent(schema.nodeTypes[nodeType].name));
}

std::string edgesPath(const Schema& schema, int partition, int relation) {
  return absl::StrCat(partitionPath(partition), "/edges/", relationComponent(schema, relation));
}

}  // namespace

std::string originalIdsPath(const Schema& schema, int partition, int nodeType) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/orig_ids.npy");
}

std::string nodeFeaturePath(const Schema& schema, int partition, int nodeType, absl::string_view feature) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/feat/", pathComponent(feature), ".npy");
}

std::string cacheGidsPath(const Schema& schema, int partition, int nodeType) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/cache/gids.npy");
}

std::string cacheFeaturePath(const Schema& schema, int partition, int nodeType, absl::string_view feature) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/cache/feat/", pathComponent(feature), ".npy");
}

std::string splitPath(const Schema& schema, int partition, int nodeType, absl::string_view split) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/split/", pathComponent(split), ".npy");
}

std::string relationPath(const Schema& schema, int partition, int relation, absl::string_view array) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/", array, ".npy");
}

std::string edgeFeaturePath(const Schema& schema, int partition, int relation, absl::string_view feature) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/feat/", pathComponent(feature), ".npy");
}

std::string edgeSplitPath(const Schema& schema, int partition, int relation, absl::string_view split) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/split/", pathComponent(split), ".npy");
}

// No split has this name's path: components hold no dot.
std::string edgeSplitLabelsPath(const Schema& schema, int partition, int relation, absl::string_view split) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/split/", pathComponent(split), ".labels.npy");
}

std::string gidMapPath(const Schema& schema, int nodeType) {
  return absl::StrCat("global/", pathComponent(schema.nodeTypes[nodeType].name), "/gid.npy");
}

std::string globalOriginalIdsPath(const Schema& schema, int nodeType) {
  return absl::StrCat("global/", pathComponent(schema.nodeTypes[nodeType].name), "/orig_ids.npy");
}

// A relation's component has two dots, a node type's none.
std::string globalRelationPath(const Schema& schema, int relation, absl::string_view array) {
  return absl::StrCat("global/", relationComponent(schema, relation), "/", array, ".npy");
}

std::string globalEdgeSplitPath(const Schema& schema, int relation, absl::string_view split) {
  return absl::StrCat("global/", relationComponent(schema, relation), "/split/", pathComponent(split), ".npy");
}

std::string globalEdgeSplitLabelsPath(const Schema& schema, int relation, absl::string_view split) {
  return absl::StrCat("global/", relationComponent(schema, relation), "/split/", pathComponent(split), ".labels.npy");
}

std::string globalSplitPath(const Schema& schema, int nodeType, absl::string_view split) {
  return absl::StrCat("global/", pathComponent(schema.nodeTypes[nodeType].name), "/split/", pathComponent(split), ".npy");
}

std::string canonicalSplitName(absl::string_view name) {
  if (name == "val" || name == "valid") return "validation";
  return std::string(name);
}

}  // namespace farhop::partition
