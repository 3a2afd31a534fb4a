#include "worker_runtime/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Steps that have a model, in order.
std::vector<int64_t> Steps(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : NamesIn(folder)) {
    if (const auto id = IdOfModelFile(name)) steps.push_back(id->step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

size_t StateFiles(const std::string& folder) {
  const std::vector<std::string> names = NamesIn(folder);
  return static_cast<size_t>(
      std::count_if(names.begin(), names.end(), [](const auto& name) { return IdOfStateFile(name).has_value(); }));
}

std::string ModelPath(const TempDir& folder, int64_t step) { return folder.File(ModelFileName({1, step})); }
std::string StatePath(const TempDir& folder, int64_t step) {
  return CheckpointFolder(folder.path()).Open({1, step}).value().state->path();
}

TEST(CheckpointFolder, FindNewest_EmptyOrMissingFolder_FindsNothing) {
  TempDir temp;
  EXPECT_FALSE(FindNewest(CheckpointFolder(temp.path())).value().newest);
  EXPECT_FALSE(FindNewest(CheckpointFolder(temp.File("none"))).value().newest);
}

TEST(CheckpointFolder, Save_ManySteps_KeepsOnlyTheNewest) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 6; ++step) {
    ASSERT_TRUE(SaveSample(folder, step * 100, 3).ok());
    EXPECT_EQ(NewestSample(folder).value(), step * 100);
  }
  EXPECT_THAT(Steps(temp.path()), ElementsAre(400, 500, 600));
  EXPECT_EQ(StateFiles(temp.path()), 3u);
  EXPECT_THAT(NamesIn(temp.path()), SizeIs(6));
}

// Names of the files in a folder that `body` opens.
std::vector<std::string> OpenedIn(const std::string& folder, absl::FunctionRef<void()> body) {
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  EXPECT_GE(inotify_add_watch(watch, folder.c_str(), IN_OPEN), 0);
  body();
  std::vector<std::string> names;
  alignas(inotify_event) char events[65536];
  for (ssize_t size; (size = ::read(watch, events, sizeof events)) > 0;) {
    for (const char* at = events; at < events + size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(at);
      if (event->len > 0) names.emplace_back(event->name);
      at += sizeof *event + event->len;
    }
  }
  ::close(watch);
  return names;
}

