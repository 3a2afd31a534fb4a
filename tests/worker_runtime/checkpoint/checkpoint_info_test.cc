#include "worker_runtime/checkpoint/checkpoint_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CheckpointNames, IdOfModelFile_OwnName_RoundTrips) {
  EXPECT_EQ(ModelFileName({1, 1200}), "step_00001200.safetensors");
  EXPECT_EQ(ModelFileName({2, 1200}), "run_2_step_00001200.safetensors");
  const std::string unique = "0123456789abcdef";
  for (const int64_t run : {1, 2, 31}) {
    for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{99999999}, int64_t{123456789012}}) {
      const CheckpointId id = {run, step};
      EXPECT_EQ(IdOfModelFile(ModelFileName(id)), id);
      EXPECT_EQ(IdOfStateFile(StateFileName(id, unique)), id);
      EXPECT_FALSE(IdOfModelFile(StateFileName(id, unique)));
      EXPECT_FALSE(IdOfStateFile(ModelFileName(id)));
    }
  }
  EXPECT_EQ(StateFileName({1, 1}, unique), "step_00000001.state-0123456789abcdef.safetensors");
}

TEST(CheckpointNames, IdOfModelFile_OtherName_IsNullopt) {
  for (const char* name :
       {"step_1.safetensors", "step_-0000001.safetensors", "step_ 0000001.safetensors", "step_.safetensors",
        "step_00000001.safetensors.tmp", ".step_00000001.safetensors.ab.tmp", "model.safetensors",
        "step_99999999999999999999999.safetensors", "step_000000001.safetensors", "run_1_step_00000001.safetensors",
        "run__step_00000001.safetensors", "run_02_step_00000001.safetensors", "run_2_step_1.safetensors", ""}) {
    EXPECT_FALSE(IdOfModelFile(name)) << name;
  }
  EXPECT_FALSE(IdOfStateFile("step_00000001.state-../../etc/passwd.safetensors"));
}

TEST(StepsToRemove, StepsToRemove_ManyValid_KeepsTheNewest) {
  EXPECT_THAT(StepsToRemove({{100, true}, {400, true}, {200, true}, {300, true}}, 400, 2), ElementsAre(200, 100));
  EXPECT_THAT(StepsToRemove({{100, true}, {200, true}}, 200, 0), IsEmpty());
  EXPECT_THAT(StepsToRemove({{100, true}, {200, true}}, 200, 5), IsEmpty());
}

TEST(StepsToRemove, StepsToRemove_DamagedOnes_DoNotCountAsKept) {
  EXPECT_THAT(StepsToRemove({{100, true}, {200, false}, {300, true}}, 300, 2), IsEmpty());
  EXPECT_THAT(StepsToRemove({{50, false}, {100, true}, {200, true}, {300, true}}, 300, 2), ElementsAre(100, 50));
}

TEST(StepsToRemove, StepsToRemove_SavedIsOlderThanOthers_KeepsIt) {
  EXPECT_THAT(StepsToRemove({{100, true}, {200, true}, {300, true}}, 100, 1), ElementsAre(200));
  EXPECT_THAT(StepsToRemove({{100, true}, {50, true}, {300, true}}, 100, 1), ElementsAre(50));
}

// Checks the guarantees on random folders.
TEST(StepsToRemove, StepsToRemove_RandomFolders_NeverRemovesTooMuch) {
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::vector<KnownCheckpoint> known;
    for (int64_t step = 0; step < 8; ++step) {
      if (random() % 2) known.push_back({step, random() % 3 != 0});
    }
    const int64_t saved = 8;
    known.push_back({saved, true});
    const int keep = static_cast<int>(random() % 4);
    const std::vector<int64_t> remove = StepsToRemove(known, saved, keep);
    const auto removed = [&](int64_t step) { return std::find(remove.begin(), remove.end(), step) != remove.end(); };
    int valid_left = 0, valid = 0;
    for (const KnownCheckpoint& checkpoint : known) {
      valid += checkpoint.valid;
      valid_left += checkpoint.valid && !removed(checkpoint.step);
    }
    EXPECT_FALSE(removed(saved));
    EXPECT_EQ(valid_left, keep == 0 ? valid : std::min(valid, keep)) << "round " << round;
  }
}

