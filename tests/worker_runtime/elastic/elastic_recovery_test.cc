// Real workers that die at every place of a step. The output and the final models are those of a training without the
// failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker_runtime/elastic/elastic_job.h"
#include "tests/worker_runtime/elastic/elastic_output.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using worker_contract::LinkCheckpointed;
using worker_contract::LinkCheckpointNow;
using worker_contract::LinkFailed;
using worker_contract::LinkHello;
using worker_contract::LinkReFormed;

constexpr int64_t kSteps = 8;

std::vector<std::string> Arguments(std::vector<std::string> more = {}, int64_t steps = kSteps) {
  more.push_back(absl::StrCat("--steps=", steps));
  return more;
}

// Output of a training without failures, which runs once for each number of ranks.
const std::string& ReferenceOf(int n) {
  static auto* const made = new std::map<int, std::string>;
  std::string& out = (*made)[n];
  if (out.empty()) {
    ElasticJob job(n, Arguments());
    EXPECT_EQ(job.Wait(), 0) << job.Err();
    out = job.Out();
    EXPECT_EQ(ModelsIn(out).size(), n);
  }
  return out;
}

// Expects that all workers succeed and print what they would have printed without a failure.
void ExpectUnchanged(ElasticJob& job, int n) {
  EXPECT_EQ(job.Wait(), 0) << job.Err();
  ExpectSameTraining(job.Out(), ReferenceOf(n), kSteps);
}

TEST(Recovery, Reference_AllRanksEndWithTheSameModel) {
  const auto models = ModelsIn(ReferenceOf(3));
  for (const auto& [rank, model] : models) EXPECT_EQ(model, models.at(0)) << rank;
}

class DeathTest : public ::testing::TestWithParam<Death> {};

TEST_P(DeathTest, Death_OneRank_SurvivorsContinueBitForBit) {
  const Death& death = GetParam();
  const TempDir folder;
  std::vector<std::string> more = {death.HoldFlag()};
  if (death.place == "save") more.push_back(absl::StrCat("--folder=", folder.path()));
  ElasticJob job(death.ranks, Arguments(more));
  std::map<int, pid_t> pids;
  for (int rank = 0; rank < death.ranks; ++rank) pids[rank] = job[rank].pid();
  job.KillHolding(death.dies, death.place);
  job.NextRound();
  EXPECT_EQ(job.held().size(), death.ranks - 1);
  for (const auto& [rank, pid] : pids) EXPECT_EQ(job[rank].pid() == pid, rank != death.dies);
  ExpectUnchanged(job, death.ranks);
}

INSTANTIATE_TEST_SUITE_P(All, DeathTest,
                         ::testing::Values(Death{2, 0, "forward", 3}, Death{2, 1, "forward", 3},
                                           Death{4, 2, "backward", 3}, Death{3, 0, "backward", 3},
                                           Death{2, 1, "forward", 0}, Death{3, 1, "backward", 1},
                                           Death{3, 0, "committed", 0}, Death{2, 0, "reduced", 4},
                                           Death{2, 0, "save", 4}, Death{3, 2, "committed", kSteps - 1}));

// A broadcast over four ranks: 0 sends to 1 and 2, and 1 to 3. While 3 is held, 1 waits for it, and 0 and 2 finish the
// step.
TEST(Recovery, SurvivorsOneStepApart_Recovery_UsesTheMoreAdvancedState) {
  ElasticJob job(4, Arguments({"--hold=3:3:reduced", "--hold=2:3:committed"}));
  ASSERT_TRUE(job[3].WaitForOut("holding reduced")) << job.Err();
  ASSERT_TRUE(job[0].WaitForOut("step 4 rank 0")) << job.Err();
  job.KillHolding(2, "committed");
  job.NextRound();
  EXPECT_EQ(job.held(), (std::map<int, std::optional<int64_t>>{{0, 4}, {1, 3}, {3, 3}}));
  ExpectUnchanged(job, 4);
  EXPECT_THAT(job[1].Out(), HasSubstr("from 4\n"));
}

