// On a fresh clone without build outputs, each benchmark ends at once and prints what it needs.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

TEST(FreshCloneTest, EveryBenchmark_NamesWhatItNeeds) {
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
    if (!entry.is_regular_file() || name == "programs.py" || name == "scripted_jobs.py") continue;
    Process benchmark({VenvPython(), "-B", entry.path().string()}, {{"BAZEL", "/bin/false"}});
    EXPECT_EQ(benchmark.Wait(), 1) << name;
    const std::string text = benchmark.Err();
    EXPECT_TRUE(absl::StrContains(text, ": call scripts/setup first") || absl::StrContains(text, ": can't build //") ||
                absl::StrContains(text, " is not installed"))
        << name << ": " << text;
    ++seen;
  }
  EXPECT_GE(seen, 10);
}

}  // namespace
}  // namespace ddprun::testing
