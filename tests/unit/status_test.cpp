#include "base/status.h"

#include <gtest/gtest.h>

namespace farhop {
namespace {

TEST(Status, CarriesThePeerThroughAnnotation) {
  absl::Status status = withPeer(absl::UnavailableError("connection closed"), {1, 2, "10.0.0.1:99"});
  status = annotate(status, "pulling x");
  auto peer = peerOf(status);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(describePeer(*peer), "machine 1 process 2 (10.0.0.1:99)");
  EXPECT_EQ(status.message(), "pulling x: connection closed");
}

TEST(Status, HasNoPeer_UnlessOneWasAttached) {
  EXPECT_FALSE(peerOf(absl::InternalError("x")).has_value());
  EXPECT_TRUE(withPeer(absl::OkStatus(), {0, 0, ""}).ok());
}

absl::StatusOr<int> half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}
absl::StatusOr<int> quarter(int x) {
  FARHOP_ASSIGN_OR_RETURN(int h, half(x));
  FARHOP_ASSIGN_OR_RETURN(h, half(h));
  return h;
}

TEST(Status, MacrosPassErrorsOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_FALSE(quarter(6).ok());
}

}  // namespace
}  // namespace farhop
