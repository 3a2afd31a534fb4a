#include "worker_runtime/state/training_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/state/module_state.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Scope = TrainingState::Scope;

// A training that uses every kind of state that can be added.
struct Job {
  explicit Job(int replicas = 1, int rank = 0)
      : optimizer(UniqueParameters(net), torch::optim::AdamWOptions(0.05)),
        scheduler(optimizer, /*step_size=*/3, /*gamma=*/0.7),
        sampler(DistributedSampler::Create(60, {.num_replicas = replicas, .rank = rank, .shuffle = true, .seed = 5})
                    .value()),
        ema(at::zeros({13, 8})),
        state(net, &optimizer) {
    EXPECT_TRUE(state.AddScheduler(scheduler).ok());
    EXPECT_TRUE(state.AddSampler(sampler).ok());
    EXPECT_TRUE(state.AddTensor("ema", ema).ok());
    EXPECT_TRUE(state.AddValue("best_loss", &best_loss).ok());
    EXPECT_TRUE(state.AddValue("tokens", &tokens).ok());
    EXPECT_TRUE(state.AddValue("warm", &warm).ok());
    EXPECT_TRUE(state.AddValue("note", &note).ok());
    EXPECT_TRUE(state
                    .AddText(
                        "scale", [this] { return absl::StrCat(scale); },
                        [this](const std::string& text) {
                          scale = std::stoi(text);
                          return absl::OkStatus();
                        })
                    .ok());
  }

  // The sampler's indices determine the batch.
  void Step() {
    const auto indices = sampler.next(6);
    TrainStep(net, optimizer, static_cast<int64_t>((*indices)[0]));
    scheduler.step();
    const at::NoGradGuard no_grad;
    ema.lerp_(net.named_parameters()["wte.weight"], 0.1);
    best_loss /= 3;
    tokens += 1000;
    warm = !warm;
    note += "x";
    scale *= 2;
  }

  std::string Everything() {
    return absl::StrCat(Bits(net), ema.sum().item<double>(), " ", optimizer.param_groups()[0].options().get_lr(), " ",
                        best_loss, " ", tokens, " ", warm, " ", note, " ", scale, " ", sampler.epoch(), "/",
                        sampler.position());
  }

  SampleNet net;
  AdamW optimizer;
  torch::optim::StepLR scheduler;
  DistributedSampler sampler;
  at::Tensor ema;
  double best_loss = 1;
  int64_t tokens = int64_t{1} << 60;
  bool warm = false;
  std::string note = "ä";
  int scale = 1;
  TrainingState state;
};

// Saved in the middle of an epoch; the later steps have the same bits.
TEST(TrainingState, Resume_SavedState_ContinuesBitForBit) {
  TempDir temp;
  torch::manual_seed(3);
  Job job;
  auto checkpointer = Checkpointer::Create(nullptr, job.state, {.folder = temp.path()});
  job.sampler.set_epoch(2);
  for (int step = 0; step < 4; ++step) job.Step();
  ASSERT_TRUE((*checkpointer)->Save({.step = 4, .epoch = 2}).ok());
  for (int step = 4; step < 9; ++step) job.Step();

  torch::manual_seed(99);
  Job again;
  for (int step = 0; step < 2; ++step) again.Step();  // a state that has to go
  auto resumer = Checkpointer::Create(nullptr, again.state, {.folder = temp.path()});
  const auto from = (*resumer)->Resume();
  again.sampler.set_epoch(from->progress.epoch);  // a training loop does it
  EXPECT_EQ(again.sampler.position(), 24);
  for (int step = 4; step < 9; ++step) again.Step();
  EXPECT_EQ(again.Everything(), job.Everything());
}

TEST(TrainingState, Resume_NameIsNotInTheCheckpoint_KeepsItsValue) {
  TempDir temp;
  SampleNet net;
  double kept = std::numeric_limits<double>::infinity(), fresh = 7;
  {
    TrainingState state(net);
    ASSERT_TRUE(state.AddValue("kept", &kept).ok());
    ASSERT_TRUE((*Checkpointer::Create(nullptr, state, {.folder = temp.path()}))->Save({.step = 1}).ok());
  }
  kept = 0;
  TrainingState state(net);
  at::Tensor tensor = at::ones({2});
  ASSERT_TRUE(state.AddValue("kept", &kept).ok());
  ASSERT_TRUE(state.AddValue("fresh", &fresh).ok());
  ASSERT_TRUE(state.AddTensor("ema", tensor).ok());
  ::testing::internal::CaptureStderr();
  const auto from = (*Checkpointer::Create(nullptr, state, {.folder = temp.path()}))->Resume();
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(from.ok()) << from.status();
  EXPECT_THAT(warnings, AllOf(HasSubstr("has no \"fresh\""), HasSubstr("has no \"ema\"")));
  EXPECT_EQ(kept, std::numeric_limits<double>::infinity());
  EXPECT_EQ(fresh, 7);
}