TEST(Recovery, MoreAdvancedRanksDie_Recovery_RepeatsTheStep) {
  ElasticJob job(4, Arguments({"--hold=3:3:reduced"}));
  ASSERT_TRUE(job[0].WaitForOut("step 4 rank 0")) << job.Err();
  ASSERT_TRUE(job[2].WaitForOut("step 4 rank 2")) << job.Err();
  job.Kill(0);
  job.Kill(2);
  job.NextRound();
  EXPECT_EQ(job.held(), (std::map<int, std::optional<int64_t>>{{1, 3}, {3, 3}}));
  ExpectUnchanged(job, 4);
  EXPECT_THAT(job[1].Out(), HasSubstr("from 3\n"));
}

TEST(Recovery, AllRanksDie_Training_ContinuesFromTheCheckpoint) {
  const TempDir folder;
  ElasticJob job(2, Arguments({absl::StrCat("--folder=", folder.path()), "--every=3", "--hold=1:5:forward"}));
  ASSERT_TRUE(job[1].WaitForOut("holding forward")) << job.Err();
  job.Kill(0);
  job.Kill(1);
  job.NextRound();
  ExpectUnchanged(job, 2);
  EXPECT_FALSE(job[0].Out().find("step 3 ") != std::string::npos) << "it is in the checkpoint";
  EXPECT_THAT(job[0].Out(), HasSubstr("step 4 "));
}

TEST(Recovery, SourceDiesWhileSending_Recovery_UsesAnotherWithTheSameState) {
  ElasticJob job(3, Arguments({"--hold=1:2:forward", "--hold=0:2:sending"}));
  job.KillHolding(1);
  job.NextRound();
  job.KillHolding(0, "sending");
  job.NextRound();
  EXPECT_EQ(job.held(), (std::map<int, std::optional<int64_t>>{{1, std::nullopt}, {2, 2}}));
  ExpectUnchanged(job, 3);
}

TEST(Recovery, ReFormed_AfterRecovery_HasStepAndSource) {
  ElasticJob job(2, Arguments({"--hold=0:5:forward"}));
  job.KillHolding(0);
  job.NextRound();
  EXPECT_EQ(job.link(1).Await<LinkReFormed>(), (LinkReFormed{.round = 2, .step = 5, .source = 1}));
  EXPECT_EQ(job.Wait(), 0) << job.Err();
}

TEST(Recovery, CheckpointNow_AllRanks_SaveAfterTheStep) {
  const TempDir folder;
  ElasticJob job(2, Arguments({absl::StrCat("--folder=", folder.path()), "--every=1000000", "--hold=1:2:forward"}, 30));
  ASSERT_TRUE(job[1].WaitForOut("holding forward")) << job.Err();
  job.link(0).SendToLauncher(LinkCheckpointNow{absl::Seconds(30)});
  job.Kill(1);
  job.NextRound();
  const std::optional<LinkCheckpointed> saved = job.link(0).Await<LinkCheckpointed>();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->step, 2) << "the wish has outlived the round";
  EXPECT_EQ(job.link(1).Await<LinkCheckpointed>(), saved);
  EXPECT_EQ(job.Wait(), 0) << job.Err();
}

TEST(Recovery, TrainersError_Training_EndsTheWorker) {
  ElasticJob job(2, Arguments({"--fail=1:3"}));
  EXPECT_EQ(job[1].Wait(), 1);
  EXPECT_THAT(job[1].Err(), HasSubstr("no such file"));
  const std::optional<LinkFailed> failed = job.link(0).Await<LinkFailed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT(failed->message, HasSubstr("no such file"));
}

TEST(Recovery, SecondDeath_NextRound_Recovers) {
  ElasticJob job(3, Arguments({"--hold=1:2:forward"}));
  job.KillHolding(1);
  job.NextRound();
  // The newcomer dies before its group is formed: ranks 0 and 2 wait for it.
  job.Kill(1);
  job.NextRound();
  EXPECT_EQ(job.held(), (std::map<int, std::optional<int64_t>>{{0, 2}, {2, 2}}));
  ExpectUnchanged(job, 3);
}

