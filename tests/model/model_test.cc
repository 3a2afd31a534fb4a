// The models of docs/model.md hold in every state of some small worlds, and seeded mistakes are found.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

struct World {
  const char* name;
  const char* model;
  std::vector<std::string> defines;
  std::string broken;  // spin's message for a mistake; empty: it holds
};

std::string Name(const ::testing::TestParamInfo<World>& info) { return info.param.name; }

bool HasTools() { return std::system("command -v spin gcc >/dev/null 2>&1") == 0; }

class ModelTest : public ::testing::TestWithParam<World> {};

TEST_P(ModelTest, Model_EveryState_HoldsInvariants) {
  if (!HasTools()) GTEST_SKIP() << "no spin or gcc (apt-get install spin)";
  const World& world = GetParam();
  const std::string folder = "tests/model/";
  std::vector<std::string> argv = {"/bin/bash", folder + "check.sh", folder + world.model};
  argv.insert(argv.end(), world.defines.begin(), world.defines.end());
  Process check(argv);
  const int code = check.Wait();
  EXPECT_EQ(code, world.broken.empty() ? 0 : 1) << check.Out() << check.Err();
  EXPECT_NE(check.Out().find(world.broken), std::string::npos) << check.Out();
}

constexpr char kRounds[] = "rounds.pml";
constexpr char kLeader[] = "leader.pml";
constexpr char kTwoWorlds[] = "world[k_]==world[me]";  // invariant 1

INSTANTIATE_TEST_SUITE_P(
    Holds, ModelTest,
    ::testing::Values(
        World{"TwoNodes", kRounds, {}, ""},                                                     //
        World{"OneNodeIsEnough", kRounds, {"-DMIN=1", "-DFAILURES=0"}, ""},                     //
        World{"LauncherKilled", kRounds, {"-DDEATHS=1", "-DCUTS=0"}, ""},                       //
        World{"WithoutRecords", kRounds, {"-DRECORDS=0", "-DMIN=1", "-DFAILURES=0"}, ""},       //
        World{"TwoCuts", kRounds, {"-DMIN=1", "-DCUTS=2", "-DCRASHES=0", "-DFAILURES=0"}, ""},  //
        World{"MessagesTwice", kRounds, {"-DREPEATS=1", "-DCUTS=0"}, ""},                       //
        World{"ThreeNodes", kRounds, {"-DN=3", "-DMAX=3", "-DCRASHES=0", "-DFAILURES=0"}, ""},  //
        World{"Spare", kRounds, {"-DN=3", "-DCUTS=0", "-DCRASHES=0", "-DDEATHS=1"}, ""},
        World{"LauncherLeaves", kRounds, {"-DLEAVES=1", "-DMIN=1", "-DCUTS=0", "-DCRASHES=0"}, ""},
        World{"LauncherLeavesAndServerEnds", kRounds, {"-DLEAVES=1", "-DMIN=1", "-DCUTS=0", "-DFAILURES=0"}, ""},
        World{"WorkersReform", kRounds, {"-DREFORM=3", "-DMIN=1", "-DFAILURES=0"}, ""},
        World{"SomeWorkersReform", kRounds, {"-DREFORM=1", "-DCUTS=0"}, ""},
        World{"ThreeNodesReform", kRounds, {"-DREFORM=7", "-DN=3", "-DMAX=3", "-DCRASHES=0", "-DCUTS=0"}, ""},
        World{"SurvivorsDieMeanwhile",
              kRounds,
              {"-DREFORM=1", "-DREPEATS=1", "-DMIN=1", "-DDEATHS=1", "-DCUTS=0", "-DCRASHES=0"},
              ""},
        World{"EveryRunEnds", kRounds, {"-DLIVENESS", "-DFAILURES=0"}, ""},
        World{"EveryRunEndsAlsoIfWorkersReform", kRounds, {"-DLIVENESS", "-DREFORM=1", "-DCUTS=0"}, ""}),
    Name);

