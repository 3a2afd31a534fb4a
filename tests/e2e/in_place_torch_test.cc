// PyTorch's functions within `ddprun exec`.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class InPlaceTorchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }
  // Sorted, because the order of two ranks is not fixed.
  static std::string SortedOut(Process* process) {
    EXPECT_EQ(process->Wait(3 * Process::kPatience), 0) << process->Out() << process->Err();
    std::vector<std::string> lines = absl::StrSplit(process->Out(), '\n');
    std::sort(lines.begin(), lines.end());
    return absl::StrJoin(lines, "\n");
  }
};

TEST_F(InPlaceTorchTest, EveryFunction_HasTheResultsAndErrorsOfPyTorchs) {
  const std::string port = absl::StrCat(FreePort());
  Process plain({VenvPython(), "tests/e2e/in_place_torch.py", port});
  const std::string expected = SortedOut(&plain);
  Launcher launcher({"exec", VenvPython(), "tests/e2e/in_place_torch.py", port});
  EXPECT_EQ(SortedOut(&launcher), expected) << launcher.Err();
  EXPECT_THAT(launcher.Err(), HasSubstr(" ddprun: rank 1 ")) << "else it was PyTorch's launcher";
  EXPECT_THAT(expected, AllOf(HasSubstr("exit 1 1 7 True"), HasSubstr("kill 1 1 -9 True")));
}

}  // namespace
}  // namespace ddprun::testing