// Gloo waits for its connection, which never arrives, and this wait can't be interrupted.
TEST(Recovery, NewRankDiesWhileConnecting_Survivors_LeaveAtOnce) {
  ElasticJob job(3, Arguments({"--hold=1:2:forward", "--die-connecting=2:1", "--die-connecting=3:1"}));
  job.KillHolding(1);
  for (int death = 0; death < 2; ++death) {
    job.NextRound();
    ASSERT_TRUE(job[1].WaitForOut("dies connecting")) << job.Err();
    job.Kill(1);
  }
  job.NextRound();
  EXPECT_EQ(job.held(), (std::map<int, std::optional<int64_t>>{{0, 2}, {2, 2}}));
  ExpectUnchanged(job, 3);
  EXPECT_THAT(job.Err(), Not(HasSubstr("Connect timeout")));
}

TEST(Recovery, SuspendAtStepEnd_WorldGrowsAndShrinks_NoStepIsLost) {
  ElasticJob job(2, Arguments({"--samples=100"}, 60));
  ASSERT_TRUE(job[0].WaitForOut("step 3 ")) << job.Err();
  job.Suspend(/*at_step_end=*/true);
  job.Begin(3);
  ASSERT_TRUE(job[2].WaitForOut("step ")) << job.Err();
  job.Suspend(/*at_step_end=*/true);
  job.Kill(1);
  job.Begin(2);
  EXPECT_EQ(job.Wait(), 0) << job.Err();
  const auto losses = LossesIn(job.Out());
  EXPECT_EQ(losses.size(), 60);
  EXPECT_EQ(ModelsIn(job.Out()).at(0), ModelsIn(job.Out()).at(1));
}

// Scales are powers of two, so that the losses are those without scaling, as long as all ranks have the same scale.
TEST(Recovery, GradScaler_Recovery_IsRolledBackAndSent) {
  ElasticJob job(2, Arguments({"--scaler", "--hold=1:3:backward"}));
  job.KillHolding(1, "backward");
  job.NextRound();
  ExpectUnchanged(job, 2);
}

TEST(Recovery, SchedulerIsSteppedInCommit_Training_ReturnsError) {
  ElasticJob job(2, Arguments({"--step-scheduler"}));
  EXPECT_EQ(job[0].Wait(), 1);
  EXPECT_THAT(job[0].Err(), HasSubstr("the step has stepped the scheduler"));
}

TEST(Recovery, Metrics_StepIsRepeated_CountItOnce) {
  ElasticJob job(2, Arguments({"--hold=1:2:forward", "--count"}));
  job.KillHolding(1);
  job.NextRound();
  ExpectUnchanged(job, 2);
  EXPECT_THAT(job[0].Out(), HasSubstr(absl::StrCat("counted ", kSteps + kSteps - 2, "\n"))) << "rank 1 has lost two";
}

TEST(Recovery, RanksDiverge_Recovery_ErrorNamesTheParts) {
  ElasticJob job(3, Arguments({"--hold=1:2:forward", "--diverge=1"}));
  job.KillHolding(1);
  job.NextRound();
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(job[rank].Wait(), 1);
    EXPECT_THAT(job[rank].Err(),
                HasSubstr("the ranks' training states differ: the parameters of rank 1 (compared with rank 0)"));
  }
}

TEST(Recovery, RanksDrawUnequally_FirstStep_ReturnsError) {
  ElasticJob job(2, Arguments({"--draws-more=1"}));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(job[rank].Wait(), 78) << "a restart draws unequally, too";
    EXPECT_THAT(job[rank].Err(), HasSubstr("all ranks must call Step::Next equally often"));
  }
}

TEST(Recovery, DiskIsFullForAWhile_Training_Continues) {
  for (const char* how : {"--ledger", "--async"}) {
    const TempDir folder;
    ElasticJob job(2, Arguments({absl::StrCat("--folder=", folder.path()), "--every=1", how, "--full-disk=2:4"}));
    ExpectUnchanged(job, 2);
    EXPECT_THAT(job.Err(), HasSubstr("(failure 2 in a row; 5 end the training)"));
    EXPECT_THAT(job.Err(), HasSubstr("No space left on device"));
  }
}

