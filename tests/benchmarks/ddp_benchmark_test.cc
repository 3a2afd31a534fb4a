// benchmarks/ddp.py works: every section prints its table. The numbers are not checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

struct Section {
  std::string name;
  std::string title;              // beginning of its first table's title
  std::vector<std::string> rows;  // beginnings of the rows, after the bar
};

class DdpBenchmarkTest : public ::testing::TestWithParam<Section> {};

TEST_P(DdpBenchmarkTest, Quick_PrintsTheTable) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  Process benchmark({VenvPython(), "benchmarks/ddp.py", "--quick", "--only", GetParam().name,
                     "--programs=benchmarks/ddp", "--ddprun=launcher/ddprun"},
                    {{"PYTHONDONTWRITEBYTECODE", "1"}});
  // Some sections start PyTorch a dozen times.
  ASSERT_EQ(benchmark.Wait(4 * Process::kPatience), 0) << benchmark.Err();
  const std::vector<std::string> lines = absl::StrSplit(benchmark.Out(), '\n');
  ASSERT_TRUE(absl::StartsWith(lines[0], "### " + GetParam().title)) << benchmark.Out();
  for (const std::string& row : GetParam().rows) {
    const auto begins = [&row](const std::string& line) { return absl::StartsWith(line, "| " + row + " "); };
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), begins)) << "no row " << row << " in\n" << benchmark.Out();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sections, DdpBenchmarkTest,
    ::testing::Values(
        Section{"step", "Step time: MLP", {"Python, defaults", "Python, best", "C++, defaults", "C++, best"}},
        Section{"start", "Start: GPT", {"Python under ddprun", "C++ under ddprun"}},
        Section{"memory", "Memory of rank 0", {"MLP | Python", "MLP | C++"}},
        Section{"buckets", "Buckets: GPT", {"no communication", "one bucket: no overlap", "1 MiB"}},
        Section{"hook", "Gradients through shared memory", {"MLP, 2 ranks | Gloo", "MLP, 2 ranks | shared memory"}},
        Section{"checkpoint",
                "Checkpoints: how long",
                {"tiny GPT | torch.save", "tiny GPT | C++, synchronous", "tiny GPT | C++, asynchronous"}},
        Section{"sampler", "DistributedSampler", {"10^4    | Python", "10^4    | C++"}},
        Section{"zero", "ZeRO-1", {"MLP | AdamW", "MLP | ZeRO-1", "MLP | ZeRO-1 in Python"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ddprun::testing
