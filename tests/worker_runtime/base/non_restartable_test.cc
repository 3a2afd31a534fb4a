#include "worker_runtime/base/non_restartable.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(NonRestartable, NonRestartable_AnyError_MarksAndKeepsIt) {
  const absl::Status error = absl::InvalidArgumentError("--layers must be positive");
  const absl::Status marked = NonRestartable(error);
  EXPECT_TRUE(IsNonRestartable(marked));
  EXPECT_EQ(marked.code(), error.code());
  EXPECT_EQ(marked.message(), error.message());
  EXPECT_FALSE(IsNonRestartable(error));
  EXPECT_EQ(NonRestartable(absl::OkStatus()), absl::OkStatus());
}

}  // namespace
}  // namespace ddprun
