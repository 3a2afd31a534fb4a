// Training in a process without a launcher; tests/worker_runtime/elastic has the ranks that die.
#include "worker_runtime/training.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/metrics.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor Inputs(const std::vector<size_t>& indices) {
  std::vector<at::Tensor> rows;
  for (const size_t index : indices) rows.push_back(at::arange(4).to(at::kFloat) * (1.0 + static_cast<double>(index)));
  return at::stack(rows) / 10;
}

double Rate(torch::optim::Optimizer& optimizer) { return optimizer.param_groups()[0].options().get_lr(); }

// The objects of a small job.
struct Job {
  Job() { at::manual_seed(3); }

  Training Train(int64_t steps, const std::string& folder = "") {
    return Training(worker, ddp, optimizer, {.steps = steps, .checkpoint = {.folder = folder}, .checkpoint_every = 2});
  }
  at::Tensor Loss(const std::vector<size_t>& indices) { return ddp(Inputs(indices)).square().mean(); }

  Worker worker{WorkerEnv(), {.seed = 1}};
  torch::nn::Linear net{(at::manual_seed(3), 4), 2};
  DistributedDataParallel<torch::nn::LinearImpl> ddp{net};
  torch::optim::SGD optimizer{Parameters(net), torch::optim::SGDOptions(0.1)};
  BatchSampler sampler{10, {.batch_size = 4, .shuffle = false}};
};

