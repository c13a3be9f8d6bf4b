#include "base/task.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

namespace farhop {
namespace {

using Result = absl::StatusOr<std::string>;

Task<Result> inner(bool fails) {
  if (fails) throw std::bad_alloc();
  co_return Result("done");
}

Task<Result> outer(bool fails) {
  Result result = co_await inner(fails);
  co_return result;
}

TEST(Task, HandsItsResultToWhoeverStartedIt) {
  Result got = absl::UnknownError("never called");
  startTask<Result>(outer(false), [&](Result result) { got = std::move(result); });
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "done");
}

TEST(Task, ReportsThatMemoryRanOut_InsteadOfEndingTheProcess) {
  Result got = absl::UnknownError("never called");
  startTask<Result>(outer(true), [&](Result result) { got = std::move(result); });
  EXPECT_EQ(got.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace farhop
