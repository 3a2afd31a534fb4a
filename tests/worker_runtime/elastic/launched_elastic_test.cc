// Elastic trainings under real launchers, with workers that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "tests/e2e/launch.h"
#include "tests/worker_runtime/elastic/elastic_output.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 8;

std::vector<std::string> Flags(int n, std::vector<std::string> more = {}, bool preload = false) {
  std::vector<std::string> flags = {"--standalone", absl::StrCat("--nproc-per-node=", n), "--max-restarts=3",
                                    "--no-python"};
  if (preload) flags.push_back("--preload");
  flags.push_back("tests/worker_runtime/elastic/elastic_program");
  flags.push_back(absl::StrCat("--steps=", kSteps));
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

// Output of a training without failures, which runs once for each number of ranks.
const std::string& ReferenceOf(int n) {
  static auto* const made = new std::map<int, std::string>;
  std::string& out = (*made)[n];
  if (out.empty()) {
    Launcher launcher(Flags(n), kOneThread);
    EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
    out = launcher.Out();
    EXPECT_EQ(ModelsIn(out).size(), n);
  }
  return out;
}

// Expects that the job succeeds and prints what it would have printed without a failure.
void ExpectUnchanged(Launcher& launcher, int n) {
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  ExpectSameTraining(launcher.Out(), ReferenceOf(n), kSteps);
}

// Id of the first process of this rank.
pid_t PidOf(const std::string& out, int rank) {
  for (const auto& [other, pid] : ProcessesIn(out)) {
    if (other == rank) return pid;
  }
  return 0;
}

class LaunchedDeathTest : public ::testing::TestWithParam<Death> {};

TEST_P(LaunchedDeathTest, OnlyItsProcessIsReplaced_AndTheBitsAreTheSame) {
  const Death& death = GetParam();
  const TempDir folder;
  std::vector<std::string> more = {death.HoldFlag()};
  if (death.place == "save") more.push_back(absl::StrCat("--folder=", folder.path()));
  if (death.place == "evaluation") more.push_back("--evaluate=4");
  Launcher launcher(Flags(death.ranks, more, death.preload), kOneThread);
  ASSERT_TRUE(launcher.WaitForOut(absl::StrCat("holding ", death.place))) << launcher.Err();
  kill(PidOf(launcher.Out(), death.dies), SIGKILL);
  ExpectUnchanged(launcher, death.ranks);
  for (const auto& [rank, starts] : StartsIn(launcher.Out())) EXPECT_EQ(starts, rank == death.dies ? 2 : 1) << rank;
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("--preload"))) << "workers were not forked";
  if (death.place != "evaluation") return;
  const auto evaluations = LossesIn(launcher.Out(), "evaluation");
  ASSERT_EQ(evaluations.size(), 2) << "after 4 and after 8 steps";
  for (const auto& [steps, losses] : evaluations) {
    EXPECT_EQ(losses.size(), death.ranks) << "all ranks have made the one after " << steps << " steps";
    for (const auto& [rank, loss] : losses) EXPECT_EQ(loss, losses.begin()->second);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LaunchedDeathTest,
                         ::testing::Values(Death{2, 0, "forward", 3}, Death{2, 1, "backward", 3},
                                           Death{4, 2, "backward", 4}, Death{2, 1, "forward", 0},
                                           Death{2, 0, "save", 4}, Death{2, 1, "backward", 3, true},
                                           Death{2, 1, "committed", kSteps - 1}, Death{2, 0, "evaluation", 4},
                                           Death{3, 1, "evaluation", kSteps}));

// Two successors die before they have connected to the survivors.
TEST(LaunchedElastic, SuccessorsDieWhileTheyConnect_SurvivorsKeepTheirProcesses) {
  Launcher launcher(Flags(3, {"--hold=2:3:forward", "--die-connecting=2:2", "--die-connecting=3:2"}), kOneThread);
  ASSERT_TRUE(launcher.WaitForOut("holding forward")) << launcher.Err();
  kill(PidOf(launcher.Out(), 2), SIGKILL);
  ExpectUnchanged(launcher, 3);
  EXPECT_EQ(Count(launcher.Out(), "dies connecting"), 2);
  EXPECT_EQ(StartsIn(launcher.Out()), (std::map<int, int>{{0, 1}, {1, 1}, {2, 4}})) << launcher.Err();
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("did not suspend in time")));
}

TEST(LaunchedElastic, HungWorker_IsNamedWithItsPhase_AndReplaced) {
  std::vector<std::string> flags = Flags(2, {"--hold=1:3:forward", "--pause=20"});
  flags.insert(flags.begin(), "--on-hang=restart:5");
  Launcher launcher(flags, kOneThread);
  ExpectUnchanged(launcher, 2);
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 1 has been in phase forward of step 3 for 5."));
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 0 waits in phase backward of step 3"));
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 3);
}

TEST(LaunchedElastic, EvaluationAndEndOfTheTraining_AreNoHangs) {
  std::vector<std::string> flags = Flags(2, {"--evaluate=2", "--hold=1:6:evaluation", "--pause=20", "--linger=8"});
  flags.insert(flags.begin(), "--on-hang=report:4");
  Launcher launcher(flags, kOneThread);
  ASSERT_TRUE(launcher.WaitForErr("ranks 0-1 have been in phase evaluation of step 6 for 4.")) << launcher.Err();
  kill(PidOf(launcher.Out(), 1), SIGKILL);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "have been in"), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "has been in"), 0)
      << "a rank that has finished is no rank that hangs: " << launcher.Err();
}

