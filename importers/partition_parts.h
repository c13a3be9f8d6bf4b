// A graph that another system has dealt to partitions, being put together: nodes with their partitions, relations, features.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "importers/array_view.h"
#include "importers/dataset_output.h"
#include "importers/scatter_npy.h"

namespace farhop::importers {

// Ids are type-local, as the data set had them, or global over all types (each type's behind the ones before it), by what the
// smallest of all partitions' ids says: whole numberings begin at 0 or at the type's offset.
uint64_t idOffset(const std::vector<ArrayView>& ids, uint64_t typeOffset);

// Not thread-safe.
class PartitionParts {
 public:
  PartitionParts(int numPartitions, DatasetOutput* output) : numPartitions_(numPartitions), output_(*output) {
    output->description().numPartitions = numPartitions;
  }

  // A node type whose node i is of partition partitions[i]. InvalidArgument names the array when one is out of range.
  absl::Status addNodes(const std::string& type, const ArrayView& partitions);
  // Likewise, of `count` nodes, by a function.
  template <typename PartitionOf>
  absl::Status addNodes(const std::string& type, uint64_t count, const PartitionOf& partitionOf) {
    FARHOP_ASSIGN_OR_RETURN(NpyWriter writer, startNodes(type, count));
    for (uint64_t i = 0; i < count; ++i) {
      const int32_t partition = partitionOf(i);
      FARHOP_RETURN_IF_ERROR(writer.write(&partition, sizeof(partition)));
    }
    return writer.commit(Durability::kStarted);
  }
  uint64_t numNodes(const std::string& type) const { return counts_.at(type); }

  // Edges of one partition: edge ids[i] - idOffset runs sources[i] -> destinations[i].
  struct Edges {
    ArrayView ids, sources, destinations;
  };
  absl::Status addEdges(const std::string& source, const std::string& relation, const std::string& destination,
                        uint64_t edges, uint64_t idOffset, const std::vector<Edges>& parts);

  // Rows of one partition: those of ids[i] - idOffset.
  struct Rows {
    ArrayView ids, values;
  };
  absl::Status addFeature(DatasetDescription::Feature feature, uint64_t rows, uint64_t idOffset, const std::vector<Rows>& parts);

 private:
  absl::StatusOr<NpyWriter> startNodes(const std::string& type, uint64_t count);

  int numPartitions_;
  DatasetOutput& output_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace farhop::importers
