#include "worker_runtime/checkpoint/checkpointer.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/version.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "worker_runtime/checkpoint/tensors_file.h"
#include "worker_runtime/extras/optim.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::unique_ptr<Checkpointer> Make(torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                   CheckpointerOptions options) {
  auto checkpointer = Checkpointer::Create(nullptr, module, optimizer, options);
  EXPECT_TRUE(checkpointer.ok()) << checkpointer.status();
  return *std::move(checkpointer);
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(SampleNet&)>;

struct OptimizerCase {
  const char* name;
  MakeOptimizer make;
};

// Two groups with different options.
template <typename Optimizer, typename Options>
MakeOptimizer Grouped(std::function<Options(double lr)> options) {
  return [options](SampleNet& net) -> std::unique_ptr<torch::optim::Optimizer> {
    const auto named = net.named_parameters();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{named["head"], named["blocks.0.weight"]},
                        std::make_unique<Options>(options(0.1)));
    groups.emplace_back(
        std::vector<at::Tensor>{named["blocks.0.bias"], named["blocks.1.weight"], named["blocks.1.bias"]},
        std::make_unique<Options>(options(0.03)));
    return std::make_unique<Optimizer>(groups, options(0.5));
  };
}

std::vector<OptimizerCase> Optimizers() {
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::SGDOptions;
  return {
      {"SGD", Grouped<torch::optim::SGD, SGDOptions>([](double lr) { return SGDOptions(lr); })},
      {"SGD with momentum", Grouped<torch::optim::SGD, SGDOptions>([](double lr) {
         return SGDOptions(lr).momentum(0.9).nesterov(true).weight_decay(lr / 7);
       })},
      {"Adam", Grouped<torch::optim::Adam, AdamOptions>([](double lr) { return AdamOptions(lr).eps(1e-7); })},
      {"AdamW with amsgrad", Grouped<torch::optim::AdamW, AdamWOptions>([](double lr) {
         return AdamWOptions(lr).amsgrad(true).weight_decay(lr / 3).betas({0.8, 0.99});
       })},
      {"RMSprop, which is stored as an archive",
       Grouped<torch::optim::RMSprop, torch::optim::RMSpropOptions>(
           [](double lr) { return torch::optim::RMSpropOptions(lr / 10).momentum(0.9).centered(true); })},
      {"Adagrad, too", Grouped<torch::optim::Adagrad, torch::optim::AdagradOptions>(
                           [](double lr) { return torch::optim::AdagradOptions(lr).lr_decay(0.1); })},
      {"ddprun's AdamW",
       Grouped<AdamW, AdamWOptions>([](double lr) { return AdamWOptions(lr).weight_decay(1 / 3.0); })},
  };
}

// The model has dropout, so the random numbers must be restored, too.
TEST(Checkpointer, Resume_EachOptimizer_ContinuesBitForBit) {
  for (const OptimizerCase& test : Optimizers()) {
    for (const bool async : {false, true}) {
      TempDir temp;
      torch::manual_seed(3);
      SampleNet net;
      auto optimizer = test.make(net);
      auto checkpointer = Make(net, optimizer.get(), {.folder = temp.path(), .async = async});
      for (int64_t step = 0; step < 4; ++step) TrainStep(net, *optimizer, step);
      optimizer->param_groups()[1].options().set_lr(1.0 / 3);  // like a schedule
      const Progress progress = {
          .step = 4, .epoch = 2, .sampler_position = 24, .sampler_seed = 5, .user = {{"note", "ä"}}};
      ASSERT_TRUE(checkpointer->Save(progress).ok());
      for (int64_t step = 4; step < 8; ++step) TrainStep(net, *optimizer, step);
      ASSERT_TRUE(checkpointer->Finish().ok());

      torch::manual_seed(99);
      SampleNet again;
      auto optimizer_again = test.make(again);
      TrainStep(again, *optimizer_again, 17);  // a state that has to go
      auto resumer = Make(again, optimizer_again.get(), {.folder = temp.path()});
      const auto from = resumer->Resume();
      EXPECT_EQ(from->progress.step, 4);
      EXPECT_EQ(from->progress.epoch, 2);
      EXPECT_EQ(from->progress.sampler_position, 24);
      EXPECT_EQ(from->progress.sampler_seed, 5u);
      EXPECT_EQ(from->progress.user.at("note"), "ä");
      EXPECT_EQ(from->world_size, 1);
      EXPECT_EQ(from->version, kVersion);
      EXPECT_EQ(from->path, temp.File("step_00000004.safetensors"));
      EXPECT_EQ(optimizer_again->param_groups()[1].options().get_lr(), 1.0 / 3);
      for (int64_t step = 4; step < 8; ++step) TrainStep(again, *optimizer_again, step);
      EXPECT_EQ(Bits(net), Bits(again)) << test.name << (async ? ", async" : "");
    }
  }
}

