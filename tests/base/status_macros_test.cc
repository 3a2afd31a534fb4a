#include "base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ddprun {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<std::string> Twice(int first, int second, int* evaluated) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<int> a, Make(first));
  ++*evaluated;
  DDPRUN_ASSIGN_OR_RETURN(auto b, Make(second));
  ++*evaluated;
  if (*a == *b) DDPRUN_RETURN_IF_ERROR(absl::AlreadyExistsError("equal"));
  DDPRUN_RETURN_IF_ERROR(absl::OkStatus());
  std::string text;
  DDPRUN_ASSIGN_OR_RETURN(text, absl::StatusOr<std::string>(std::to_string(*a) + std::to_string(*b)));
  return text;
}

TEST(StatusMacros, ReturnIfError_ErrorAndValue_ReturnsOnlyTheError) {
  int evaluated = 0;
  EXPECT_EQ(*Twice(1, 2, &evaluated), "12");
  EXPECT_EQ(evaluated, 2);
  EXPECT_EQ(Twice(-1, 2, &evaluated).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(evaluated, 2);
  EXPECT_EQ(Twice(1, -2, &evaluated).status(), absl::InvalidArgumentError("negative"));
  EXPECT_EQ(Twice(3, 3, &evaluated).status(), absl::AlreadyExistsError("equal"));
}

}  // namespace
}  // namespace ddprun
