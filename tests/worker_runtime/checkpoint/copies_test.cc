// Each node has a folder on its own disk; ranks of two nodes write each checkpoint.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/adamw.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/state/training_state.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Ids = std::vector<CheckpointId>;

constexpr char kModel[] = "/step_00000002.safetensors";

// A state in which only parameters and moments are equal on all ranks.
struct Training {
  explicit Training(int rank) : ema(at::full({3}, rank)), best(rank), state(*layer, &optimizer) {
    const at::NoGradGuard no_grad;
    layer->running_mean.fill_(rank);
    EXPECT_TRUE(state.AddTensor("ema", ema).ok() && state.AddValue("best", &best).ok());
  }

  void Step() {
    for (at::Tensor& parameter : layer->parameters()) parameter.mutable_grad() = parameter.detach() * 2 + 1;
    optimizer.step();
  }
  std::string Bits() const { return absl::StrCat(testing::Bits(*layer), ema.sum().item<double>(), " ", best); }

  torch::nn::BatchNorm1d layer{3};
  torch::optim::AdamW optimizer{layer->parameters(), torch::optim::AdamWOptions(0.1)};
  at::Tensor ema;
  double best;
  TrainingState state;
};

// Rank 0's bits after `steps` steps.
std::string Expected(int64_t steps) {
  Training training(0);
  for (int64_t step = 0; step < steps; ++step) training.Step();
  return training.Bits();
}

// Resumes at step `from`, and trains and saves each step until `until`.
absl::Status Train(const Group& group, const CheckpointerOptions& options, int64_t from, int64_t until) {
  Training training(group->rank());
  DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, Checkpointer::Create(group, training.state, options));
  DDPRUN_ASSIGN_OR_RETURN(auto resumed, checkpointer->Resume());
  EXPECT_EQ(resumed.progress.step, from);
  if (from > 0) {
    EXPECT_EQ(training.Bits(), Expected(from)) << "rank " << group->rank();
  }
  for (int64_t step = from + 1; step <= until; ++step) {
    training.Step();
    DDPRUN_RETURN_IF_ERROR(checkpointer->Save({.step = step}));
  }
  if (from > 0) {
    EXPECT_EQ(training.Bits(), Expected(until)) << "rank " << group->rank();
  }
  return checkpointer->Finish();
}

class Nodes {
 public:
  std::string Folder(int node) const { return temp_.File(absl::StrCat("node", node)); }
  Ids Saved(int node) const { return CheckpointFolder(Folder(node)).List().value(); }
  void Lose(int node) { std::filesystem::remove_all(Folder(node)); }
  CheckpointerOptions Options(int node, bool async = false) const {
    return {.folder = Folder(node), .keep = 2, .async = async, .copies = 2};
  }

 private:
  TempDir temp_;
};

TEST(CheckpointCopies, Resume_NodeOfRankZeroIsLost_OthersHaveTheSameBits) {
  for (const bool async : {false, true}) {
    Nodes nodes;
    // Two ranks per node.
    ExpectRanksSucceed(6, [&](int rank, Group group) { return Train(group, nodes.Options(rank / 2, async), 0, 3); });
    EXPECT_EQ(nodes.Saved(0), (Ids{{1, 3}, {1, 2}}));
    EXPECT_EQ(nodes.Saved(1), (Ids{{1, 3}, {1, 2}}));
    EXPECT_EQ(nodes.Saved(2), Ids());
    nodes.Lose(0);
    // A new node gets rank 0; its folder and that of the survivor get the copies. Then the survivor is lost, too.
    const int second[] = {3, 1, 2};
    ExpectRanksSucceed(3,
                       [&](int rank, Group group) { return Train(group, nodes.Options(second[rank], async), 3, 4); });
    EXPECT_EQ(nodes.Saved(3), (Ids{{1, 4}}));
    EXPECT_EQ(nodes.Saved(1), (Ids{{1, 4}, {1, 3}}));
    nodes.Lose(1);
    const int third[] = {2, 3};
    ExpectRanksSucceed(2, [&](int rank, Group group) { return Train(group, nodes.Options(third[rank], async), 4, 5); });
  }
}

TEST(CheckpointCopies, Resume_OneCopyAndItsNodeIsLost_FindsNothing) {
  Nodes nodes;
  const auto train = [&](int rank, Group group) {
    CheckpointerOptions options = nodes.Options(rank);
    options.copies = 1;
    return Train(group, options, 0, 2);
  };
  ExpectRanksSucceed(2, train);
  EXPECT_EQ(std::filesystem::exists(nodes.Folder(1)), false);
  nodes.Lose(0);
  ExpectRanksSucceed(2, train);
}

