// The benchmarks start: each names what it needs on a fresh clone, and ddp_step.py prints its tables. The numbers are
// not checked.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

TEST(BenchmarksTest, Start_FreshClone_NamesMissingPrograms) {
  const TempDir clone;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("benchmarks")) {
    if (entry.path().extension() != ".py") continue;
    const std::filesystem::path copy = clone.File(entry.path().string());
    std::filesystem::create_directories(copy.parent_path());
    std::filesystem::copy_file(std::filesystem::canonical(entry.path()), copy);
  }
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(clone.File("benchmarks"))) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "programs.py") continue;
    Process benchmark({VenvPython(), "-B", entry.path().string()}, {{"BAZEL", "/bin/false"}});
    EXPECT_EQ(benchmark.Wait(), 1) << name;
    const std::string text = benchmark.Err();
    EXPECT_TRUE(absl::StrContains(text, ": call scripts/setup first") || absl::StrContains(text, ": can't build //"))
        << name << ": " << text;
    ++seen;
  }
  EXPECT_EQ(seen, 6);
}

TEST(BenchmarksTest, DdpStep_Quick_PrintsTable) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  Process benchmark(
      {VenvPython(), "benchmarks/ddp_step.py", "--quick", "--model=mlp", "--trainer=benchmarks/ddp/step_trainer"},
      {{"PYTHONDONTWRITEBYTECODE", "1"}});
  ASSERT_EQ(benchmark.Wait(4 * Process::kPatience), 0) << benchmark.Err();
  EXPECT_TRUE(absl::StrContains(benchmark.Out(), "### Step time: MLP, 1 rank\n"));
  for (const char* row : {"Python, defaults", "Python, bucket views", "Python, batched copies", "C++, defaults",
                          "C++, best on Gloo", "C++, best"}) {
    EXPECT_TRUE(absl::StrContains(benchmark.Out(), absl::StrCat("| ", row, " | "))) << benchmark.Out();
  }
}

}  // namespace
}  // namespace ddprun::testing
