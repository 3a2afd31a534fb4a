// Small worlds in every order of events, with the invariants of docs/explorer.md, which names the mistakes that each
// world finds. With arguments NAME=VALUE it explores one other world instead and prints the number of its states, or
// the history of a violation: explorer_test nodes=3 max_nodes=3 cuts=1. `compare=1` compares states of equal digest,
// `most` limits the number of states.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/steady_time.h"
#include "tests/explorer/world.h"

namespace ddprun::testing {
namespace {

struct Named {
  const char* name;
  World::Settings settings;
};

class ExplorerTest : public ::testing::TestWithParam<Named> {};

TEST_P(ExplorerTest, EveryState_InvariantsHold) {
  const Exploration explored = Explore(GetParam().settings);
  std::printf("%zu states, %zu transitions\n", explored.states, explored.transitions);
  EXPECT_EQ(explored.violation, "") << explored.history;
  EXPECT_GT(explored.ends, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ExplorerTest,
    ::testing::Values(Named{"OneNodeIsEnough", {.min_nodes = 1, .failures = 1}},  //
                      Named{"CutOff", {.cuts = 1}},                               //
                      Named{"OneNodeCutOff", {.min_nodes = 1, .cuts = 1, .spared = 2}},
                      Named{"ServerEnds", {.crashes = 1}},
                      Named{"OneNodeAfterTheOther", {.min_nodes = 1, .max_nodes = 1, .crashes = 1}},
                      Named{"WithoutRecords", {.min_nodes = 1, .records = 0, .crashes = 1}},
                      Named{"LauncherKilled", {.min_nodes = 1, .failures = 1, .deaths = 1}},
                      Named{"LauncherLeaves", {.min_nodes = 1, .failures = 1, .leaves = 1}},
                      Named{"Spare", {.nodes = 3, .deaths = 1}}, Named{"MessagesTwice", {.failures = 1, .repeats = 1}},
                      Named{"LateNode", {.late = 1, .min_nodes = 1, .failures = 1}},
                      Named{"WorkersReform", {.min_nodes = 1, .reform = 3, .cuts = 1, .spared = 2}},
                      Named{"SomeWorkersReform", {.reform = 1, .failures = 1}},
                      Named{"SurvivorsTwice", {.min_nodes = 1, .reform = 1, .failures = 1, .deaths = 1, .repeats = 1}}),
    [](const auto& info) { return info.param.name; });

// A member that decides something is in the digest: else states of one digest would have different futures.
TEST(DigestTest, EqualStates_HaveEqualSuccessors) {
  const Exploration explored = Explore({.min_nodes = 1, .reform = 1, .failures = 1, .crashes = 1}, 20'000, true);
  EXPECT_EQ(explored.violation, "") << explored.history;
}

int ExploreGiven(int count, char** arguments) {
  World::Settings world;
  int compare = 0, most = 20'000'000;
  const std::map<std::string, int*> names = {{"nodes", &world.nodes},
                                             {"late", &world.late},
                                             {"min_nodes", &world.min_nodes},
                                             {"max_nodes", &world.max_nodes},
                                             {"max_restarts", &world.max_restarts},
                                             {"records", &world.records},
                                             {"reform", &world.reform},
                                             {"strays", &world.strays},
                                             {"failures", &world.failures},
                                             {"cuts", &world.cuts},
                                             {"crashes", &world.crashes},
                                             {"deaths", &world.deaths},
                                             {"leaves", &world.leaves},
                                             {"repeats", &world.repeats},
                                             {"spared", &world.spared},
                                             {"while_suspended", &world.while_suspended},
                                             {"compare", &compare},
                                             {"most", &most}};
  for (int i = 0; i < count; ++i) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(arguments[i], absl::MaxSplits('=', 1));
    const auto name = names.find(pair.first);
    if (name != names.end() && absl::SimpleAtoi(pair.second, name->second)) continue;
    std::fprintf(stderr, "not understood: %s\n", arguments[i]);
    return 2;
  }
  const SteadyTime began = SteadyNow();
  const Exploration e = Explore(world, most, compare != 0);
  if (!e.violation.empty()) std::printf("%s\n%s\n", e.history.c_str(), e.violation.c_str());
  std::printf("%zu states, %zu transitions, %zu ends, %.1f s%s\n", e.states, e.transitions, e.ends,
              absl::ToDoubleSeconds(SteadyNow() - began), e.states >= static_cast<size_t>(most) ? ": not all" : "");
  return e.violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return argc > 1 ? ddprun::testing::ExploreGiven(argc - 1, argv + 1) : RUN_ALL_TESTS();
}
