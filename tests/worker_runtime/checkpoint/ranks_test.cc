// Several ranks save and load together.
#include "tests/worker_runtime/testing/ranks.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/checkpoint/tensors_file.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A layer of more than 32 MiB, which is sent in several pieces.
torch::nn::Linear Layer(int rank) {
  torch::nn::Linear layer(3000, 3000);
  const at::NoGradGuard no_grad;
  layer->weight.fill_(rank + 0.5);
  return layer;
}

absl::Status SaveAs(const Group& group, torch::nn::Module& module, const CheckpointerOptions& options, int64_t step,
                    bool finish = true) {
  DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(group, module, nullptr, options));
  const absl::Status status = checkpointer->Save({.step = step});
  return status.ok() && finish ? checkpointer->Finish() : status;
}

absl::StatusOr<CheckpointInfo> ResumeAs(const Group& group, torch::nn::Module& module,
                                        const CheckpointerOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(group, module, nullptr, options));
  return checkpointer->Resume();
}

TEST(CheckpointRanks, SaveAndResume_SharedOrSent_AllRanksHaveRankZerosState) {
  for (const bool shared : {false, true}) {
    for (const bool async : {false, true}) {
      TempDir temp;
      ExpectRanksSucceed(3, [&](int rank, Group group) {
        const CheckpointerOptions options = {.folder = temp.path(), .async = async, .shared_folder = shared};
        torch::nn::Linear layer = Layer(rank);
        EXPECT_EQ(SaveAs(group, *layer, options, 7), absl::OkStatus());
        torch::nn::Linear again = Layer(10 + rank);
        const auto from = ResumeAs(group, *again, options);
        EXPECT_EQ(from->progress.step, 7);
        EXPECT_EQ(from->world_size, 3);
        EXPECT_TRUE((again->weight == 0.5).all().item<bool>()) << "rank " << rank;
      });
    }
  }
}

// Without a shared folder, the node that saved returns with another rank: its checkpoint is found although other nodes
// have older ones and a damaged newer one.
TEST(CheckpointRanks, Resume_NewestOnAnotherRank_SendsItToAll) {
  TempDir temp;
  const auto folder = [&temp](int node) { return temp.File(absl::StrCat("node", node)); };
  torch::nn::Linear layer(2, 2), expected(2, 2);
  for (int node = 0; node < 3; ++node) {
    auto saver = Checkpointer::Create(nullptr, *layer, nullptr, {.folder = folder(node)});
    const at::NoGradGuard no_grad;
    layer->weight.fill_(node);
    ASSERT_TRUE((*saver)->Save({.step = 10 * node + 1}).ok());
    if (node == 1) {
      ASSERT_TRUE(LoadModule(folder(1) + "/step_00000011.safetensors", *expected).ok());
    }
  }
  Damage(folder(2) + "/step_00000021.safetensors");
  ExpectRanksSucceed(4, [&](int rank, Group group) -> absl::Status {
    torch::nn::Linear again(2, 2);
    DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(group, *again, nullptr, {.folder = folder(rank)}));
    DDPRUN_ASSIGN_OR_RETURN(auto from, checkpointer->Resume());
    EXPECT_EQ(from.progress.step, 11);
    EXPECT_EQ(from.path, folder(1) + "/step_00000011.safetensors");
    EXPECT_EQ(from.skipped.size(), 1u);
    EXPECT_EQ(Bits(*again), Bits(*expected));
    return checkpointer->Save({.step = 12});
  });
  // The run continues in rank 0's folder.
  EXPECT_EQ(CheckpointFolder(folder(0)).List().value(), (std::vector<CheckpointId>{{1, 12}, {1, 1}}));
}

TEST(CheckpointRanks, Resume_AllCheckpointsDamaged_IsDataLoss) {
  TempDir temp;
  torch::nn::Linear layer(2, 2);
  ASSERT_TRUE(SaveAs(nullptr, *layer, {.folder = temp.File("node1")}, 5).ok());
  std::ofstream(temp.File("node1/step_00000005.safetensors"), std::ios::binary) << "x";
  std::vector<absl::Status> errors(2);
  ExpectRanksSucceed(2, [&](int rank, Group group) {
    torch::nn::Linear again(2, 2);
    errors[static_cast<size_t>(rank)] =
        ResumeAs(group, *again, {.folder = temp.File(absl::StrCat("node", rank))}).status();
  });
  for (const absl::Status& error : errors) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("no usable checkpoint"), HasSubstr("node1/step_00000005")));
  }
}

