// PyTorch's functions within `ddprun exec`, with .venv's PyTorch and with the newest one (scripts/torch_versions).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class InPlaceTorchTest : public ::testing::TestWithParam<const char*> {};

TEST_P(InPlaceTorchTest, EveryFunction_HasTheResultsAndErrorsOfPyTorchs) {
  const std::string python = absl::StrCat(SourceRoot(), "/", GetParam(), "/bin/python");
  if (!std::filesystem::exists(python)) {
    GTEST_SKIP() << "there is no " << GetParam() << " with torch: scripts/setup makes .venv, and "
                 << "scripts/torch_versions --keep makes .venv-newest";
  }
  Process calls({python, "tests/e2e/in_place_torch.py", std::filesystem::absolute("launcher/ddprun")});
  EXPECT_EQ(calls.Wait(6 * Process::kPatience), 0) << calls.Out() << calls.Err();
  EXPECT_THAT(calls.Out(), AllOf(HasSubstr("exit 1 1 7 True"), HasSubstr("kill 1 1 -9 True"), HasSubstr("signal 15")));
}

INSTANTIATE_TEST_SUITE_P(Versions, InPlaceTorchTest, ::testing::Values(".venv", ".venv-newest"),
                         [](const auto& version) { return version.index == 0 ? "Pinned" : "Newest"; });

}  // namespace
}  // namespace ddprun::testing
