// The store's promise to Python: numpy opens every file.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::partition {
namespace {

TEST(StoreNumpy, OpensEveryFile) {
  testing::TemporaryDirectory directory;
  for (bool heterogeneous : {false, true}) {
    testing::FixtureOptions options;
    options.heterogeneous = heterogeneous;
    options.addReverse = options.edgeTimes = options.declaredWeights = options.edgeSplits = true;
    options.nodeTimes = heterogeneous;
    const std::string store =
        testing::writeFixtureStore(options, 3, directory / (heterogeneous ? "het" : "hom"));
    const std::string command =
        std::string("/usr/bin/python3 ") + FARHOP_NUMPY_CHECK + " " + store + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command << " (needs python3-numpy)";
  }
}

}  // namespace
}  // namespace farhop::partition