TEST(CheckpointFolder, Save_AllAreKept_DoesNotReadThemAgain) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(SaveSample(folder, step, /*keep=*/0).ok());
  // A state that was replaced, and one whose model was not written.
  Overwrite(temp.File(StateFileName({1, 4}, "0123456789abcdef")), "old");
  Overwrite(temp.File(StateFileName({1, 9}, "0123456789abcdef")), "alone");
  const std::vector<std::string> opened =
      OpenedIn(temp.path(), [&] { ASSERT_TRUE(SaveSample(folder, 6, /*keep=*/0).ok()); });
  for (const std::string& name : opened) {
    const std::optional<CheckpointId> id = IdOfStateFile(name);
    // The newest is read once, by the next save.
    EXPECT_TRUE(!id || id->step >= 4) << name;
  }
  EXPECT_THAT(Steps(temp.path()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(StateFiles(temp.path()), 6u);
  for (int64_t step = 1; step <= 6; ++step) EXPECT_TRUE(folder.OpenVerified({1, step}).ok()) << step;
}

// A later round has saved the same step again, so the file is not the one that was read before.
TEST(CheckpointFolder, Save_LaterRoundSavedTheStepAgain_IsFailedPrecondition) {
  TempDir temp;
  CheckpointFolder folder(temp.path()), later(temp.path());
  for (const int64_t step : {1, 2}) ASSERT_TRUE(SaveSample(folder, step, 0, 400, {7, 0}).ok());
  ASSERT_TRUE(SaveSample(later, 1, 0, 400, {8, 0}).ok());
  EXPECT_EQ(SaveSample(folder, 3, 0, 400, {7, 0}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CheckpointFolder, FindNewest_NewerOnesDamaged_NamesAndSkipsThem) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(SaveSample(folder, step, 0).ok());
  const std::string six = ReadFile(ModelPath(temp, 6));
  Overwrite(ModelPath(temp, 6), six.substr(0, six.size() - 1));  // cut off
  std::string five = ReadFile(ModelPath(temp, 5));
  five[five.size() - 10] ^= 1;  // a flipped bit among the values
  Overwrite(ModelPath(temp, 5), five);
  ASSERT_EQ(::unlink(StatePath(temp, 4).c_str()), 0);
  std::string state = ReadFile(StatePath(temp, 3));
  state[state.size() - 10] ^= 1;
  Overwrite(StatePath(temp, 3), state);

  const auto search = FindNewest(folder);
  ASSERT_THAT(search->skipped, SizeIs(4));
  EXPECT_THAT(search->skipped[0], HasSubstr("step_00000006.safetensors is not a valid safetensors file"));
  EXPECT_THAT(search->skipped[1],
              HasSubstr("step_00000005.safetensors is damaged: checksum mismatch in tensor \"weight\""));
  EXPECT_THAT(search->skipped[2], HasSubstr("step_00000004.safetensors has no usable state"));
  EXPECT_THAT(search->skipped[3], HasSubstr("checksum mismatch in tensor \"moment\""));
  EXPECT_EQ(NewestSample(folder).value(), 2);
}

TEST(CheckpointFolder, Save_SomeAreDamaged_KeepsEnoughValidOnes) {
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

TEST(CheckpointFolder, Open_StateFilesExchanged_IsDataLoss) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  ASSERT_TRUE(SaveSample(folder, 1, 0).ok());
  ASSERT_TRUE(SaveSample(folder, 2, 0).ok());
  Overwrite(StatePath(temp, 2), ReadFile(StatePath(temp, 1)));
  EXPECT_THAT(folder.Open({1, 2}).status().message(), HasSubstr("is not the state file of"));
}

TEST(CheckpointFolder, Save_AnyOperationFails_EarlierIsIntactAndNothingIsLeft) {
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
    EXPECT_GE(*newest, 1);
    EXPECT_EQ(status.ok(), !failed);
    if (!failed) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("checkpoint of step 2 was not saved"));
    EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
    for (const std::string& name : NamesIn(temp.path())) EXPECT_FALSE(absl::EndsWith(name, ".tmp")) << name;
    // The next one works and leaves only itself.
    ASSERT_TRUE(SaveSample(plain, 3, 1).ok());
    EXPECT_THAT(NamesIn(temp.path()), SizeIs(2)) << "operation " << failing;
  }
}

// A node that was cut off continues to save after the others have restarted without it.
TEST(CheckpointFolder, Save_LaterRoundHasSaved_IsFailedPreconditionAndChangesNothing) {
  for (const CheckpointRound mine : {CheckpointRound{7, 9}, CheckpointRound{8, 1}}) {
    TempDir temp;
    CheckpointFolder folder(temp.path());
    ASSERT_TRUE(SaveSample(folder, 1200, 1, 400, {8, 2}).ok());
    const std::string model = ReadFile(ModelPath(temp, 1200));
    for (const int64_t step : {int64_t{1200}, int64_t{1300}}) {
      const absl::Status status = SaveSample(folder, step, 1, 400, mine);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(status.message(), HasSubstr("this process was replaced and must end"));
    }
    EXPECT_EQ(ReadFile(ModelPath(temp, 1200)), model);
    EXPECT_THAT(NamesIn(temp.path()), SizeIs(2));
  }
}

