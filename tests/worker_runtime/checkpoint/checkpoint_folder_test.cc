#include "worker_runtime/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "worker_runtime/checkpoint/checkpoint_names.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HookedFiles;
using ::testing::IsEmpty;
using testing::NewestSample;
using testing::SaveSample;
using ::testing::SizeIs;
using testing::TempDir;

void Overwrite(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// Names in a folder.
std::vector<std::string> NamesIn(const std::string& folder) { return ListFolder(folder).value(); }

// Steps whose model is there, in order.
std::vector<int64_t> Steps(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : NamesIn(folder)) {
    if (const auto step = StepOfModelFile(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

size_t StateFiles(const std::string& folder) {
  const std::vector<std::string> names = ListFolder(folder).value();
  return static_cast<size_t>(
      std::count_if(names.begin(), names.end(), [](const auto& name) { return IsStateFile(name); }));
}

std::string ModelPath(const TempDir& folder, int64_t step) { return folder.File(ModelFileName(step)); }
std::string StatePath(const TempDir& folder, int64_t step) {
  return CheckpointFolder(folder.path()).Open(step).value().state->path();
}

TEST(CheckpointFolder, FindNewest_EmptyOrMissingFolder_FindsNothing) {
  TempDir temp;
  EXPECT_FALSE(CheckpointFolder(temp.path()).FindNewest().value().newest);
  EXPECT_FALSE(CheckpointFolder(temp.File("none")).FindNewest().value().newest);
}

TEST(CheckpointFolder, Save_ManySteps_KeepsTheNewestAndNothingElse) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 6; ++step) {
    ASSERT_TRUE(SaveSample(folder, step * 100, 3).ok());
    EXPECT_EQ(NewestSample(folder).value(), step * 100);
  }
  EXPECT_THAT(Steps(temp.path()), ElementsAre(400, 500, 600));
  EXPECT_EQ(StateFiles(temp.path()), 3u);
  EXPECT_THAT(ListFolder(temp.path()).value(), SizeIs(6));
}

TEST(CheckpointFolder, FindNewest_DamagedNewer_AreNamedAndSkipped) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(SaveSample(folder, step, 0).ok());
  const std::string six = testing::ReadFile(ModelPath(temp, 6));
  Overwrite(ModelPath(temp, 6), six.substr(0, six.size() - 1));  // cut off
  std::string five = testing::ReadFile(ModelPath(temp, 5));
  five[five.size() - 10] ^= 1;  // a flipped bit among the values
  Overwrite(ModelPath(temp, 5), five);
  ASSERT_EQ(::unlink(StatePath(temp, 4).c_str()), 0);
  std::string state = testing::ReadFile(StatePath(temp, 3));
  state[state.size() - 10] ^= 1;
  Overwrite(StatePath(temp, 3), state);

  const auto search = folder.FindNewest();
  ASSERT_TRUE(search.ok()) << search.status();
  ASSERT_THAT(search->skipped, SizeIs(4));
  EXPECT_THAT(search->skipped[0], HasSubstr("step_00000006.safetensors is not a valid safetensors file"));
  EXPECT_THAT(search->skipped[1],
              HasSubstr("step_00000005.safetensors is damaged: checksum mismatch in tensor \"weight\""));
  EXPECT_THAT(search->skipped[2], HasSubstr("step_00000004.safetensors has no usable state"));
  EXPECT_THAT(search->skipped[3], HasSubstr("checksum mismatch in tensor \"moment\""));
  EXPECT_EQ(NewestSample(folder).value(), 2);
}

TEST(CheckpointFolder, Save_WithDamagedOnesAround_KeepsEnoughValidOnes) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(SaveSample(folder, step, 0).ok());
  Overwrite(ModelPath(temp, 3), "garbage");
  ASSERT_TRUE(SaveSample(folder, 4, 2).ok());
  EXPECT_THAT(Steps(temp.path()), ElementsAre(2, 3, 4));
  ASSERT_TRUE(SaveSample(folder, 5, 2).ok());
  EXPECT_THAT(Steps(temp.path()), ElementsAre(4, 5));
  EXPECT_EQ(StateFiles(temp.path()), 2u);
}

TEST(CheckpointFolder, Open_StatesExchanged_IsRefused) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  ASSERT_TRUE(SaveSample(folder, 1, 0).ok());
  ASSERT_TRUE(SaveSample(folder, 2, 0).ok());
  Overwrite(StatePath(temp, 2), testing::ReadFile(StatePath(temp, 1)));
  EXPECT_THAT(folder.Open(2).status().message(), HasSubstr("is not the state file of"));
}

TEST(CheckpointFolder, Save_EachOperationFails_EarlierIsIntactAndNothingIsLeft) {
  for (int failing = 1;; ++failing) {
    TempDir temp;
    CheckpointFolder plain(temp.path());
    ASSERT_TRUE(SaveSample(plain, 1, 1).ok());
    int count = 0;
    bool failed = false;
    HookedFiles files([&](const std::string& operation, const std::string& path) {
      if (++count != failing || operation == "remove") return absl::OkStatus();
      failed = true;
      return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
    });
    CheckpointFolder folder(temp.path(), files);
    const absl::Status status = SaveSample(folder, 2, 1);
    if (count < failing) {
      EXPECT_GT(failing, 10);
      EXPECT_THAT(Steps(temp.path()), ElementsAre(2));
      break;
    }
    const absl::StatusOr<int64_t> newest = NewestSample(plain);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_GE(*newest, 1);
    EXPECT_EQ(status.ok(), !failed);
    if (!failed) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("checkpoint of step 2 was not saved"));
    EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
    for (const std::string& name : NamesIn(temp.path())) EXPECT_FALSE(absl::EndsWith(name, ".tmp")) << name;
    // The next one works and leaves only itself.
    ASSERT_TRUE(SaveSample(plain, 3, 1).ok());
    EXPECT_THAT(ListFolder(temp.path()).value(), SizeIs(2)) << "operation " << failing;
  }
}

TEST(CheckpointFolder, Save_FolderGone_OneClearLine) {
  TempDir temp;
  CheckpointFolder folder(temp.File("gone"));
  const absl::Status status = SaveSample(folder, 2, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("gone/"));
}

// Bits flipped, bytes cut off, in either file: the damaged one is never taken for whole.
TEST(CheckpointFolder, FindNewest_RandomDamage_FallsBackToTheOneBefore) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  ASSERT_TRUE(SaveSample(folder, 1, 0, 600).ok());
  ASSERT_TRUE(SaveSample(folder, 2, 0, 600).ok());
  const std::vector<std::string> paths = {ModelPath(temp, 2), StatePath(temp, 2)};
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::string& path = paths[random() % 2];
    const std::string whole = testing::ReadFile(path);
    std::string damaged = whole;
    if (random() % 4 == 0) {
      damaged.resize(random() % whole.size());
    } else {
      for (unsigned bits = 1 + random() % 3; bits > 0; --bits)
        damaged[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    }
    Overwrite(path, damaged);
    const auto newest = NewestSample(folder);
    ASSERT_TRUE(newest.ok()) << "round " << round << ": " << newest.status();
    ASSERT_EQ(*newest, damaged == whole ? 2 : 1) << "round " << round;
    Overwrite(path, whole);
  }
  EXPECT_EQ(NewestSample(folder).value(), 2);
}

}  // namespace
}  // namespace ddprun