// Without any one of the rules the model fails: so each rule is necessary, and the model can fail.
INSTANTIATE_TEST_SUITE_P(
    Finds, ModelTest,
    ::testing::Values(World{"NoFence", kRounds, {"-DMISTAKE_NO_FENCE", "-DMIN=1"}, kTwoWorlds},
                      World{"StreamEndedAtReset", kRounds, {"-DMISTAKE_ENDS_AT_RESET", "-DMIN=1"}, kTwoWorlds},
                      World{"LateAssignAccepted", kRounds, {"-DMISTAKE_LATE_ASSIGN", "-DMIN=1"}, kTwoWorlds},
                      World{"OldIncarnationAccepted",
                            kRounds,
                            {"-DMISTAKE_FORGETS_INCARNATIONS", "-DMIN=1", "-DCUTS=2", "-DCRASHES=0", "-DFAILURES=0"},
                            kTwoWorlds},
                      World{"ReadyOfAnyRound", kRounds, {"-DMISTAKE_ANY_READY", "-DREPEATS=1"}, kTwoWorlds},
                      World{
                          "ToldBeforeRecorded", kRounds, {"-DMISTAKE_TELLS_BEFORE_RECORD", "-DMIN=1"}, "round>highest"},
                      World{"RanksKept",
                            kRounds,
                            {"-DMISTAKE_KEEPS_RANKS", "-DN=3", "-DMIN=1", "-DDEATHS=1", "-DCUTS=0", "-DCRASHES=0"},
                            "rank"},
                      World{"AssignNotRepeated", kRounds, {"-DMISTAKE_ASSIGNS_ONCE"}, "invalid end state"},
                      World{"LeavesUnfenced",
                            kRounds,
                            {"-DMISTAKE_LEAVES_UNFENCED", "-DLEAVES=1", "-DMIN=1", "-DCUTS=0", "-DCRASHES=0"},
                            kTwoWorlds},
                      World{"SomeWorkersKept", kRounds, {"-DMISTAKE_KEEPS_MIXED", "-DREFORM=1"}, "restarted"},
                      World{"OutdatedWorkersKept",
                            kRounds,
                            {"-DMISTAKE_KEEPS_OUTDATED", "-DREFORM=3", "-DMIN=1", "-DCRASHES=0"},
                            "goes_on"},
                      World{"LateJoinTrusted",
                            kRounds,
                            {"-DMISTAKE_TRUSTS_LATE_JOIN", "-DREFORM=3", "-DMIN=1", "-DFAILURES=0"},
                            "goes_on"},
                      World{"AssignDroppedWhileSurvivorsStop",
                            kRounds,
                            {"-DMISTAKE_DROPS_ASSIGN", "-DREFORM=1", "-DREPEATS=1", "-DMIN=1", "-DDEATHS=1", "-DCUTS=0",
                             "-DCRASHES=0"},
                            "invalid end state"},
                      World{"SurvivorsNeverStopped",
                            kRounds,
                            {"-DLIVENESS", "-DMISTAKE_IGNORES_KEEP", "-DREFORM=1"},
                            "non-progress cycle"}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    LeaderHolds, ModelTest,
    ::testing::Values(World{"TwoServers", kLeader, {"-DS=2", "-DLEADERS=2", "-DWRITES=2"}, ""},
                      World{"ThreeServers", kLeader, {"-DLEADERS=2", "-DWRITES=1"}, ""},
                      World{"SomebodyLeadsAgain", kLeader, {"-DLIVENESS", "-DS=2", "-DLEADERS=2", "-DWRITES=0"}, ""}),
    Name);

INSTANTIATE_TEST_SUITE_P(
    LeaderFinds, ModelTest,
    ::testing::Values(World{"NoFence", kLeader, {"-DMISTAKE_NO_FENCE", "-DS=2"}, "e==latest"},
                      World{"WritesInAnyOrder", kLeader, {"-DMISTAKE_ANY_ORDER", "-DS=2"}, "r>record"},
                      World{"ToldBeforeWritten", kLeader, {"-DMISTAKE_TELLS_BEFORE_WRITTEN", "-DS=2"}, ">=told"},
                      World{"ReadsBeforeItLeads", kLeader, {"-DMISTAKE_READS_EARLY", "-DS=2"}, ">=told"},
                      World{"CountsFromTheAnswer",
                            kLeader,
                            {"-DMISTAKE_COUNTS_FROM_ANSWER", "-DS=2", "-DLEADERS=2", "-DWRITES=1"},
                            "epoch[me]"},
                      World{"UncertainWriteIgnored", kLeader, {"-DMISTAKE_TIMEOUT_IS_WRITTEN", "-DS=2"}, "record>="},
                      World{"KeyOutlivesItsLeader",
                            kLeader,
                            {"-DLIVENESS", "-DMISTAKE_KEY_WITHOUT_LEASE", "-DS=2", "-DLEADERS=1", "-DWRITES=0"},
                            "acceptance cycle"},
                      World{"CampaignsOnce",
                            kLeader,
                            {"-DLIVENESS", "-DMISTAKE_CAMPAIGNS_ONCE", "-DS=2", "-DLEADERS=1", "-DWRITES=0"},
                            "acceptance cycle"}),
    Name);

}  // namespace
}  // namespace ddprun::testing