TEST(CheckpointCopies, Resume_CopiesDiffer_NewestIntactOneIsLoaded) {
  Nodes nodes;
  const auto train = [&](int64_t from, int64_t until) {
    ExpectRanksSucceed(2, [&](int rank, Group group) { return Train(group, nodes.Options(rank), from, until); });
  };
  train(0, 2);
  ASSERT_TRUE(std::filesystem::remove(nodes.Folder(0) + kModel));
  train(2, 2);
  // First only rank 0's file is damaged; then also the copy, and the previous step is loaded.
  for (const int64_t from : {2, 1}) {
    if (from == 2) std::filesystem::copy_file(nodes.Folder(1) + kModel, nodes.Folder(0) + kModel);
    const std::string path = nodes.Folder(from == 2 ? 0 : 1) + kModel;
    Damage(path);
    train(from, from);
  }
}

TEST(CheckpointCopies, Save_DiskOfACopyIsFull_ErrorNamesTheRank) {
  for (const bool async : {false, true}) {
    Nodes nodes;
    std::vector<std::string> errors(2);
    ExpectRanksSucceed(2, [&](int rank, Group group) {
      HookedFiles files([&](const std::string& operation, const std::string& path) {
        const bool fails = rank == 1 && operation == "sync" && path.find("step_") != std::string::npos;
        return fails ? absl::ResourceExhaustedError("No space left on device") : absl::OkStatus();
      });
      CheckpointerOptions options = nodes.Options(rank, async);
      options.files = &files;
      errors[static_cast<size_t>(rank)] = std::string(Train(group, options, 0, 1).message());
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("step 1 is on rank 0's disk, but a copy failed: rank 1: "),
                                   HasSubstr("No space left on device"))));
    EXPECT_EQ(nodes.Saved(0), (Ids{{1, 1}}));
    EXPECT_EQ(nodes.Saved(1), Ids());
    ExpectRanksSucceed(2, [&](int rank, Group group) { return Train(group, nodes.Options(rank, async), 1, 2); });
    EXPECT_EQ(nodes.Saved(1), (Ids{{1, 2}}));
  }
}

// Rank 0's node is lost; the process that wrote the copy survives as rank 0 and a new node joins.
TEST(CheckpointCopies, Rebind_NewNode_NextSaveWritesACopyThere) {
  Nodes nodes;
  Training training(1);
  std::unique_ptr<Checkpointer> survivor;
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    Training other(rank);
    DDPRUN_ASSIGN_OR_RETURN(
        auto made, Checkpointer::Create(group, rank == 1 ? training.state : other.state, nodes.Options(rank, true)));
    const absl::Status saved = made->Save({.step = 1});
    if (rank == 1) survivor = std::move(made);
    return saved;
  });
  ExpectRanksSucceed(2, [&](int rank, Group group) -> absl::Status {
    if (rank == 1) {
      Training other(0);
      DDPRUN_ASSIGN_OR_RETURN(auto made, Checkpointer::Create(group, other.state, nodes.Options(2, true)));
      const absl::Status saved = made->Save({.step = 2});
      return saved.ok() ? made->Finish() : saved;
    }
    survivor->Rebind(group, 7);
    const absl::Status saved = survivor->Save({.step = 2});
    return saved.ok() ? survivor->Finish() : saved;
  });
  EXPECT_EQ(nodes.Saved(1), (Ids{{1, 2}, {1, 1}}));
  EXPECT_EQ(nodes.Saved(2), (Ids{{1, 2}}));
}

TEST(CheckpointCopies, Save_OneFolderForAll_WritesOneCopyAndWarns) {
  Nodes nodes;
  ::testing::internal::CaptureStderr();
  ExpectRanksSucceed(3, [&](int, Group group) { return Train(group, nodes.Options(0), 0, 1); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("WARNING: only 1 of 2 copies"));
  EXPECT_EQ(ListFolder(nodes.Folder(0)).value().size(), 3u);  // model, state, and the folder's id
}

TEST(CheckpointCopies, Create_CopiesWithSharedFolder_IsInvalidArgument) {
  Training training(0);
  const CheckpointerOptions options = {.folder = "unused", .shared_folder = true, .copies = 2};
  const absl::Status status = Checkpointer::Create(nullptr, training.state, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("copies is 2, but must be 1 with shared_folder"));
}

}  // namespace
}  // namespace ddprun::testing