TEST(Checkpointer, Resume_EmptyFolder_ChangesNothing) {
  TempDir temp;
  SampleNet net;
  const std::string before = Bits(net);
  const auto from = Make(net, nullptr, {.folder = temp.File("new/folder")})->Resume();
  EXPECT_EQ(from->path, "");
  EXPECT_EQ(from->progress.step, 0);
  EXPECT_EQ(Bits(net), before);
}

TEST(Checkpointer, Resume_NewestDamaged_LoadsThePrevious) {
  TempDir temp;
  SampleNet net;
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  auto checkpointer = Make(net, &optimizer, {.folder = temp.path()});
  ASSERT_TRUE(checkpointer->Save({.step = 1}).ok());
  const std::string first = Bits(net);
  TrainStep(net, optimizer, 0);
  ASSERT_TRUE(checkpointer->Save({.step = 2}).ok());
  Damage(temp.File("step_00000002.safetensors"));
  const auto from = checkpointer->Resume();
  EXPECT_EQ(from->progress.step, 1);
  ASSERT_THAT(from->skipped, SizeIs(1));
  EXPECT_THAT(from->skipped[0], HasSubstr("step_00000002.safetensors is damaged"));
  EXPECT_EQ(Bits(net), first);

  std::ofstream(temp.File("step_00000001.safetensors"), std::ios::binary) << "x";
  const auto none = checkpointer->Resume();
  EXPECT_EQ(none.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(none.status().message(), HasSubstr("remove them to start from scratch"));
}

TEST(Checkpointer, Resume_OtherOptimizer_ErrorNamesTheDifference) {
  TempDir temp;
  SampleNet net;
  torch::optim::AdamW saved(net.parameters());
  ASSERT_TRUE(Make(net, &saved, {.folder = temp.path()})->Save({.step = 1}).ok());
  const auto resume = [&](torch::optim::Optimizer& optimizer) {
    return std::string(Make(net, &optimizer, {.folder = temp.path()})->Resume().status().message());
  };
  torch::optim::SGD sgd(net.parameters(), 0.1);
  EXPECT_THAT(resume(sgd), HasSubstr("saved from AdamW, but this is SGD"));
  torch::optim::AdamW fewer(std::vector<at::Tensor>{net.named_parameters()["head"]});
  EXPECT_THAT(resume(fewer), HasSubstr("the parameters of group 0 differ: "));
  torch::nn::Linear stranger(2, 2);
  torch::optim::AdamW strange(stranger->parameters());
  EXPECT_THAT(resume(strange), HasSubstr("is not a parameter of the module"));
  torch::optim::RMSprop another(net.parameters());
  EXPECT_THAT(resume(another), HasSubstr("saved from AdamW, but this is torch::optim::RMSprop"));
  // The model's own file has no state of the optimizer, so that Python can load it.
  const auto model = LoadTensors(temp.File("step_00000001.safetensors"));
  EXPECT_THAT(model->tensors, SizeIs(8));
}

TEST(Checkpointer, Resume_ModelOfAnotherProgram_StartsWithANewOptimizer) {
  TempDir temp;
  SampleNet net, other;
  ASSERT_TRUE(SaveModule(other, temp.File("step_00000000.safetensors")).ok());
  torch::optim::AdamW optimizer(net.parameters());
  const auto from = Make(net, &optimizer, {.folder = temp.path()})->Resume();
  EXPECT_EQ(from->progress.step, 0);
  EXPECT_NE(from->path, "");
  EXPECT_EQ(Bits(net), Bits(other));
}

TEST(Checkpointer, Save_NewTrainingInAUsedFolder_KeepsOtherRuns) {
  TempDir temp;
  SampleNet old_net, net, again;
  {
    auto old = Make(old_net, nullptr, {.folder = temp.path()});
    for (const int64_t step : {800, 900, 1000}) ASSERT_TRUE(old->Save({.step = step}).ok());
  }
  // A training that does not resume, and stops at smaller steps than the old one.
  auto fresh = Make(net, nullptr, {.folder = temp.path(), .keep = 2});
  ::testing::internal::CaptureStderr();
  for (const int64_t step : {100, 200, 300}) ASSERT_TRUE(fresh->Save({.step = step}).ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("checkpoints of an earlier training"));
  const auto from = Make(again, nullptr, {.folder = temp.path()})->Resume();
  EXPECT_EQ(from->progress.step, 300);
  EXPECT_EQ(from->run, 2);
  EXPECT_EQ(Bits(again), Bits(net));
  for (const char* kept : {"step_00000800", "step_00000900", "step_00001000", "run_2_step_00000200"}) {
    EXPECT_EQ(::access(temp.File(absl::StrCat(kept, ".safetensors")).c_str(), F_OK), 0) << kept;
  }
  EXPECT_EQ(::access(temp.File("run_2_step_00000100.safetensors").c_str(), F_OK), -1);
}

TEST(Checkpointer, Resume_ManyTimes_StaysOneRun) {
  TempDir temp;
  for (int64_t start = 0; start < 4; ++start) {
    SampleNet net;
    auto checkpointer = Make(net, nullptr, {.folder = temp.path(), .keep = 2});
    const auto from = checkpointer->Resume();
    EXPECT_EQ(from->progress.step, start);
    EXPECT_EQ(from->round.round, start);
    ASSERT_TRUE(checkpointer->Save({.step = start + 1}).ok());
  }
  EXPECT_THAT(ListFolder(temp.path()).value(), SizeIs(4));
}

TEST(Checkpointer, Resume_WithRunId_LoadsOnlyItsOwn) {
  TempDir temp;
  SampleNet a, b;
  ASSERT_TRUE(Make(a, nullptr, {.folder = temp.path(), .run_id = "lr 0.1"})->Save({.step = 9}).ok());
  auto second = Make(b, nullptr, {.folder = temp.path(), .run_id = "lr 0.2"});
  auto from = second->Resume();
  EXPECT_EQ(from->path, "");
  ASSERT_TRUE(second->Save({.step = 3}).ok());
  SampleNet again;
  from = Make(again, nullptr, {.folder = temp.path(), .run_id = "lr 0.1"})->Resume();
  EXPECT_EQ(from->progress.step, 9);
  EXPECT_EQ(from->run_id, "lr 0.1");
  EXPECT_EQ(Bits(again), Bits(a));
}

// Two attempts resumed from the same checkpoint: the launcher's round says which one is newer.
TEST(Checkpointer, Save_ReplacedByALaterRound_IsFailedPrecondition) {
  TempDir temp;
  SampleNet net;
  const auto start = [&](const char* round) {
    EXPECT_EQ(::setenv("RANK", "0", 1) + ::setenv("WORLD_SIZE", "1", 1) + ::setenv("DDPRUN_ROUND", round, 1), 0);
    auto checkpointer = Make(net, nullptr, {.folder = temp.path()});
    for (const char* name : {"RANK", "WORLD_SIZE", "DDPRUN_ROUND"}) ::unsetenv(name);
    EXPECT_TRUE(checkpointer->Resume().ok());
    return checkpointer;
  };
  ASSERT_TRUE(start("1")->Save({.step = 10}).ok());
  auto cut_off = start("2");
  auto later = start("3");
  ASSERT_TRUE(cut_off->Save({.step = 20}).ok());
  ASSERT_TRUE(later->Save({.step = 20}).ok());
  const absl::Status status = cut_off->Save({.step = 30});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.message(), HasSubstr("this process was replaced and must end"));
  EXPECT_TRUE(later->Save({.step = 30}).ok());
}