TEST(TrainingState, Add_BadNameOrShape_ReturnsError) {
  TempDir temp;
  SampleNet net;
  TrainingState state(net);
  double value = 0;
  at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(state.AddValue("x", &value).ok());
  EXPECT_THAT(state.AddTensor("x", tensor).message(), HasSubstr("\"x\" was already added"));
  EXPECT_FALSE(state.AddValue("", &value).ok());
  EXPECT_FALSE(state.AddTensor("y", at::Tensor()).ok());
  EXPECT_TRUE(state.AddTensor("y", tensor).ok());
  ASSERT_TRUE((*Checkpointer::Create(nullptr, state, {.folder = temp.path()}))->Save({.step = 1}).ok());
  TrainingState other(net);
  ASSERT_TRUE(other.AddTensor("y", at::ones({3})).ok());
  const absl::Status status = (*Checkpointer::Create(nullptr, other, {.folder = temp.path()}))->Resume().status();
  EXPECT_THAT(status.message(), HasSubstr("tensor \"y\" has shape [2] in the file and [3] here"));
}

TEST(TrainingState, AddSampler_OtherNumberOfRanks_ContinuesAtTheSamePlace) {
  TempDir temp;
  SampleNet net;
  const auto with = [&](int replicas, std::function<void(DistributedSampler&, Checkpointer&)> use) {
    DistributedSampler sampler = DistributedSampler::Create(100, {.num_replicas = replicas, .seed = 1}).value();
    TrainingState state(net);
    ASSERT_TRUE(state.AddSampler(sampler).ok());
    use(sampler, **Checkpointer::Create(nullptr, state, {.folder = temp.path()}));
  };
  with(2, [](DistributedSampler& sampler, Checkpointer& checkpointer) {
    sampler.set_epoch(3);
    (void)sampler.next(10);
    EXPECT_TRUE(checkpointer.Save({.step = 1, .epoch = 3}).ok());
  });
  with(4, [](DistributedSampler& sampler, Checkpointer& checkpointer) {
    EXPECT_TRUE(checkpointer.Resume().ok());
    EXPECT_EQ(sampler.epoch(), 3);
    EXPECT_EQ(sampler.position(), 5);
  });
}

// A step that is interrupted after forward and backward, in a loop that accumulates gradients, has the same result when
// it is repeated.
TEST(TrainingState, Rollback_HalfAStep_RestoresEverything) {
  torch::manual_seed(3);
  Job whole, job;
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : whole.net.named_parameters()) job.net.named_parameters()[item.key()].copy_(item.value());
  }
  const auto micro_batch = [](Job& on, int64_t number) {
    const at::Tensor ids = (at::arange(6, at::kLong) * (number + 3)).remainder(13);
    torch::nn::functional::cross_entropy(on.net.forward(ids), (ids + 1).remainder(13)).backward();
  };
  const auto train = [&](Job& on, bool interrupted) {
    torch::manual_seed(17);
    for (int step = 0; step < 3; ++step) {
      micro_batch(on, 2 * step);  // its gradients are there when the state is committed
      on.state.Commit();
      if (interrupted) {
        micro_batch(on, 50 + step);
        on.scheduler.step();
        (void)on.sampler.next(7);
        on.ema.add_(1);
        on.best_loss = -1;
        EXPECT_TRUE(on.state.Rollback().ok());
      }
      micro_batch(on, 2 * step + 1);
      on.optimizer.step();
      on.Step();
      on.state.Commit();
      if (interrupted) {
        on.optimizer.zero_grad();
        micro_batch(on, 90);
        EXPECT_TRUE(on.state.Rollback().ok());
      }
      on.optimizer.zero_grad();
    }
  };
  train(whole, false);
  train(job, true);
  EXPECT_EQ(job.Everything(), whole.Everything());
}

