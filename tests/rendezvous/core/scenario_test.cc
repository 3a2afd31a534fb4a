// Runs tests/scenarios/*.txt. Run it with DDPRUN_REWRITE_SCENARIOS set to that folder's path in the source tree to
// write down what the code says now; then read the difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/core/script.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kFolder[] = "tests/scenarios";
constexpr char kSeparator[] = "----";

std::vector<std::string> Scenarios() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadScenario(const std::string& name) {
  std::ifstream file(absl::StrCat(kFolder, "/", name, ".txt"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The scenario with what each block of commands really gave in place of what it expects.
std::string RunScenario(const std::string& text) {
  Script script;
  std::string result, said;
  bool in_output = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line == kSeparator) {
      absl::StrAppend(&result, kSeparator, "\n", said);
      said.clear();
      in_output = true;
    } else if (line.empty()) {
      absl::StrAppend(&result, "\n");
      in_output = false;
    } else if (in_output) {
      continue;  // expected output: the real one is there already
    } else {
      absl::StrAppend(&result, line, "\n");
      if (!absl::StartsWith(line, "#")) absl::StrAppend(&said, script.Run(line));
    }
  }
  if (absl::EndsWith(result, "\n")) result.pop_back();  // the empty piece after the last line end
  EXPECT_EQ(said, "") << "commands without a line of ---- after them";
  return result;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, Scenario_File_MatchesItsText) {
  const std::string text = ReadScenario(GetParam());
  ASSERT_NE(text, "");
  const std::string result = RunScenario(text);
  if (const char* folder = std::getenv("DDPRUN_REWRITE_SCENARIOS"); folder != nullptr) {
    std::ofstream(absl::StrCat(folder, "/", GetParam(), ".txt")) << result;
    return;
  }
  EXPECT_EQ(result, text);
  EXPECT_TRUE(absl::StartsWith(text, "# ")) << "say what it shows";
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioTest, testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param; });

// Bazel passes this test links into the source tree, which has all scenarios.
TEST(ScenarioFolder, AllOfTheSourceTree_AreRun) {
  const std::vector<std::string> names = Scenarios();
  ASSERT_FALSE(names.empty());
  const auto one = std::filesystem::canonical(absl::StrCat(kFolder, "/", names[0], ".txt"));
  size_t in_source_tree = 0;
  for (const auto& entry : std::filesystem::directory_iterator(one.parent_path())) {
    if (entry.path().extension() == ".txt") ++in_source_tree;
  }
  EXPECT_EQ(names.size(), in_source_tree);
}

}  // namespace
}  // namespace ddprun::rendezvous