// The other round's checkpoint arrives while this one is being written.
TEST(CheckpointFolder, Save_LaterRoundSavesMeanwhile_DoesNotOverwriteIt) {
  TempDir temp;
  CheckpointFolder later(temp.path());
  bool saved = false;
  HookedFiles files([&](const std::string& operation, const std::string& path) {
    if (operation == "sync" && absl::StrContains(path, ".state-") && !std::exchange(saved, true)) {
      EXPECT_TRUE(SaveSample(later, 1200, 1, 400, {8, 0}).ok());
    }
    return absl::OkStatus();
  });
  CheckpointFolder cut_off(temp.path(), files);
  EXPECT_FALSE(SaveSample(cut_off, 1200, 1, 600, {7, 0}).ok());
  EXPECT_TRUE(saved);
  EXPECT_EQ(FindNewest(later)->newest->info.round, (CheckpointRound{8, 0}));
  EXPECT_THAT(NamesIn(temp.path()), SizeIs(2));
}

// A new training in the folder of an older one, with smaller steps and one step that both have.
TEST(CheckpointFolder, Save_OtherRunInTheFolder_KeepsItsFiles) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  for (const int64_t step : {800, 900}) ASSERT_TRUE(SaveSample(folder, step, 2).ok());
  for (const int64_t step : {700, 800, 810, 820}) ASSERT_TRUE(SaveSample(folder, step, 2, 400, {}, 2).ok());
  const std::vector<CheckpointId> expected = {{2, 820}, {2, 810}, {1, 900}, {1, 800}};
  EXPECT_EQ(folder.List().value(), expected);
  for (const CheckpointId id : expected) EXPECT_TRUE(folder.OpenVerified(id).ok());
  EXPECT_THAT(NamesIn(temp.path()), SizeIs(8));
  ASSERT_TRUE(SaveSample(folder, 910, 1).ok());
  EXPECT_EQ(folder.List().value(), (std::vector<CheckpointId>{{2, 820}, {2, 810}, {1, 910}}));
}

TEST(CheckpointFolder, Save_FilesOfADeadWriter_RemovesOnlyThem) {
  TempDir temp;
  const std::string dead = temp.File(".step_00000001.safetensors.0123.tmp");
  const std::string foreign = temp.File(".best.safetensors.0123.tmp");
  Overwrite(dead, "half");
  Overwrite(foreign, "another writer's");
  CheckpointFolder folder(temp.path());
  ASSERT_TRUE(SaveSample(folder, 2, 1).ok());
  EXPECT_EQ(::access(dead.c_str(), F_OK), -1);
  EXPECT_EQ(::access(foreign.c_str(), F_OK), 0);
}

TEST(CheckpointFolder, Save_FolderWasRemoved_CreatesItAgain) {
  TempDir temp;
  CheckpointFolder folder(temp.File("gone/folder"));
  EXPECT_EQ(SaveSample(folder, 2, 1), absl::OkStatus());
}

TEST(CheckpointFolder, Save_FolderCantBeCreated_ErrorIsOneLine) {
  TempDir temp;
  std::ofstream(temp.File("file"));
  CheckpointFolder folder(temp.File("file/folder"));
  const absl::Status status = SaveSample(folder, 2, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("file/folder"));
}

// A checkpoint with flipped bits or missing bytes in either file is never taken for intact.
TEST(CheckpointFolder, FindNewest_RandomDamage_FallsBackToTheOneBefore) {
  TempDir temp;
  CheckpointFolder folder(temp.path());
  ASSERT_TRUE(SaveSample(folder, 1, 0, 600).ok());
  ASSERT_TRUE(SaveSample(folder, 2, 0, 600).ok());
  const std::vector<std::string> paths = {ModelPath(temp, 2), StatePath(temp, 2)};
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::string& path = paths[random() % 2];
    const std::string whole = ReadFile(path);
    std::string damaged = whole;
    if (random() % 4 == 0) {
      damaged.resize(random() % whole.size());
    } else {
      for (unsigned bits = 1 + random() % 3; bits > 0; --bits)
        damaged[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    }
    Overwrite(path, damaged);
    const auto newest = NewestSample(folder);
    ASSERT_EQ(*newest, damaged == whole ? 2 : 1) << "round " << round;
    Overwrite(path, whole);
  }
  EXPECT_EQ(NewestSample(folder).value(), 2);
}

}  // namespace
}  // namespace ddprun::testing
