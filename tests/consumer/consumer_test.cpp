// What a user of the installed library does: find_package, build, run.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

TEST(Consumer, FindsBuildsAndRuns_AgainstTheInstalledPackage) {
  TemporaryDirectory directory;
  FixtureOptions fixture;
  writeFixtureStore(fixture, 2, directory / "store");
  const auto run = [&](const std::string& command) {
    const int code = std::system((command + " > " + (directory / "log") + " 2>&1").c_str());
    return code == 0 ? std::string() : command + "\n" + readFile(directory / "log").value_or("");
  };
  ASSERT_EQ(run("cmake --install " BUILD_DIRECTORY " --prefix " + (directory / "prefix")), "");
  ASSERT_EQ(run("cmake -S " CONSUMER_PROJECT " -B " + (directory / "build") + " -DCMAKE_PREFIX_PATH=" + (directory / "prefix")), "");
  ASSERT_EQ(run("cmake --build " + (directory / "build")), "");
  ASSERT_EQ(run((directory / "build") + "/consumer " + (directory / "store")), "");
  for (const char* program : {"farhop", "hoprun"}) {
    EXPECT_EQ(run((directory / "prefix") + "/bin/" + program + " --version"), "");
  }
}

}  // namespace
}  // namespace farhop::testing
