// Checkpoints of a ZeroRedundancyOptimizer: each rank writes and reads its part of the state.
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/checkpoint/tensors_file.h"
#include "worker_runtime/extras/optim/adamw.h"
#include "worker_runtime/extras/optim/zero_redundancy_optimizer.h"
#include "worker_runtime/safetensors/file_system.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Six parameters of different sizes, with gradients that depend on the step only.
class Net : public torch::nn::Module {
 public:
  Net() {
    for (int i = 0; i < 6; ++i) {
      const at::Tensor values = at::arange(3 + 4 * i, at::kFloat).sin();
      register_parameter(absl::StrCat("p", i), values);
    }
  }

  void Step(torch::optim::Optimizer& optimizer, int64_t step) {
    for (at::Tensor& parameter : parameters()) {
      parameter.mutable_grad() = (at::arange(parameter.numel(), at::kFloat) + static_cast<double>(step)).cos();
    }
    optimizer.step();
  }
};

const torch::optim::AdamWOptions kOptions(0.01);

std::unique_ptr<torch::optim::Optimizer> MakeZero(const Group& group, const Net& net) {
  return std::make_unique<ZeroRedundancyOptimizer>(group, net.parameters(),
                                                   [](const std::vector<torch::optim::OptimizerParamGroup>& groups) {
                                                     return std::make_unique<AdamW>(groups, kOptions);
                                                   });
}

// Bits after `steps` steps of an optimizer with the whole state.
std::string PlainBits(int64_t steps) {
  Net net;
  AdamW optimizer(net.parameters(), kOptions);
  for (int64_t step = 0; step < steps; ++step) net.Step(optimizer, step);
  return Bits(net);
}

// Resumes, trains until step `until`, and saves.
absl::Status Train(const Group& group, const CheckpointerOptions& options, int64_t until, int64_t expected_from = 0) {
  Net net;
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      group != nullptr ? MakeZero(group, net) : std::make_unique<AdamW>(net.parameters(), kOptions);
  DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(group, net, optimizer.get(), options));
  DDPRUN_ASSIGN_OR_RETURN(auto from, checkpointer->Resume());
  EXPECT_EQ(from.progress.step, expected_from);
  for (int64_t step = from.progress.step; step < until; ++step) net.Step(*optimizer, step);
  EXPECT_EQ(Bits(net), PlainBits(until)) << "rank " << (group != nullptr ? group->rank() : 0);
  absl::Status status = checkpointer->Save({.step = until});
  if (status.ok()) status = checkpointer->Finish();
  return status;
}

// Three ranks, then two, four, one, and one without sharding.
TEST(ShardedCheckpoint, OtherNumbersOfRanks_ContinueWithTheSameBits) {
  for (const bool async : {false, true}) {
    TempDir temp;
    const CheckpointerOptions options = {.folder = temp.path(), .keep = 1, .async = async, .shared_folder = true};
    int64_t step = 0;
    for (const int ranks : {3, 2, 4, 1}) {
      ExpectRanksSucceed(ranks, [&](int, Group group) { return Train(group, options, step + 3, step); });
      step += 3;
      // The model and each rank's part; nothing of the previous checkpoint.
      EXPECT_EQ(NamesIn(temp.path()).size(), static_cast<size_t>(1 + ranks)) << "async " << async;
    }
    EXPECT_EQ(Train(nullptr, options, step + 3, step), absl::OkStatus());
    EXPECT_EQ(NamesIn(temp.path()).size(), 2u);
  }
}

TEST(ShardedCheckpoint, Plain_LoadsWhatThreeRanksSaved) {
  TempDir temp;
  const CheckpointerOptions options = {.folder = temp.path(), .shared_folder = true};
  ExpectRanksSucceed(3, [&](int, Group group) { return Train(group, options, 5); });
  EXPECT_EQ(Train(nullptr, options, 9, 5), absl::OkStatus());
  // A checkpoint of one process is sharded again.
  ExpectRanksSucceed(3, [&](int, Group group) { return Train(group, options, 12, 9); });
}

