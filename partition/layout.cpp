#include "partition/layout.h"

#include <cstdio>

namespace farhop::partition {

std::string pathComponent(absl::string_view name) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string component;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '-';
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
    return absl::InvalidArgumentError(absl::StrCat(what, " '", name.substr(0, kMaxNameBytes), "...' has a name of ",
                                                   name.size(), " bytes; at most ", kMaxNameBytes, " are taken"));
  }
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

std::string splitPath(const Schema& schema, int partition, int nodeType, absl::string_view split) {
  return absl::StrCat(nodesPath(schema, partition, nodeType), "/split/", pathComponent(split), ".npy");
}

std::string relationPath(const Schema& schema, int partition, int relation, absl::string_view array) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/", array, ".npy");
}

std::string edgeFeaturePath(const Schema& schema, int partition, int relation, absl::string_view feature) {
  return absl::StrCat(edgesPath(schema, partition, relation), "/feat/", pathComponent(feature), ".npy");
}

std::string gidMapPath(const Schema& schema, int nodeType) {
  return absl::StrCat("global/", pathComponent(schema.nodeTypes[nodeType].name), "/gid.npy");
}

std::string globalSplitPath(const Schema& schema, int nodeType, absl::string_view split) {
  return absl::StrCat("global/", pathComponent(schema.nodeTypes[nodeType].name), "/split/", pathComponent(split), ".npy");
}

std::string canonicalSplitName(absl::string_view name) {
  if (name == "val" || name == "valid") return "validation";
  return std::string(name);
}

}  // namespace farhop::partition