// Rank 1 has NaN, for example in a part of the model that the ranks do not share.
TEST(CheckpointRanks, Save_NotFiniteOnOneRank_ErrorNamesItAndKeepsTheLast) {
  TempDir temp;
  std::vector<std::string> errors(2);
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    torch::nn::Linear layer(2, 2);
    DDPRUN_ASSIGN_OR_RETURN(auto checkpointer,
                            Checkpointer::Create(group, *layer, nullptr, {.folder = temp.path(), .keep = 1}));
    DDPRUN_RETURN_IF_ERROR(checkpointer->Save({.step = 1}));
    const at::NoGradGuard no_grad;
    if (rank == 1) layer->bias[1] = std::nan("");
    errors[static_cast<size_t>(rank)] = std::string(checkpointer->Save({.step = 2}).message());
    layer->bias.zero_();
    return checkpointer->Finish();
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("step 2 was not saved, earlier ones are kept: rank 1: parameter \"bias\" has NaN")));
  EXPECT_EQ(CheckpointFolder(temp.path()).List().value(), (std::vector<CheckpointId>{{1, 1}}));
}

// Rank 1 is lost; rank 0 survives with its Checkpointer, and two new ranks join.
TEST(CheckpointRanks, Rebind_SurvivorAndNewRanks_ContinueTheRun) {
  TempDir temp;
  torch::nn::Linear survivor_layer(2, 2);
  std::unique_ptr<Checkpointer> survivor;
  absl::Status status = RunRanks(2, [&](int rank, Group group) -> absl::Status {
    torch::nn::Linear layer(2, 2);
    DDPRUN_ASSIGN_OR_RETURN(
        auto made, Checkpointer::Create(group, rank == 0 ? *survivor_layer : *layer, nullptr, {.folder = temp.path()}));
    DDPRUN_RETURN_IF_ERROR(made->Save({.step = 1}));
    if (rank == 0) survivor = std::move(made);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  status = RunRanks(3, [&](int rank, Group group) -> absl::Status {
    if (rank == 0) {
      survivor->Rebind(group, 7);
      return survivor->Save({.step = 2});
    }
    torch::nn::Linear layer(2, 2);
    return SaveAs(group, *layer, {.folder = temp.path()}, 2, /*finish=*/false);
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(CheckpointFolder(temp.path()).List().value(), (std::vector<CheckpointId>{{1, 2}, {1, 1}}));
  EXPECT_EQ(CheckpointFolder(temp.path()).Open({1, 2})->info.round, (CheckpointRound{1, 7}));
  EXPECT_EQ(CheckpointFolder(temp.path()).Open({1, 2})->info.world_size, 3);
}

// Rank 0 becomes rank 1 while it writes in the background.
TEST(CheckpointRanks, Rebind_FormerRankZeroStillWrites_NextSaveWaitsForIt) {
  for (const bool disk_is_full : {false, true}) {
    TempDir temp;
    std::atomic<int> saving = 0;
    std::atomic<bool> next_began = false;
    HookedFiles files([&](const std::string& operation, const std::string& path) {
      next_began = next_began || operation == "remove" || absl::StrContains(path, "step_00000002");
      if (operation != "sync" || !absl::StrContains(path, "step_00000001")) return absl::OkStatus();
      while (saving < 2) std::this_thread::yield();
      // Gives the next save time for what it must not do yet.
      for (int i = 0; i < 200000 && !next_began; ++i) std::this_thread::yield();
      return disk_is_full ? absl::ResourceExhaustedError("No space left on device") : absl::OkStatus();
    });
    torch::nn::Linear layer(2, 2);
    std::vector<std::unique_ptr<Checkpointer>> members(2);
    ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
      DDPRUN_ASSIGN_OR_RETURN(
          members[static_cast<size_t>(rank)],
          Checkpointer::Create(group, *layer, nullptr, {.folder = temp.path(), .async = true, .files = &files}));
      return members[static_cast<size_t>(rank)]->Save({.step = 1});
    });
    ::testing::internal::CaptureStderr();
    ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
      Checkpointer& checkpointer = *members[static_cast<size_t>(1 - rank)];
      checkpointer.Rebind(group, 2);
      ++saving;
      const absl::Status saved = checkpointer.Save({.step = 2});
      return saved.ok() ? checkpointer.Finish() : saved;
    });
    const std::string err = ::testing::internal::GetCapturedStderr();
    const std::vector<CheckpointId> both = {{1, 2}, {1, 1}}, one = {{1, 2}};
    EXPECT_EQ(CheckpointFolder(temp.path()).List().value(), disk_is_full ? one : both);
    if (disk_is_full) {
      EXPECT_THAT(err, HasSubstr("checkpoint of step 1 was not saved"));
    } else {
      EXPECT_EQ(err, "");
      EXPECT_EQ(CheckpointFolder(temp.path()).Open({1, 1})->info.round, (CheckpointRound{1, 0}));
    }
  }
}