// A step that zeroes the gradients itself.
TEST(TrainingState, Rollback_FromZeroGradients_RestoresEverything) {
  torch::manual_seed(3);
  Job whole, job;
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : whole.net.named_parameters()) job.net.named_parameters()[item.key()].copy_(item.value());
  }
  const auto backward = [](Job& on, int64_t number) {
    const at::Tensor ids = (at::arange(6, at::kLong) * (number + 3)).remainder(13);
    on.optimizer.zero_grad(/*set_to_none=*/number % 2 == 0);
    torch::nn::functional::cross_entropy(on.net.forward(ids), (ids + 1).remainder(13)).backward();
  };
  const auto train = [&](Job& on, bool interrupted) {
    torch::manual_seed(17);
    for (int step = 0; step < 4; ++step) {
      on.state.Commit(Scope::kStepFromZeroGradients);
      std::vector<bool> had;
      for (const at::Tensor& parameter : on.net.parameters()) had.push_back(parameter.grad().defined());
      if (interrupted) {
        backward(on, 50 + step);
        on.ema.add_(1);
        EXPECT_TRUE(on.state.Rollback().ok());
        size_t i = 0;
        for (const at::Tensor& parameter : on.net.parameters()) {
          EXPECT_EQ(parameter.grad().defined(), had[i++]) << "an optimizer skips parameters that have none";
          if (!parameter.grad().defined()) continue;
          EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
        }
      }
      backward(on, step);
      on.optimizer.step();
      on.Step();
    }
  };
  train(whole, false);
  train(job, true);
  EXPECT_EQ(job.Everything(), whole.Everything());
}

TEST(TrainingState, Rollback_OptimizerStepHadBegun_ReturnsErrorOrUndoesIt) {
  torch::manual_seed(3);
  const std::vector<std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>> optimizers = {
      [](auto parameters) { return std::make_unique<AdamW>(parameters); },
      [](auto parameters) { return std::make_unique<torch::optim::SGD>(parameters, 0.1); },
      [](auto parameters) { return std::make_unique<torch::optim::RMSprop>(parameters); },
  };
  for (const auto& make : optimizers) {
    SampleNet net;
    const auto optimizer = make(UniqueParameters(net));
    TrainingState state(net, optimizer.get());
    EXPECT_THAT(state.Rollback().message(), HasSubstr("without a Commit"));
    for (int64_t step = 0; step < 2; ++step) TrainStep(net, *optimizer, step);
    state.Commit();
    TrainStep(net, *optimizer, 2);
    const absl::Status status = state.Rollback();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), HasSubstr("have changed since Commit"));

    state.Commit(Scope::kEverything);
    TrainStep(net, *optimizer, 3);
    const std::string after = Bits(net);
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(state.Rollback().ok());
      EXPECT_NE(Bits(net), after);
      TrainStep(net, *optimizer, 3);
      EXPECT_EQ(Bits(net), after);
    }
  }
}

// DistributedDataParallel, with and without gradients that are views of its buckets.
TEST(TrainingState, Rollback_NoSyncMicroBatchUnderDdp_RepeatsIt) {
  for (const bool views : {false, true}) {
    std::vector<std::string> bits(4);
    for (const bool interrupted : {false, true}) {
      const absl::Status status = RunRanks(2, [&](int rank, Group group) -> absl::Status {
        torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1));
        {
          const at::NoGradGuard no_grad;
          for (at::Tensor& p : net->parameters()) p.copy_(at::linspace(-1, 1, p.numel()).view(p.sizes()));
        }
        DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, group, {.gradient_as_bucket_view = views}));
        AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.1));
        TrainingState state(*net, &optimizer);
        const auto forward_backward = [&](int number) {
          const at::Tensor input = (at::arange(12, at::kFloat).view({3, 4}) * (number + 1 + 7 * rank)).sin();
          ddp->forward(input).square().mean().backward();
        };
        DDPRUN_RETURN_IF_ERROR(state.AddText(
            "buffers", [&] { return ddp->require_forward_param_sync() ? "1" : ""; },
            [&](const std::string& text) {
              ddp->set_require_forward_param_sync(!text.empty());
              return absl::OkStatus();
            }));
        state.Commit();
        for (int step = 0; step < 4; ++step) {
          const auto first_part = [&] {
            auto no_sync = ddp->no_sync();
            forward_backward(10 * step);
          };
          if (interrupted) {
            first_part();
            DDPRUN_RETURN_IF_ERROR(state.Rollback());
          }
          first_part();
          forward_backward(10 * step + 1);
          optimizer.step();
          ddp->zero_grad();
          state.Commit();
        }
        bits[static_cast<size_t>(2 * interrupted + rank)] = Bits(*net);
        return absl::OkStatus();
      });
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(bits[2], bits[0]);
    EXPECT_EQ(bits[3], bits[1]);
  }
}