TEST(ChooseOffer, ChooseOffer_SeveralOffers_PrefersRunThenStepThenRoundThenLowestRank) {
  const CheckpointOffer none;
  const auto offer = [](int64_t run, int64_t step, int64_t round = 0, int64_t launcher_round = 0) {
    return CheckpointOffer{true, {run, step}, {round, launcher_round}};
  };
  EXPECT_EQ(ChooseOffer({}), std::nullopt);
  EXPECT_EQ(ChooseOffer({none, none}), std::nullopt);
  EXPECT_EQ(ChooseOffer({none, offer(1, 5)}), 1);
  EXPECT_EQ(ChooseOffer({offer(1, 5), offer(1, 7), none}), 1);
  EXPECT_EQ(ChooseOffer({offer(1, 900), offer(2, 7)}), 1);
  EXPECT_EQ(ChooseOffer({offer(1, 5, 3, 1), offer(1, 5, 4, 0), offer(1, 5, 4, 2), offer(1, 5, 4, 2)}), 2);
}

TEST(CheckpointNames, RanksOfCopies_SeveralHosts_PrefersOtherHosts) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(RanksOfCopies({{1, 1}}, 2), Ranks());
  EXPECT_EQ(RanksOfCopies({{1, 1}, {1, 2}, {1, 3}}, 2), Ranks());  // shared
  EXPECT_EQ(RanksOfCopies({{1, 1}, {1, 1}, {2, 2}, {2, 2}, {3, 3}}, 1), Ranks());
  EXPECT_EQ(RanksOfCopies({{1, 1}, {1, 1}, {2, 2}, {2, 2}, {3, 3}}, 2), Ranks{2});
  EXPECT_EQ(RanksOfCopies({{1, 1}, {1, 1}, {2, 2}, {2, 2}, {3, 3}}, 9), (Ranks{2, 4}));
  // A folder per rank.
  EXPECT_EQ(RanksOfCopies({{1, 1}, {2, 1}, {3, 2}, {4, 2}}, 2), Ranks{2});
  EXPECT_EQ(RanksOfCopies({{1, 1}, {2, 1}, {3, 2}, {4, 2}}, 3), (Ranks{2, 1}));
}

TEST(CheckpointInfo, InfoFromMetadata_OwnMetadata_RoundTrips) {
  CheckpointInfo info;
  info.progress = {.step = 1200,
                   .epoch = 3,
                   .sampler_position = 4096,
                   .sampler_seed = ~uint64_t{0},
                   .user = {{"lr", "0.1"}, {"", "x"}}};
  info.world_size = 4;
  info.version = "9.9";
  info.run = 3;
  info.run_id = "job7";
  info.round = {8, 2};
  const auto read = InfoFromMetadata("f", InfoToMetadata(info), {});
  EXPECT_EQ(read->progress.step, 1200);
  EXPECT_EQ(read->progress.epoch, 3);
  EXPECT_EQ(read->progress.sampler_position, 4096);
  EXPECT_EQ(read->progress.sampler_seed, ~uint64_t{0});
  EXPECT_EQ(read->progress.user, info.progress.user);
  EXPECT_EQ(read->world_size, 4);
  EXPECT_EQ(read->version, "9.9");
  EXPECT_EQ(read->run, 3);
  EXPECT_EQ(read->run_id, "job7");
  EXPECT_EQ(read->round, (CheckpointRound{8, 2}));
}

TEST(CheckpointInfo, InfoFromMetadata_OtherProgramsFile_KeepsDefaults) {
  CheckpointInfo defaults;
  defaults.progress.step = 5;
  const auto read = InfoFromMetadata("f", {{"format", "pt"}}, defaults);
  EXPECT_EQ(read->progress.step, 5);
}

TEST(CheckpointInfo, InfoFromMetadata_BadOrNewer_ReturnsError) {
  EXPECT_THAT(InfoFromMetadata("f", {{"ddprun.step", "-3"}}, {}).status().message(),
              HasSubstr("ddprun.step is \"-3\""));
  EXPECT_THAT(InfoFromMetadata("f", {{"ddprun.world_size", "many"}}, {}).status().message(), HasSubstr("many"));
  EXPECT_EQ(InfoFromMetadata("f", {{"ddprun.format", "2"}}, {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ddprun
