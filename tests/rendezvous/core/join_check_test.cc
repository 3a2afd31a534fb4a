#include "rendezvous/core/join_check.h"

#include <vector>

#include "gtest/gtest.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

// Protocol 2.1.
TEST(CheckSurvivorsTest, CheckSurvivors_OutOfBounds_ErrorNamesIt) {
  const auto problem = [](const std::vector<Survivor>& survivors) {
    return CheckSurvivors({survivors.begin(), survivors.end()}, 4).value_or("");
  };
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({NewSurvivor(0, 0), NewSurvivor(1), NewSurvivor(3, 7)}), "");
  EXPECT_EQ(problem({NewSurvivor(4)}), "has local rank 4; it must be 0 to 3");
  EXPECT_EQ(problem({NewSurvivor(-1)}), "has local rank -1; it must be 0 to 3");
  EXPECT_EQ(problem({NewSurvivor(1), NewSurvivor(1)}), "has local rank 1 after 1; they must ascend");
  EXPECT_EQ(problem({NewSurvivor(2), NewSurvivor(1)}), "has local rank 1 after 2; they must ascend");
  EXPECT_EQ(problem({NewSurvivor(2, -1)}), "has step -1 of local rank 2; it must not be negative");
}

TEST(CheckSameSettingsTest, Difference_NamesBothValuesAndHosts) {
  JobSettings a, b;
  EXPECT_EQ(CheckSameSettings("x", "node-a", a, "node-b", b), std::nullopt);
  b.set_max_restarts(3);
  EXPECT_EQ(CheckSameSettings("x", "node-a", a, "node-b", b),
            "--max-restarts is 3 on node-b but 0 on node-a; all nodes of job \"x\" must use the same value");
}

}  // namespace
}  // namespace ddprun::rendezvous