// Each moment is in one file, named after its parameter.
TEST(ShardedCheckpoint, Files_TogetherHaveTheWholeState) {
  TempDir temp;
  ExpectRanksSucceed(3,
                     [&](int, Group group) { return Train(group, {.folder = temp.path(), .shared_folder = true}, 4); });
  Net net;
  AdamW optimizer(net.parameters(), kOptions);
  for (int64_t step = 0; step < 4; ++step) net.Step(optimizer, step);
  size_t shards = 0, moments = 0;
  for (const std::string& name : NamesIn(temp.path())) {
    const auto file = LoadTensors(temp.File(name));
    EXPECT_TRUE(file->checked);
    if (absl::StrContains(name, ".rank_")) ++shards;
    for (const auto& [tensor, value] : file->tensors) {
      for (const auto& item : net.named_parameters()) {
        if (tensor != absl::StrCat("optimizer.state.", item.key(), ".exp_avg")) continue;
        EXPECT_TRUE(at::equal(value, optimizer.StateOf(item.value()).exp_avg())) << tensor;
        ++moments;
      }
    }
  }
  EXPECT_EQ(shards, 2u);
  EXPECT_EQ(moments, net.parameters().size());
}

TEST(ShardedCheckpoint, DiskOfOneRankIsFull_AllSayItAndNothingIsLeft) {
  for (const int failing : {0, 1, 2}) {
    for (const bool async : {false, true}) {
      TempDir temp;
      const CheckpointerOptions options = {.folder = temp.path(), .async = async, .shared_folder = true};
      ExpectRanksSucceed(3, [&](int, Group group) { return Train(group, options, 2); });
      const std::vector<std::string> before = NamesIn(temp.path());
      ExpectRanksSucceed(3, [&](int rank, Group group) {
        HookedFiles files([&](const std::string& operation, const std::string& path) {
          if (rank != failing || operation != "sync") return absl::OkStatus();
          return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
        });
        CheckpointerOptions full = options;
        full.files = &files;
        const absl::Status status = Train(group, full, 3, 2);
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
        EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("step 3"), HasSubstr("No space left")));
        if (failing != 0) {
          EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", failing)));
        }
      });
      // The next save removes what a rank wrote after rank 0 failed.
      ExpectRanksSucceed(3, [&](int, Group group) { return Train(group, options, 3, 2); });
      EXPECT_EQ(NamesIn(temp.path()).size(), before.size() * 2) << "failing " << failing << ", async " << async;
    }
  }
}

TEST(ShardedCheckpoint, ShardIsMissingOrDamaged_TheOneBeforeIsLoaded) {
  for (const bool missing : {false, true}) {
    TempDir temp;
    const CheckpointerOptions options = {.folder = temp.path(), .shared_folder = true};
    ExpectRanksSucceed(2, [&](int, Group group) { return Train(group, options, 2); });
    ExpectRanksSucceed(2, [&](int, Group group) { return Train(group, options, 4, 2); });
    for (const std::string& name : NamesIn(temp.path())) {
      if (!absl::StrContains(name, "step_00000004") || !absl::StrContains(name, ".rank_")) continue;
      if (missing) std::filesystem::remove(temp.File(name));
      if (!missing) Damage(temp.File(name));
    }
    ExpectRanksSucceed(2, [&](int, Group group) { return Train(group, options, 5, 2); });
  }
}

TEST(ShardedCheckpoint, FolderThatIsNotShared_IsAnError) {
  TempDir temp;
  ExpectRanksSucceed(2, [&](int, Group group) {
    const absl::Status status = Train(group, {.folder = temp.path()}, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("shared_folder"));
    return Train(group, {.folder = temp.path(), .shared_folder = true}, 2);
  });
  ExpectRanksSucceed(2, [&](int, Group group) {
    Net net;
    AdamW optimizer(net.parameters(), kOptions);
    auto checkpointer = Checkpointer::Create(group, net, &optimizer, {.folder = temp.path()});
    const auto from = (*checkpointer)->Resume();
    EXPECT_EQ(from.status().code(), absl::StatusCode::kInvalidArgument) << from.status();
    EXPECT_THAT(std::string(from.status().message()), HasSubstr("shared_folder"));
  });
}

}  // namespace
}  // namespace ddprun::testing