// Without a checkpoint, a restart would begin at step 0.
TEST(Recovery, DiskStaysFull_Training_FailsNonRestartableWithoutCheckpoint) {
  const TempDir folder;
  const std::string flag = absl::StrCat("--folder=", folder.path());
  for (const char* how : {"--pause=0", "--async"}) {
    ElasticJob often(2, Arguments({flag, "--every=1", how, "--full-disk=1:1000"}, 100));
    EXPECT_EQ(often.Wait(), 78);
    EXPECT_THAT(often.Out(), HasSubstr("step 5 rank 0"));
    EXPECT_THAT(often.Out(), Not(HasSubstr("step 7 rank 0")));
    EXPECT_THAT(often.Err(), HasSubstr(absl::StrCat("no rank has a checkpoint of this training in ", folder.path())));
    ElasticJob at_the_end(2, Arguments({flag, "--every=1000", how, "--full-disk=8:8"}));
    EXPECT_EQ(at_the_end.Wait(), 78) << "what was trained is lost";
    EXPECT_THAT(at_the_end.Err(), HasSubstr("No space left on device"));
  }
  ElasticJob later(2, Arguments({flag, "--every=1", "--full-disk=3:1000"}, 100));
  EXPECT_EQ(later.Wait(), 1) << "the next start resumes after step 2";
}

TEST(Recovery, FolderIsRemoved_NextCheckpoint_CreatesIt) {
  const TempDir temp;
  const std::string folder = temp.File("a/b");
  ElasticJob job(2, Arguments({absl::StrCat("--folder=", folder), "--every=2", "--hold=1:5:forward"}));
  ASSERT_TRUE(job[1].WaitForOut("holding forward")) << job.Err();
  std::filesystem::rename(temp.File("a"), temp.File("gone"));
  job.Kill(1);
  job.NextRound();
  ExpectUnchanged(job, 2);
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder, "/step_00000008.safetensors")));
  EXPECT_THAT(job.Err(), Not(HasSubstr("WARNING")));
}

TEST(Recovery, NoCheckpointInALaterRound_Resume_Warns) {
  const TempDir folder;
  for (const bool required : {false, true}) {
    ElasticJob job(2,
                   Arguments({absl::StrCat("--folder=", folder.File(required ? "required" : "wanted")), "--every=1000",
                              "--hold=1:2:forward", absl::StrCat("--require-checkpoint=", required)}));
    ASSERT_TRUE(job[1].WaitForOut("holding forward")) << job.Err();
    for (const int rank : {0, 1}) job.Kill(rank);
    job.Begin();
    EXPECT_EQ(job.Wait(), required ? 78 : 0) << job.Err();
    EXPECT_THAT(job[0].Err(), HasSubstr(absl::StrCat("no rank has a checkpoint in ", folder.path())));
    EXPECT_THAT(job[0].Err(), HasSubstr(", but this is round 2"));
    if (!required) {
      EXPECT_THAT(job[0].Err(), HasSubstr("WARNING: training restarts at step 0 (rank 0 is on "));
    }
  }
}

TEST(Recovery, GroupFails_NoSuspend_WorkersRequestANewRound) {
  ElasticJob job(2, Arguments({"--hold=1:3:forward"}));
  job.KillHolding(1);
  const std::optional<LinkFailed> failed = job.link(0).Await<LinkFailed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_THAT(failed->message, HasSubstr("rank 1 "));
  job.NextRound();
  ExpectUnchanged(job, 2);
}

TEST(Recovery, LauncherWithoutRounds_GroupFails_WorkerEndsWithTheError) {
  ElasticJob job(2, Arguments({"--hold=1:3:forward"}));
  ASSERT_TRUE(job[1].WaitForOut("holding forward")) << job.Err();
  job.link(0).Await<LinkHello>();
  job.link(0).Close();
  job.Kill(1);
  EXPECT_EQ(job[0].Wait(), 1);
  EXPECT_THAT(job[0].Err(), HasSubstr("rank 1 "));
}

}  // namespace
}  // namespace ddprun::testing
