// Full-graph inference of whole jobs: layer by layer over all nodes, it equals the computation over the whole graph in
// one piece, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/fixture_graphs.h"
#include "tests/multiproc/farhop_process.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

using Row = std::array<double, 4>;
using Rows = std::vector<std::vector<Row>>;  // [node type][original id]

struct Job {
  int parts, machines, procs;
};
constexpr Job kJobs[] = {{1, 1, 1}, {2, 2, 2}, {3, 1, 4}, {5, 2, 1}};
std::string describe(const Job& job) {
  return std::to_string(job.parts) + " partitions, " + std::to_string(job.machines) + " x " + std::to_string(job.procs);
}

FixtureOptions fixture(bool heterogeneous) {
  FixtureOptions options;
  options.heterogeneous = heterogeneous;
  options.nodes = 250;
  options.edges = 2000;
  options.addReverse = true;
  return options;
}

// What inference_trainer.cpp computes, over the data set. Reverse relations come behind all others.
Rows fullBatch(const partition::Dataset& dataset, int layers) {
  struct InEdges {
    int source, destination;
    std::vector<std::vector<std::pair<uint64_t, uint64_t>>> rows;  // [destination] (source, edge)
  };
  std::vector<InEdges> relations;
  for (bool reverse : {false, true}) {
    for (size_t r = 0; r < dataset.edges.size(); ++r) {
      const partition::Relation& relation = dataset.schema.relations[r];
      InEdges in{reverse ? relation.destination : relation.source, reverse ? relation.source : relation.destination, {}};
      in.rows.resize(dataset.schema.nodeTypes[static_cast<size_t>(in.destination)].count);
      for (uint64_t e = 0; e < relation.count; ++e) {
        const uint64_t from = dataset.edges[r].source[e], to = dataset.edges[r].destination[e];
        in.rows[reverse ? from : to].emplace_back(reverse ? to : from, e);
      }
      for (auto& row : in.rows) std::sort(row.begin(), row.end());
      relations.push_back(std::move(in));
    }
  }
  Rows rows;
  for (size_t t = 0; t < dataset.schema.nodeTypes.size(); ++t) {
    rows.emplace_back(dataset.schema.nodeTypes[t].count);
    for (uint64_t id = 0; id < rows[t].size(); ++id) {
      for (uint64_t c = 0; c < 4; ++c) rows[t][id][c] = fixtureFeature(static_cast<int>(t), id, c);
    }
  }
  for (int layer = 0; layer < layers; ++layer) {
    Rows next = rows;
    for (auto& type : next) {
      for (Row& row : type) {
        for (double& value : row) value *= 0.5;
      }
    }
    for (size_t r = 0; r < relations.size(); ++r) {
      for (size_t row = 0; row < relations[r].rows.size(); ++row) {
        const auto& edges = relations[r].rows[row];
        for (size_t c = 0; c < 4 && !edges.empty(); ++c) {
          double sum = 0;
          for (const auto& [source, edge] : edges) sum += rows[static_cast<size_t>(relations[r].source)][source][c];
          next[static_cast<size_t>(relations[r].destination)][row][c] +=
              sum / static_cast<double>(edges.size()) / (2.0 + static_cast<double>(r));
        }
      }
    }
    rows = std::move(next);
  }
  return rows;
}

std::set<std::string> sharedMemoryFiles() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().string());
  return names;
}

class Inference : public ::testing::TestWithParam<bool> {
 protected:
  // On a store of as many partitions as the job says.
  std::vector<std::string> command(const Job& job, const std::string& mode) const {
    const std::string store = writeFixtureStore(fixture(GetParam()), job.parts, directory_ / ("store-" + std::to_string(job.parts)));
    return {FARHOP_PROGRAM, "run", "--graph", store, "--machines", std::to_string(job.machines),
            "--procs", std::to_string(job.procs), "--", INFERENCE_TRAINER, mode, directory_.path()};
  }

  TemporaryDirectory directory_;
};

TEST_P(Inference, EqualsTheFullBatch_EveryNodeOnce) {
  const Rows expected = fullBatch(makeFixtureDataset(fixture(GetParam())), 3);
  const auto before = sharedMemoryFiles();
  for (const Job& one : kJobs) {
    FarhopProcess job(command(one, "infer"));
    ASSERT_EQ(job.wait(60), 0) << job.err();
    for (size_t t = 0; t < expected.size(); ++t) {
      std::map<int64_t, Row> found;
      for (int rank = 0; rank < one.machines * one.procs; ++rank) {
        std::ifstream in(directory_ / ("rows-" + std::to_string(t) + "-" + std::to_string(rank)), std::ios::binary);
        int64_t id;
        Row row;
        while (in.read(reinterpret_cast<char*>(&id), sizeof(id)) && in.read(reinterpret_cast<char*>(&row), sizeof(row))) {
          EXPECT_TRUE(found.emplace(id, row).second) << "node " << id << " came twice";
        }
      }
      ASSERT_EQ(found.size(), expected[t].size()) << describe(one);
      for (const auto& [id, row] : found) {
        ASSERT_EQ(row, expected[t][static_cast<size_t>(id)]) << "node " << id << ", " << describe(one);
      }
    }
  }
  EXPECT_EQ(sharedMemoryFiles(), before);
}

TEST_P(Inference, TurnsMistakesIntoErrors_AndEdgeFeaturesAreThoseDrawn) {
  for (const Job& one : kJobs) {
    FarhopProcess job(command(one, "check"));
    EXPECT_EQ(job.wait(60), 0) << describe(one) << ": " << job.err();
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, Inference, ::testing::Bool(), [](const auto& heterogeneous) {
  return heterogeneous.param ? "Heterogeneous" : "Homogeneous";
});

}  // namespace
}  // namespace farhop::testing
