// The model of leadership (docs/explorer.md) holds in every state of some small worlds, and seeded mistakes are found.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

struct World {
  const char* name;
  std::vector<std::string> defines;
  std::string broken;  // spin's message for a mistake; empty: it holds
};

std::string Name(const ::testing::TestParamInfo<World>& info) { return info.param.name; }

bool HasTools() { return std::system("command -v spin gcc >/dev/null 2>&1") == 0; }

class ModelTest : public ::testing::TestWithParam<World> {};

TEST_P(ModelTest, Model_EveryState_HoldsInvariants) {
  if (!HasTools()) GTEST_SKIP() << "no spin or gcc (apt-get install spin)";
  const World& world = GetParam();
  std::vector<std::string> argv = {"/bin/bash", "tests/model/check.sh", "tests/model/leader.pml"};
  argv.insert(argv.end(), world.defines.begin(), world.defines.end());
  Process check(argv);
  const int code = check.Wait();
  EXPECT_EQ(code, world.broken.empty() ? 0 : 1) << check.Out() << check.Err();
  EXPECT_NE(check.Out().find(world.broken), std::string::npos) << check.Out();
}

INSTANTIATE_TEST_SUITE_P(
    Holds, ModelTest,
    ::testing::Values(World{"TwoServers", {"-DS=2", "-DLEADERS=2", "-DWRITES=2"}, ""},
                      World{"ThreeServers", {"-DLEADERS=2", "-DWRITES=1"}, ""},
                      World{"SomebodyLeadsAgain", {"-DLIVENESS", "-DS=2", "-DLEADERS=2", "-DWRITES=0"}, ""}),
    Name);

// Without any one of the rules the model fails: so each rule is necessary, and the model can fail.
INSTANTIATE_TEST_SUITE_P(
    Finds, ModelTest,
    ::testing::Values(World{"NoFence", {"-DMISTAKE_NO_FENCE", "-DS=2"}, "e==latest"},
                      World{"WritesInAnyOrder", {"-DMISTAKE_ANY_ORDER", "-DS=2"}, "r>record"},
                      World{"ToldBeforeWritten", {"-DMISTAKE_TELLS_BEFORE_WRITTEN", "-DS=2"}, ">=told"},
                      World{"ReadsBeforeItLeads", {"-DMISTAKE_READS_EARLY", "-DS=2"}, ">=told"},
                      World{"CountsFromTheAnswer",
                            {"-DMISTAKE_COUNTS_FROM_ANSWER", "-DS=2", "-DLEADERS=2", "-DWRITES=1"},
                            "epoch[me]"},
                      World{"UncertainWriteIgnored", {"-DMISTAKE_TIMEOUT_IS_WRITTEN", "-DS=2"}, "record>="},
                      World{"KeyOutlivesItsLeader",
                            {"-DLIVENESS", "-DMISTAKE_KEY_WITHOUT_LEASE", "-DS=2", "-DLEADERS=1", "-DWRITES=0"},
                            "acceptance cycle"},
                      World{"CampaignsOnce",
                            {"-DLIVENESS", "-DMISTAKE_CAMPAIGNS_ONCE", "-DS=2", "-DLEADERS=1", "-DWRITES=0"},
                            "acceptance cycle"}),
    Name);

}  // namespace
}  // namespace ddprun::testing
