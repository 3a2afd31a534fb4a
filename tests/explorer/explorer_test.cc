// Small worlds, in every order of events, with the invariants of docs/model.md. explore_world explores larger ones.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/explorer/explore.h"

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
    ::testing::Values(Named{"OneNodeIsEnough", {.min_nodes = 1, .failures = 1}}, Named{"CutOff", {.cuts = 1}},
                      Named{"ServerEnds", {.crashes = 1}},
                      Named{"WithoutRecords", {.min_nodes = 1, .keeps_records = false, .crashes = 1}},
                      Named{"LauncherKilled", {.min_nodes = 1, .failures = 1, .deaths = 1}},
                      Named{"LauncherLeaves", {.min_nodes = 1, .failures = 1, .leaves = 1}},
                      Named{"Spare", {.nodes = 3, .deaths = 1}}, Named{"MessagesTwice", {.failures = 1, .repeats = 1}},
                      Named{"LateNode", {.late = 1, .min_nodes = 1, .failures = 1}},
                      Named{"WorkersReform", {.min_nodes = 1, .reform = 3, .cuts = 1}},
                      Named{"SomeWorkersReform", {.min_nodes = 1, .reform = 1, .failures = 1, .deaths = 1}}),
    [](const auto& info) { return info.param.name; });

// A member that decides something is in the digest: else states of one digest would have different futures.
TEST(DigestTest, EqualStates_HaveEqualSuccessors) {
  const Exploration explored = Explore({.min_nodes = 1, .reform = 1, .failures = 1, .crashes = 1}, 20'000, true);
  EXPECT_EQ(explored.unequal, "");
}

}  // namespace
}  // namespace ddprun::testing