// Nodes without a shared folder: only rank 0 has files.
TEST(CheckpointRanks, Resume_FolderOnlyOnRankZero_SendsItToAll) {
  TempDir temp;
  ExpectRanksSucceed(3, [&](int rank, Group group) {
    torch::nn::Linear layer = Layer(rank);
    const CheckpointerOptions options = {.folder = temp.File(absl::StrCat("node", rank))};
    EXPECT_EQ(SaveAs(group, *layer, options, 2), absl::OkStatus());
    torch::nn::Linear again = Layer(5);
    const auto from = ResumeAs(group, *again, options);
    EXPECT_EQ(from->progress.step, 2);
    EXPECT_TRUE((again->weight == 0.5).all().item<bool>());
  });
  EXPECT_FALSE(ListFolder(temp.File("node1")).ok());
}

TEST(CheckpointRanks, Resume_SharedFolderIsNotShared_ErrorNamesTheRankOnAll) {
  TempDir temp;
  const auto errors = ErrorsOfRanks(3, [&](int rank, Group group) {
    torch::nn::Linear layer(2, 2);
    const std::string mine = temp.File(rank == 2 ? "other" : "shared");
    const CheckpointerOptions options = {.folder = mine, .shared_folder = true};
    EXPECT_EQ(SaveAs(group, *layer, options, 2), absl::OkStatus());
    return ResumeAs(group, *layer, options).status();
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("rank 2: "), HasSubstr("other/step_00000002.safetensors"), HasSubstr("shared_folder")));
  EXPECT_THAT(errors[1], HasSubstr("rank 2: "));
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(CheckpointRanks, Resume_ContentDiffersOnOneRank_ErrorNamesIt) {
  TempDir temp;
  for (const char* node : {"a", "b"}) {
    torch::nn::Linear layer(2, 2);
    ASSERT_TRUE(SaveAs(nullptr, *layer, {.folder = temp.File(node)}, 2).ok());
  }
  const auto errors = ErrorsOfRanks(2, [&](int rank, Group group) {
    torch::nn::Linear layer(2, 2);
    const CheckpointerOptions options = {.folder = temp.File(rank == 0 ? "a" : "b"), .shared_folder = true};
    return ResumeAs(group, *layer, options).status();
  });
  EXPECT_THAT(errors, Each(HasSubstr("differs from the file that another rank reads")));
}

TEST(CheckpointRanks, Resume_NewestDamagedOnRankZero_AllLoadThePrevious) {
  TempDir temp;
  torch::nn::Linear old(2, 2);
  {
    torch::nn::Linear layer(2, 2);
    auto saver = Checkpointer::Create(nullptr, *layer, nullptr, {.folder = temp.path()});
    for (int64_t step = 1; step <= 2; ++step) {
      const at::NoGradGuard no_grad;
      layer->weight.fill_(step);
      ASSERT_TRUE((*saver)->Save({.step = step}).ok());
      if (step == 1) {
        ASSERT_TRUE(LoadModule(temp.File("step_00000001.safetensors"), *old).ok());
      }
    }
  }
  Damage(temp.File("step_00000002.safetensors"));
  for (const bool shared : {false, true}) {
    ExpectRanksSucceed(2, [&](int, Group group) {
      torch::nn::Linear layer(2, 2);
      const auto from = ResumeAs(group, *layer, {.folder = temp.path(), .shared_folder = shared});
      EXPECT_EQ(from->progress.step, 1);
      EXPECT_EQ(Bits(*layer), Bits(*old));
      EXPECT_EQ(from->skipped.size(), 1u);
    });
  }
}

TEST(CheckpointRanks, Resume_ModuleDiffersOnOneRank_ErrorNamesItOnAll) {
  TempDir temp;
  torch::nn::Linear saved(2, 2);
  ASSERT_TRUE(SaveAs(nullptr, *saved, {.folder = temp.path()}, 1).ok());
  const auto errors = ErrorsOfRanks(2, [&](int rank, Group group) {
    torch::nn::Linear layer(2, rank == 0 ? 2 : 3);
    return ResumeAs(group, *layer, {.folder = temp.path()}).status();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1: "), HasSubstr("weight ([2, 2] in the file, [3, 2] here)")));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(CheckpointRanks, Save_DiskFullOnRankZero_AllReturnTheError) {
  TempDir temp;
  HookedFiles files([](const std::string& operation, const std::string& path) {
    if (operation != "sync") return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
  });
  for (const bool async : {false, true}) {
    std::vector<absl::Status> errors(3);
    ExpectRanksSucceed(3, [&](int rank, Group group) {
      torch::nn::Linear layer(2, 2);
      errors[static_cast<size_t>(rank)] =
          SaveAs(group, *layer, {.folder = temp.path(), .async = async, .files = &files}, 1);
    });
    for (const absl::Status& error : errors) {
      EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(error.message(), HasSubstr("No space left on device"));
    }
  }
}

// The disk blocks until a wait with the group's timeout, started after the others', has timed out twice.
TEST(CheckpointRanks, Save_DiskSlowerThanTheGroupsTimeout_OthersWait) {
  constexpr absl::Duration kTimeout = absl::Seconds(2);
  for (const bool async : {false, true}) {
    TempDir temp;
    ExpectRanksSucceed(2, ProcessGroupOptions{.timeout = kTimeout}, [&](int, Group group) -> absl::Status {
      HookedFiles files([&](const std::string& operation, const std::string& path) {
        if (operation != "create" || !absl::StrContains(path, "step_00000001.safetensors")) return absl::OkStatus();
        for (int i = 0; i < 2; ++i) {
          EXPECT_ANY_THROW(group->store()->wait({"never"}, absl::ToChronoMilliseconds(kTimeout)));
        }
        return absl::OkStatus();
      });
      torch::nn::Linear layer(2, 2);
      DDPRUN_ASSIGN_OR_RETURN(
          auto checkpointer,
          Checkpointer::Create(group, *layer, nullptr, {.folder = temp.path(), .async = async, .files = &files}));
      for (int64_t step = 1; step <= 2; ++step) DDPRUN_RETURN_IF_ERROR(checkpointer->Save({.step = step}));
      // The group still works on all ranks.
      DDPRUN_RETURN_IF_ERROR(group->AllReduce(at::ones({1})));
      return checkpointer->Finish();
    });
    EXPECT_TRUE(CheckpointFolder(temp.path()).Open({1, 2}).ok());
  }
}

TEST(CheckpointRanks, Save_OnRankZeroAlone_ErrorSaysThatAllRanksMustCall) {
  TempDir temp;
  std::vector<std::string> errors(2);
  RunRanks(2, ProcessGroupOptions{.timeout = absl::Seconds(2)}, [&](int rank, Group group) -> absl::Status {
    torch::nn::Linear layer(2, 2);
    const absl::Status error =
        rank == 0 ? SaveAs(group, *layer, {.folder = temp.path()}, 1) : group->AllReduce(at::ones({5056}, at::kByte));
    errors[static_cast<size_t>(rank)] = std::string(error.message());
    return absl::OkStatus();
  }).IgnoreError();
  EXPECT_THAT(errors[0], AllOf(HasSubstr("waiting for rank 1"), HasSubstr("all ranks must call Checkpointer::Save")));
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

// A buffer that can't be copied into, because its elements share memory.
struct Unwritable : torch::nn::Module {
  explicit Unwritable(bool unwritable) {
    register_buffer("a", unwritable ? at::zeros({1}).expand({3000, 3000}) : at::zeros({3000, 3000}));
    register_buffer("b", at::zeros({3000, 3000}));
  }
};

TEST(CheckpointRanks, Resume_ExceptionWhileReceiving_AllRanksReturn) {
  TempDir temp;
  Unwritable saved(false);
  ASSERT_TRUE(SaveAs(nullptr, saved, {.folder = temp.path()}, 1).ok());
  std::vector<std::string> errors(2);
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    Unwritable module(rank == 1);
    errors[static_cast<size_t>(rank)] =
        std::string(ResumeAs(group, module, {.folder = temp.path()}).status().message());
    return group->AllReduce(at::ones({1}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1: "), HasSubstr("tensor \"a\""))));
}

TEST(CheckpointRanks, Resume_OtherWorldSize_Works) {
  TempDir temp;
  const CheckpointerOptions options = {.folder = temp.path()};
  ExpectRanksSucceed(2, [&](int rank, Group group) {
    torch::nn::Linear layer = Layer(rank);
    return SaveAs(group, *layer, options, 3);
  });
  const auto state = LoadTensors(CheckpointFolder(temp.path()).Open({1, 3})->state->path());
  EXPECT_EQ(state->tensors.at("random.cpu").size(0), 2);  // one generator per rank
  for (const int ranks : {1, 3}) {
    ExpectRanksSucceed(ranks, [&](int, Group group) {
      torch::nn::Linear layer = Layer(9);
      const auto from = ResumeAs(group, *layer, options);
      EXPECT_EQ(from->world_size, 2);
      EXPECT_TRUE((layer->weight == 0.5).all().item<bool>());
    });
  }
}

}  // namespace
}  // namespace ddprun::testing