TEST(LaunchedElastic, DebugDetail_TheBitsAreTheSame_AlsoAfterADeath) {
  Launcher launcher(Flags(2, {"--hold=1:3:backward"}),
                    {{"OMP_NUM_THREADS", "1"}, {"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}});
  ASSERT_TRUE(launcher.WaitForOut("holding backward")) << launcher.Err();
  kill(PidOf(launcher.Out(), 1), SIGKILL);
  ExpectUnchanged(launcher, 2);
  EXPECT_EQ(StartsIn(launcher.Out()), (std::map<int, int>{{0, 1}, {1, 2}})) << launcher.Err();
}

// A restart changes none of these.
TEST(LaunchedElastic, WrongSettings_AreNotRestarted) {
  for (const auto& [name, value, why] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"TORCH_DISTRIBUTED_DEBUG", "MOST", "TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL"},
           {"GLOO_SOCKET_IFNAME", "none0", "gloo can't listen on \"none0\""}}) {
    Launcher launcher(Flags(2), {{"OMP_NUM_THREADS", "1"}, {name, value}});
    EXPECT_EQ(launcher.Wait(), 78) << launcher.Err();
    EXPECT_THAT(OneLine(launcher.Err(), SIZE_MAX), HasSubstr(why));
    EXPECT_LE(ProcessesIn(launcher.Out()).size(), 2);
  }
}

TEST(LaunchedElastic, OneRankFailsAgainAndAgainAtOneStep_TheJobEndsWith79) {
  std::vector<std::string> flags = Flags(2, {"--crash=1:3", "--pause=20"});
  flags.insert(flags.begin(), "--rdzv-conf=max_failures_at_step=2");
  Launcher launcher(flags, kOneThread);
  EXPECT_EQ(launcher.Wait(), 79) << launcher.Err();
  EXPECT_THAT(OneLine(launcher.Err(), SIZE_MAX), HasSubstr("no progress: failed 2 times in a row at"));
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 3) << "one restart was left";
}

// The signal arrives before or after the workers have connected.
class WarningTest : public ::testing::TestWithParam<bool> {
 protected:
  static bool HasWorkers(pid_t launcher, int n) {
    std::ifstream file(absl::StrCat("/proc/", launcher, "/task/", launcher, "/children"));
    for (pid_t child = 0; file >> child;) {
      if (ReadFile(absl::StrCat("/proc/", child, "/comm")) == "elastic_program\n") --n;
    }
    return n <= 0;
  }
};

TEST_P(WarningTest, Warning_Workers_SaveAndJobContinues) {
  const TempDir folder;
  std::vector<std::string> flags = Flags(2, {absl::StrCat("--folder=", folder.path()), "--every=1000000"});
  flags.push_back("--steps=1000000");
  Launcher launcher(flags, {{"OMP_NUM_THREADS", "1"}, {"LOGLEVEL", "INFO"}});
  const bool trains = GetParam();
  if (trains) {
    ASSERT_TRUE(launcher.WaitForOut("step 20 rank 0")) << launcher.Err();
  } else {
    ASSERT_TRUE(Eventually([&] { return HasWorkers(launcher.pid(), 2); })) << launcher.Err();
  }
  launcher.Signal(SIGUSR1);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(launcher.WaitForErr(absl::StrCat("rank ", rank, " wrote a checkpoint of step "))) << launcher.Err();
  }
  const int64_t now = LossesIn(launcher.Out()).empty() ? 0 : LossesIn(launcher.Out()).rbegin()->first;
  EXPECT_TRUE(launcher.WaitForOut(absl::StrCat("step ", now + 20, " rank 1"))) << launcher.Err();
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 2);
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("was killed by")));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
}

INSTANTIATE_TEST_SUITE_P(Trains, WarningTest, ::testing::Bool());

TEST(LaunchedElastic, Death_AllRanks_TrainingResumesFromCheckpoint) {
  const TempDir folder;
  Launcher launcher(Flags(2, {absl::StrCat("--folder=", folder.path()), "--every=3", "--hold=1:5:forward"}),
                    kOneThread);
  ASSERT_TRUE(launcher.WaitForOut("holding forward")) << launcher.Err();
  for (const int rank : {0, 1}) kill(PidOf(launcher.Out(), rank), SIGKILL);
  ExpectUnchanged(launcher, 2);
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 4);
  EXPECT_EQ(Count(launcher.Out(), "step 3 "), 2) << "it is in the checkpoint";
  EXPECT_EQ(Count(launcher.Out(), "step 4 "), 4);
}

TEST(LaunchedElastic, JobIsStopped_TheStateIsSaved) {
  const TempDir folder;
  std::vector<std::string> flags = Flags(2, {absl::StrCat("--folder=", folder.path()), "--every=1000000"});
  flags.push_back("--steps=1000000");
  Launcher launcher(flags, kOneThread);
  ASSERT_TRUE(launcher.WaitForOut("step 20 rank 0")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
  EXPECT_THAT(launcher.Out(), HasSubstr("end rank 0"));
  EXPECT_THAT(launcher.Out(), HasSubstr("end rank 1"));
  const int64_t last = LossesIn(launcher.Out()).rbegin()->first;
  Launcher again(Flags(2, {absl::StrCat("--folder=", folder.path()), absl::StrCat("--steps=", last + 1)}), kOneThread);
  EXPECT_EQ(again.Wait(), 0) << again.Err();
  EXPECT_EQ(LossesIn(again.Out()).begin()->first, last + 1) << "the newest step was saved";
}

}  // namespace
}  // namespace ddprun::testing
