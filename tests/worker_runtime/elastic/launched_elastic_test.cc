// Elastic trainings under real launchers, with workers that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "absl/strings/str_cat.h"
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

// What a training without failures prints, made once for each number of ranks.
const std::string& ReferenceOf(int n) {
  static auto* const made = new std::map<int, std::string>;
  if (!made->contains(n)) {
    Launcher launcher(Flags(n), kOneThread);
    EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
    (*made)[n] = launcher.Out();
  }
  return (*made)[n];
}

void ExpectUnchanged(const std::string& out, int n) {
  const auto reference = LossesIn(ReferenceOf(n));
  const auto losses = LossesIn(out);
  ASSERT_EQ(reference.size(), kSteps);
  for (int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(losses.contains(step)) << "nobody made step " << step;
    for (const auto& [rank, loss] : losses.at(step)) {
      EXPECT_EQ(loss, reference.at(step).at(rank)) << "step " << step << ", rank " << rank;
    }
  }
  EXPECT_EQ(ModelsIn(out).size(), n);
  EXPECT_EQ(ModelsIn(out), ModelsIn(ReferenceOf(n)));
}

// Of the first process of this rank.
pid_t PidOf(const std::string& out, int rank) {
  for (const auto& [other, pid] : ProcessesIn(out)) {
    if (other == rank) return pid;
  }
  return 0;
}

struct Death {
  int ranks;
  int dies;
  std::string place;
  int64_t step;
  bool preload = false;
};
std::ostream& operator<<(std::ostream& out, const Death& death) {
  return out << "rank " << death.dies << " of " << death.ranks << ", " << death.place << " of step " << death.step
             << (death.preload ? ", forked" : "");
}

class LaunchedDeathTest : public ::testing::TestWithParam<Death> {};

TEST_P(LaunchedDeathTest, OnlyItsProcessIsReplaced_AndTheBitsAreTheSame) {
  const Death& death = GetParam();
  const TempDir folder;
  std::vector<std::string> more = {absl::StrCat("--hold=", death.dies, ":", death.step, ":", death.place)};
  if (death.place == "save") more.push_back(absl::StrCat("--folder=", folder.path()));
  if (death.place == "evaluation") more.push_back("--evaluate=4");
  Launcher launcher(Flags(death.ranks, more, death.preload), kOneThread);
  ASSERT_TRUE(launcher.WaitForOut(absl::StrCat("holding ", death.place))) << launcher.Err();
  kill(PidOf(launcher.Out(), death.dies), SIGKILL);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  std::map<int, int> began;
  for (const auto& [rank, pid] : ProcessesIn(launcher.Out())) ++began[rank];
  for (int rank = 0; rank < death.ranks; ++rank) EXPECT_EQ(began[rank], rank == death.dies ? 2 : 1) << rank;
  ExpectUnchanged(launcher.Out(), death.ranks);
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
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "dies connecting"), 2);
  std::map<int, int> began;
  for (const auto& [rank, pid] : ProcessesIn(launcher.Out())) ++began[rank];
  EXPECT_EQ(began, (std::map<int, int>{{0, 1}, {1, 1}, {2, 4}})) << launcher.Err();
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("did not suspend in time")));
  ExpectUnchanged(launcher.Out(), 3);
}

TEST(LaunchedElastic, HungWorker_IsNamedWithItsPhase_AndReplaced) {
  std::vector<std::string> flags = Flags(2, {"--hold=1:3:forward", "--pause=20"});
  flags.insert(flags.begin(), "--on-hang=restart:5");
  Launcher launcher(flags, kOneThread);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 1 has been in phase forward of step 3 for 5."));
  EXPECT_THAT(launcher.Err(), HasSubstr("rank 0 waits in phase backward of step 3"));
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 3);
  ExpectUnchanged(launcher.Out(), 2);
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

TEST(LaunchedElastic, OneRankFailsAgainAndAgainAtOneStep_TheJobEndsWith79) {
  std::vector<std::string> flags = Flags(2, {"--crash=1:3", "--pause=20"});
  flags.insert(flags.begin(), "--rdzv-conf=max_failures_at_step=2");
  Launcher launcher(flags, kOneThread);
  EXPECT_EQ(launcher.Wait(), 79) << launcher.Err();
  EXPECT_THAT(launcher.Err(), HasSubstr("no progress: failed 2 times in a row at"));
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 3) << "one restart was left";
}

// Before and after the workers have connected.
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

TEST_P(WarningTest, WorkersSave_AndTheJobGoesOn) {
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

TEST(LaunchedElastic, AllDie_TheTrainingGoesOnFromTheCheckpoint) {
  const TempDir folder;
  Launcher launcher(Flags(2, {absl::StrCat("--folder=", folder.path()), "--every=3", "--hold=1:5:forward"}),
                    kOneThread);
  ASSERT_TRUE(launcher.WaitForOut("holding forward")) << launcher.Err();
  for (const int rank : {0, 1}) kill(PidOf(launcher.Out(), rank), SIGKILL);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(ProcessesIn(launcher.Out()).size(), 4);
  EXPECT_EQ(Count(launcher.Out(), "step 3 "), 2) << "it is in the checkpoint";
  EXPECT_EQ(Count(launcher.Out(), "step 4 "), 4);
  ExpectUnchanged(launcher.Out(), 2);
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