TEST(Checkpointer, Save_NotFinite_IsFailedPreconditionUnlessAllowed) {
  TempDir temp;
  SampleNet net;
  torch::optim::AdamW optimizer(UniqueParameters(net));
  auto checkpointer = Make(net, &optimizer, {.folder = temp.path(), .keep = 1});
  TrainStep(net, optimizer, 0);
  ASSERT_TRUE(checkpointer->Save({.step = 1}).ok());
  const at::NoGradGuard no_grad;
  at::Tensor weight = net.named_parameters()["blocks.0.weight"];
  // Large values are finite even if their sum overflows.
  weight.fill_(3e38);
  EXPECT_TRUE(checkpointer->Save({.step = 2}).ok());
  weight[1][2] = std::numeric_limits<float>::infinity();
  net.named_parameters()["blocks.1.bias"].fill_(std::nan(""));
  const absl::Status status = checkpointer->Save({.step = 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("checkpoint of step 3 was not saved"));
  EXPECT_THAT(status.message(),
              HasSubstr("parameter \"blocks.0.weight\" has NaN or infinite values, as have 1 others"));
  EXPECT_TRUE(Make(net, &optimizer, {.folder = temp.File("all"), .allow_non_finite = true})->Save({.step = 3}).ok());
  // An asynchronous save finds it while writing.
  auto async = Make(net, &optimizer, {.folder = temp.File("async"), .async = true});
  EXPECT_TRUE(async->Save({.step = 3}).ok());
  EXPECT_EQ(async->Finish(), status);
  EXPECT_EQ(checkpointer->Resume()->progress.step, 2);
}

// A disk that blocks until Open is called.
class Gate {
 public:
  absl::Status Pass() {
    MutexLock lock(&mutex_);
    ++arrived_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mutex_);
    return answer_;
  }
  void WaitForSomebody() {
    MutexLock lock(&mutex_);
    while (arrived_ == 0) changed_.Wait(&mutex_);
  }
  void Open(absl::Status answer = absl::OkStatus()) {
    MutexLock lock(&mutex_);
    open_ = true;
    answer_ = std::move(answer);
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status answer_ ABSL_GUARDED_BY(mutex_);
};

TEST(Checkpointer, AsyncSave_TrainingContinues_SavesTheStateOfTheCall) {
  TempDir temp;
  SampleNet net;
  torch::optim::AdamW optimizer(net.parameters());
  Gate gate;
  HookedFiles files([&gate](const std::string& operation, const std::string&) {
    return operation == "create" ? gate.Pass() : absl::OkStatus();
  });
  auto checkpointer = Make(net, &optimizer, {.folder = temp.path(), .async = true, .files = &files});
  TrainStep(net, optimizer, 0);
  const std::string saved = Bits(net);
  ASSERT_TRUE(checkpointer->Save({.step = 1}).ok());
  gate.WaitForSomebody();
  for (int64_t step = 1; step < 4; ++step) TrainStep(net, optimizer, step);
  EXPECT_NE(Bits(net), saved);
  gate.Open();
  ASSERT_TRUE(checkpointer->Finish().ok());
  EXPECT_EQ(checkpointer->stats().saves, 1);
  EXPECT_GT(checkpointer->stats().last_stall, absl::ZeroDuration());
  EXPECT_GT(checkpointer->stats().last_write, absl::ZeroDuration());
  SampleNet again;
  torch::optim::AdamW optimizer_again(again.parameters());
  ASSERT_TRUE(Make(again, &optimizer_again, {.folder = temp.path()})->Resume().ok());
  EXPECT_EQ(Bits(again), saved);
}

TEST(Checkpointer, AsyncSave_Fails_NextCallReturnsTheErrorOnce) {
  TempDir temp;
  SampleNet net;
  HookedFiles files([](const std::string& operation, const std::string& path) {
    if (operation != "write" || absl::StrContains(path, "step_00000003")) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
  });
  auto checkpointer = Make(net, nullptr, {.folder = temp.path(), .async = true, .files = &files});
  ASSERT_TRUE(checkpointer->Save({.step = 1}).ok());
  absl::Status status = checkpointer->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("checkpoint of step 1 was not saved"));
  EXPECT_TRUE(checkpointer->Finish().ok());

  ASSERT_TRUE(checkpointer->Save({.step = 2}).ok());
  status = checkpointer->Save({.step = 3});
  EXPECT_THAT(status.message(), HasSubstr("an earlier save failed, this one continues"));
  EXPECT_TRUE(checkpointer->Finish().ok());
  EXPECT_EQ(Make(net, nullptr, {.folder = temp.path()})->Resume()->progress.step, 3);
}

