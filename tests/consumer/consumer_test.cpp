// What a user of the installed library does: find_package, build, run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "tests/fixture_graphs.h"
#include "tests/temporary_directory.h"

namespace farhop::testing {
namespace {

// The first block of code in the README's section "A trainer".
std::string readmeTrainer() {
  std::istringstream readme(readFile(README).value_or(""));
  std::string line, code;
  bool inSection = false;
  while (std::getline(readme, line)) {
    if (line.rfind("## ", 0) == 0) inSection = line == "## A trainer";
    const bool isCode = line.rfind("    ", 0) == 0 || (line.empty() && !code.empty());
    if (inSection && isCode) code += line.substr(std::min<size_t>(4, line.size())) + "\n";
    if (inSection && !isCode && !code.empty()) break;
  }
  return code;
}

TEST(Consumer, FindsBuildsAndRuns_AgainstTheInstalledPackage) {
  TemporaryDirectory directory;
  FixtureOptions fixture;
  writeFixtureStore(fixture, 2, directory / "store");
  const auto run = [&](const std::string& command) {
    const int code = std::system((command + " > " + (directory / "log") + " 2>&1").c_str());
    return code == 0 ? std::string() : command + "\n" + readFile(directory / "log").value_or("");
  };
  ASSERT_NE(readmeTrainer().find("int main()"), std::string::npos);
  ASSERT_TRUE(writeFileAtomically(directory / "readme.cpp", readmeTrainer()).ok());
  ASSERT_EQ(run("cmake --install " BUILD_DIRECTORY " --prefix " + (directory / "prefix")), "");
  ASSERT_EQ(run("cmake -S " CONSUMER_PROJECT " -B " + (directory / "build") + " -DCMAKE_PREFIX_PATH=" +
                (directory / "prefix") + " -DREADME_TRAINER=" + (directory / "readme.cpp")),
            "");
  ASSERT_EQ(run("cmake --build " + (directory / "build")), "");
  ASSERT_EQ(run((directory / "build") + "/consumer " + (directory / "store")), "");
  ASSERT_EQ(run("FARHOP_GRAPH=" + (directory / "store") + " " + (directory / "build") + "/readme_trainer"), "");
  for (const char* program : {"farhop", "hoprun"}) {
    EXPECT_EQ(run((directory / "prefix") + "/bin/" + program + " --version"), "");
  }
}

}  // namespace
}  // namespace farhop::testing