// Rank 2 is the most advanced; the other ranks have different values.
TEST(TrainingState, Broadcast_FromAnyRank_AllContinueEqually) {
  std::vector<std::string> after(3);
  const absl::Status status = RunRanks(3, [&](int rank, Group group) -> absl::Status {
    Job job(3, rank);
    for (int step = 0; step < rank + 1; ++step) job.Step();
    DDPRUN_RETURN_IF_ERROR(job.state.Broadcast(*group, 2));
    // Without dropout, as these ranks are threads that share the random numbers.
    for (int step = 0; step < 3; ++step) {
      job.net.eval();
      const at::Tensor ids = at::arange(6, at::kLong) + step;
      job.optimizer.zero_grad();
      torch::nn::functional::cross_entropy(job.net.forward(ids), ids).backward();
      job.optimizer.step();
      job.scheduler.step();
    }
    after[static_cast<size_t>(rank)] = job.Everything();
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(after, Each(after[2]));
  EXPECT_THAT(after[0], HasSubstr("0/18"));
}

TEST(TrainingState, Broadcast_WithoutTake_KeepsItsOwn) {
  const absl::Status status = RunRanks(3, [&](int rank, Group group) -> absl::Status {
    double value = rank;
    SampleNet net;
    TrainingState state(net);
    DDPRUN_RETURN_IF_ERROR(state.AddValue("value", &value));
    DDPRUN_RETURN_IF_ERROR(state.Broadcast(*group, 2, /*take=*/rank != 1));
    EXPECT_EQ(value, rank == 1 ? 1 : 2);
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(TrainingState, AddSampler_BatchSampler_RollsBackAndLoadsDistributedSamplers) {
  SampleNet net, other_net;
  BatchSampler sampler(60, {.batch_size = 7, .seed = 5});
  sampler.SetWorld(1, 2);
  TrainingState state(net);
  ASSERT_TRUE(state.AddSampler(sampler).ok());
  sampler.Next();
  state.Commit();
  const std::vector<size_t> indices = sampler.Next().indices;
  ASSERT_TRUE(state.Rollback().ok());
  EXPECT_EQ(sampler.position(), 14);
  EXPECT_EQ(sampler.Next().indices, indices);

  DistributedSampler other = DistributedSampler::Create(60, {.num_replicas = 2, .rank = 0, .seed = 5}).value();
  other.set_epoch(3, 10);
  TrainingState other_state(other_net);
  ASSERT_TRUE(other_state.AddSampler(other).ok());
  const TempDir folder;
  ASSERT_TRUE(Checkpointer::Create(nullptr, other_state, {.folder = folder.path()}).value()->Save({.step = 1}).ok());
  ASSERT_TRUE(Checkpointer::Create(nullptr, state, {.folder = folder.path()}).value()->Resume().ok());
  EXPECT_EQ(sampler.epoch(), 3);
  EXPECT_EQ(sampler.position(), 20);
}

TEST(TrainingState, Broadcast_OtherModelOnOneRank_ErrorNamesItAndChangesNothing) {
  std::vector<std::string> errors(3);
  ExpectRanksSucceed(3, [&](int rank, Group group) -> absl::Status {
    torch::nn::Linear layer(2, rank == 1 ? 3 : 2);
    const std::string before = Bits(*layer);
    TrainingState state(*layer);
    errors[static_cast<size_t>(rank)] = std::string(state.Broadcast(*group, 0).message());
    EXPECT_EQ(Bits(*layer), before);
    return group->AllReduce(at::ones({1}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1: "), HasSubstr("weight ([2, 2] in the file, [3, 2] here)"))));
}

TEST(TrainingState, CheckSameOnAllRanks_PartsDiffer_ErrorNamesThem) {
  const auto check = [](std::function<void(Job&)> change) {
    return RunRanks(3, [&](int rank, Group group) {
      std::optional<Job> made;
      {
        static Mutex mutex;  // the ranks are threads, which share the generator
        MutexLock lock(&mutex);
        torch::manual_seed(3);
        made.emplace();
        made->Step();
      }
      Job& job = *made;
      if (rank == 2) change(job);
      return job.state.CheckSameOnAllRanks(*group);
    });
  };
  EXPECT_EQ(check([](Job&) {}), absl::OkStatus());
  EXPECT_EQ(check([](Job& job) { job.best_loss = 0; }), absl::OkStatus()) << "only rank 0 may compute it";
  EXPECT_THAT(check([](Job& job) { job.optimizer.param_groups()[0].options().set_lr(1); }).message(),
              HasSubstr("differ: the optimizer of rank 2"));
  EXPECT_THAT(check([](Job& job) { job.scheduler.step(); }).message(), HasSubstr("differ: \"scheduler\" of rank 2"));
  EXPECT_THAT(check([](Job& job) {
                const at::NoGradGuard no_grad;
                job.net.parameters()[0].view({-1})[0].add_(1);
              }).message(),
              HasSubstr("differ: the parameters of rank 2"));
}

TEST(TrainingState, Add_SameObjectTwice_AddsItOnce) {
  Job job;
  EXPECT_EQ(job.state.AddScheduler(job.scheduler), absl::OkStatus());
  EXPECT_EQ(job.state.AddScheduler(job.scheduler, "other"), absl::OkStatus());
  const auto parts = job.state.Parts();
  EXPECT_FALSE(parts->rest.layout.metadata.contains("ddprun.state.other"));
}

}  // namespace
}  // namespace ddprun::testing