TEST(Training, Run_NoFailure_EqualsAPlainLoop) {
  Job job;
  LambdaLR schedule(job.optimizer, [](int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  Training training = job.Train(5);
  training.Add(job.sampler, schedule);
  std::vector<std::vector<size_t>> batches;
  ASSERT_EQ(training.Run([&](Step& step) {
    batches.push_back(step.Next(job.sampler));
    step.Backward(job.Loss(batches.back()));
    EXPECT_FALSE(std::isnan(step.ClipGradNorm(0.01).item<double>()));
  }),
            absl::OkStatus());
  EXPECT_THAT(batches[2], ElementsAre(8, 9));
  EXPECT_EQ(job.sampler.epoch(), 1);
  EXPECT_DOUBLE_EQ(Rate(job.optimizer), 0.1 / 6);

  at::manual_seed(3);
  torch::nn::Linear net(4, 2);
  torch::optim::SGD optimizer(Parameters(net), torch::optim::SGDOptions(0.1));
  LambdaLR plain(optimizer, [](int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  for (const std::vector<size_t>& batch : batches) {
    optimizer.zero_grad();
    net(Inputs(batch)).square().mean().backward();
    ClipGradNorm(Parameters(net), 0.01);
    optimizer.step();
    plain.step();
  }
  EXPECT_TRUE(at::equal(net->weight, job.net->weight));
}

TEST(Training, Backward_SeveralTimes_Accumulates) {
  Job job;
  at::manual_seed(3);
  torch::nn::Linear same(4, 2);
  same(Inputs({0})).square().mean().mul(2).backward();
  Training training = job.Train(1);
  ASSERT_EQ(training.Run([&](Step& step) {
    job.net->weight.mutable_grad() = at::full_like(job.net->weight, 7);  // is not added to
    {
      const auto no_sync = job.ddp.no_sync();
      step.Backward(job.Loss({0}));
    }
    step.Backward(job.Loss({0}));
    EXPECT_TRUE(at::allclose(same->weight.grad(), job.net->weight.grad()));
  }),
            absl::OkStatus());
}

TEST(Training, Run_SyncBatchNorm_UsesTheRoundsGroup) {
  Worker worker{WorkerEnv(), {.seed = 1}};
  SyncBatchNorm norm(torch::nn::BatchNormOptions(4), [&worker] { return worker.group(); });
  DistributedDataParallel<SyncBatchNormImpl> ddp(norm);
  torch::optim::SGD optimizer(Parameters(norm), torch::optim::SGDOptions(0.1));
  EXPECT_THROW(norm(Inputs({0, 1})), c10::ValueError) << "there is no group yet";
  Training training(worker, ddp, optimizer, {.steps = 2});
  EXPECT_EQ(training.Run([&](Step& step) { step.Backward(ddp(Inputs({0, 1})).square().sum()); }), absl::OkStatus());
}

TEST(Training, Backward_WithScaler_ScalesTheLossAndSteps) {
  Job job;
  GradScaler scaler({.init_scale = 1024, .growth_interval = 1});
  Training training = job.Train(3);
  training.Add(job.sampler, scaler);
  ASSERT_EQ(training.Run([&](Step& step) -> absl::Status {
    const at::Tensor weight = job.net->weight.detach().clone();
    // Backward runs in the dtype of forward, although the guard is still alive.
    const Autocast autocast(c10::DeviceType::CPU);
    const at::Tensor loss = job.Loss(step.Next(job.sampler)).to(at::kFloat);
    step.Backward(step.number() == 1 ? loss * std::numeric_limits<float>::infinity() : loss);
    step.Commit();
    EXPECT_EQ(at::equal(weight, job.net->weight), step.number() == 1) << "a step that overflowed is skipped";
    return absl::OkStatus();
  }),
            absl::OkStatus());
  EXPECT_EQ(scaler.scale(), 1024 * 2 * 0.5 * 2);
}

TEST(Training, Run_Metrics_ReducesThemAfterTheSteps) {
  Job job;
  Metrics metrics;
  Training training = job.Train(4);
  training.Add(job.sampler, metrics);
  ASSERT_EQ(training.Run([&](Step& step) {
    metrics.Add("number", static_cast<double>(step.number()));
    step.Backward(job.Loss(step.Next(job.sampler)));
    step.Commit();
    if (step.number() == 3) {
      EXPECT_EQ(metrics.Reduce(*job.worker.group())->at("number"), 1.5);
    }
  }),
            absl::OkStatus());
}

TEST(Training, Commit_WithFunction_IsPartOfTheStep) {
  const TempDir folder;
  std::string log;
  double average = 0;
  for (const int64_t steps : {3, 6}) {
    Job job;
    Training training = job.Train(steps, folder.path());
    training.Add(job.sampler);
    ASSERT_EQ(training.state().AddValue("average", &average), absl::OkStatus());
    ASSERT_EQ(training.Run([&](Step& step) {
      step.Backward(job.Loss(step.Next(job.sampler)));
      const at::Tensor before = job.net->weight.detach().clone();
      step.Commit([&] {
        EXPECT_FALSE(at::equal(before, job.net->weight)) << "the optimizer has stepped";
        average += 1;
      });
      absl::StrAppend(&log, step.number(), " ");
    }),
              absl::OkStatus());
  }
  EXPECT_EQ(log, "0 1 2 3 4 5 ") << "the second run resumes";
  EXPECT_EQ(average, 6);
}

TEST(Training, Evaluate_InTraining_UsesEvaluationMode) {
  Job job;
  Training training = job.Train(5);
  training.Add(job.sampler);
  std::string log;
  training.EvaluateEvery(2, [&](int64_t steps) {
    EXPECT_FALSE(job.net->is_training() || at::GradMode::is_enabled());
    absl::StrAppend(&log, "evaluate ", steps, " ");
    return absl::OkStatus();
  });
  ASSERT_EQ(training.Run([&](Step& step) { step.Backward(job.Loss(step.Next(job.sampler))); }), absl::OkStatus());
  EXPECT_EQ(log, "evaluate 2 evaluate 4 evaluate 5 ");
  EXPECT_TRUE(job.net->is_training());
}

TEST(Training, Run_WrongUse_ReturnsError) {
  const auto error = [](auto prepare, auto step) {
    Job job;
    Training training = job.Train(1);
    prepare(job, training);
    return std::string(training.Run([&](Step& of) { step(job, of); }).message());
  };
  const auto add = [](Job& job, Training& training) { training.Add(job.sampler); };
  const auto nothing = [](Job&, Training&) {};
  const auto make = [](Job& job, Step& step) { step.Backward(job.Loss(step.Next(job.sampler))); };
  EXPECT_EQ(error(add, make), "");
  EXPECT_THAT(error(nothing, make), HasSubstr("the sampler is unknown: call Training::Add(sampler) before Run"));
  EXPECT_THAT(error(add,
                    [&](Job& job, Step& step) {
                      make(job, step);
                      step.Commit();
                      step.Commit();
                    }),
              HasSubstr("Step::Commit was called twice in one step"));
  EXPECT_THAT(error(add, [](Job&, Step&) { at::zeros({2}).view({3}); }), HasSubstr("shape '[3]' is invalid"));
  const auto after = [&](auto second) {
    return [&make, second](Job& job, Step& step) {
      make(job, step);
      second(job, step);
    };
  };
  EXPECT_THAT(error(add,
                    [](Job& job, Step& step) {
                      job.optimizer.zero_grad();
                      job.Loss(step.Next(job.sampler)).backward();
                    }),
              HasSubstr("call step.Backward(loss), instead of loss.backward()"));
  EXPECT_THAT(error(add, [](Job&, Step& step) { step.ClipGradNorm(1); }),
              HasSubstr("once in a step, after its last Step::Backward"));
  EXPECT_THAT(error(add, after([&](Job& job, Step& step) {
                      step.ClipGradNorm(1);
                      make(job, step);
                    })),
              HasSubstr("Step::Backward was called after ClipGradNorm"));
  EXPECT_THAT(error(add, after([&](Job& job, Step& step) {
                      step.Commit();
                      step.Next(job.sampler);
                    })),
              HasSubstr("Step::Next was called after Commit"));
  std::optional<LambdaLR> forgotten, other;
  const auto forget = [&](Job& job, Training& training) {
    forgotten.emplace(job.optimizer, CosineWithWarmup(10, 100));
    training.Add(job.sampler);
  };
  EXPECT_THAT(error(forget, make), HasSubstr("a LambdaLR that was not added: no step would step it"));
  forgotten.reset();
  torch::optim::SGD of_another(torch::nn::Linear(1, 1)->parameters(), torch::optim::SGDOptions(0.1));
  other.emplace(of_another, CosineWithWarmup(10, 100));
  EXPECT_EQ(error(add, make), "") << "not of this optimizer";
  GradScaler one, two;
  EXPECT_EQ(error([&](Job&, Training& training) { training.Add(one, two); }, make),
            "Training::Add: a second gradient scaler");
  EXPECT_THAT(error([](Job&, Training& training) { training.EvaluateEvery(0, nullptr); }, make),
              HasSubstr("steps=0: must be at least 1"));
  EXPECT_THAT(error([](Job& job, Training&) { ASSERT_EQ(job.worker.InitProcessGroup(), absl::OkStatus()); }, make),
              HasSubstr("remove the call of InitProcessGroup"));
}

TEST(Training, Run_SecondTime_ReturnsError) {
  Job job;
  EXPECT_THROW(job.worker.group(), c10::ValueError);
  Training training = job.Train(2), other = job.Train(2);
  training.Add(job.sampler);
  const auto make = [&](Step& step) { step.Backward(job.Loss(step.Next(job.sampler))); };
  EXPECT_FALSE(training.finished());
  EXPECT_EQ(training.Run(make), absl::OkStatus());
  EXPECT_TRUE(training.finished());
  for (Training* second : {&training, &other}) {
    EXPECT_THAT(std::string(second->Run(make).message()), HasSubstr("a process can run one Training, once"));
  }
}

}  // namespace
}  // namespace ddprun::testing
