// Checkpoints of a module on a GPU: pinned memory, a side stream, and the GPU's random numbers. Skipped without a GPU.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "tests/testing/process.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/checkpoint/tensors_file.h"

namespace ddprun::testing {
namespace {

class CheckpointGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here";
  }
};

TEST_F(CheckpointGpu, AsyncSave_TrainingContinues_SavesTheStateOfTheCall) {
  TempDir temp;
  torch::nn::Linear layer(4096, 4096);
  layer->to(at::kCUDA);
  torch::optim::AdamW optimizer(layer->parameters());
  auto checkpointer = Checkpointer::Create(nullptr, *layer, &optimizer, {.folder = temp.path(), .async = true});
  const at::NoGradGuard no_grad;
  for (int64_t step = 1; step <= 5; ++step) {
    // Work that is still running when Save is called, and work that follows at once, on the trainer's stream.
    for (int i = 0; i < 50; ++i) layer->weight.add_(1);
    layer->weight.fill_(static_cast<double>(step));
    ASSERT_TRUE((*checkpointer)->Save({.step = step}).ok());
    for (int i = 0; i < 50; ++i) layer->weight.add_(1);
  }
  ASSERT_TRUE((*checkpointer)->Finish().ok());
  const auto saved = LoadTensors(temp.File("step_00000005.safetensors"));
  EXPECT_TRUE((saved->tensors.at("weight") == 5).all().item<bool>());
  ASSERT_TRUE((*checkpointer)->Resume().ok());
  EXPECT_TRUE(layer->weight.is_cuda());
  EXPECT_TRUE((layer->weight == 5).all().item<bool>());
}

TEST_F(CheckpointGpu, Resume_GeneratorOfTheGpu_Continues) {
  TempDir temp;
  torch::nn::Linear layer(2, 2);
  layer->to(at::kCUDA);
  auto checkpointer = Checkpointer::Create(nullptr, *layer, nullptr, {.folder = temp.path()});
  ASSERT_TRUE((*checkpointer)->Save({.step = 1}).ok());
  const at::Tensor first = at::randn({100}, at::kCUDA);
  const at::Tensor first_cpu = at::randn({100});
  ASSERT_TRUE((*checkpointer)->Resume().ok());
  EXPECT_TRUE(at::equal(at::randn({100}, at::kCUDA), first));
  EXPECT_TRUE(at::equal(at::randn({100}), first_cpu));
}

TEST_F(CheckpointGpu, Load_FileFromTheCpu_LoadsToTheGivenDevice) {
  TempDir temp;
  ASSERT_TRUE(SaveTensors({{"w", at::arange(5, at::kFloat)}}, temp.File("t")).ok());
  const auto loaded = LoadTensors(temp.File("t"), at::kCUDA);
  EXPECT_TRUE(loaded->tensors.at("w").is_cuda());
  EXPECT_TRUE(at::equal(loaded->tensors.at("w").cpu(), at::arange(5, at::kFloat)));
}

}  // namespace
}  // namespace ddprun::testing