TEST(Checkpointer, AsyncSave_TwoFail_BothErrorsAreReturned) {
  TempDir temp;
  SampleNet net;
  HookedFiles files([](const std::string& operation, const std::string&) {
    return operation == "write" ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  });
  auto checkpointer = Make(net, nullptr, {.folder = temp.path(), .async = true, .files = &files});
  ASSERT_TRUE(checkpointer->Save({.step = 1}).ok());
  const absl::Status status = checkpointer->Save({.step = -1});
  EXPECT_THAT(status.message(), HasSubstr("-1"));
  EXPECT_THAT(status.message(), HasSubstr("checkpoint of step 1 was not saved"));
}

TEST(Checkpointer, Destructor_WhileSaving_WaitsForTheDisk) {
  TempDir temp;
  SampleNet net;
  Make(net, nullptr, {.folder = temp.path(), .async = true})->Save({.step = 8}).IgnoreError();
  EXPECT_EQ(Make(net, nullptr, {.folder = temp.path()})->Resume()->progress.step, 8);
}

TEST(Checkpointer, Resume_FolderCantBeCreated_ReturnsError) {
  TempDir temp;
  std::ofstream(temp.File("file"));
  torch::nn::Linear net(1, 1);
  EXPECT_THAT(Make(*net, nullptr, {.folder = temp.File("file/folder")})->Resume().status().message(),
              HasSubstr("can't create folder"));
}

TEST(Checkpointer, Create_BadArguments_IsInvalidArgument) {
  TempDir temp;
  torch::nn::Linear net(1, 1);
  EXPECT_EQ(Checkpointer::Create(nullptr, *net, nullptr, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Make(*net, nullptr, {.folder = temp.path()})->Save({.step = -1}).message(), HasSubstr("-1"));
}

}  // namespace
}  // namespace ddprun::testing
