// Data parallel training with NCCL. One rank covers all of it: hooks, buckets, streams, the fused kernel.
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mse_loss.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "examples/cpp/gpt/model.h"
#include "tests/e2e/launch.h"
#include "tests/gpu/halves.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {
namespace {

constexpr int kSteps = 8;

std::shared_ptr<ProcessGroup> Group(c10::Device device, const std::string& backend) {
  ProcessGroupOptions options;
  options.backend = backend;
  options.device = device;
  options.timeout = absl::Minutes(1);
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv(), options);
  EXPECT_TRUE(group.ok()) << group.status();
  return group.ok() ? *group : nullptr;
}

struct Mode {
  std::string name;
  DdpOptions options;
  AdamWKernel kernel = AdamWKernel::kFused;
  bool compress = false;
};

// Losses of some steps of the GPT.
std::vector<double> TrainGpt(std::shared_ptr<ProcessGroup> group, c10::Device device, const Mode& mode) {
  std::vector<double> losses;
  const absl::Status status = group->Try("training", [&]() -> absl::Status {
    torch::manual_seed(3);
    gpt::Model model(gpt::Config{.vocab_size = 64, .block_size = 32, .n_layer = 2, .n_head = 2, .n_embd = 64});
    model->to(device);
    DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(model, group, mode.options));
    if (mode.compress) DDPRUN_RETURN_IF_ERROR(ddp->RegisterCommHook(Bf16CompressHook()));
    AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3), mode.kernel);
    const at::Tensor text = (at::arange(8 * 33) * 7919 % 64).view({8, 33}).to(device);
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor loss = gpt::Loss(ddp->forward(text.narrow(1, 0, 32)), text.narrow(1, 1, 32));
      ddp->zero_grad();
      loss.backward();
      optimizer.step();
      losses.push_back(LossOfThisRank(loss));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << mode.name << ": " << status;
  return losses;
}

class DdpGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostHasGpu()) GTEST_SKIP() << "this host has no NVIDIA GPU";
    absl::StatusOr<c10::Device> chosen = ChooseDevice(WorkerEnv(), "cuda");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    device_ = *chosen;
    // Rounding to ten bits would hide differences.
    at::globalContext().setAllowTF32CuBLAS(false);
  }

  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

TEST_F(DdpGpuTest, Gpt_OverNccl_LossesEqualTheCpus) {
  const std::vector<double> on_cpu = TrainGpt(Group(c10::Device(at::kCPU), "gloo"), c10::Device(at::kCPU), {"cpu"});
  const std::vector<Mode> modes = {
      {"default", {}},
      {"loop", {}, AdamWKernel::kLoop},
      {"foreach", {}, AdamWKernel::kForeach},
      {"view", {.bucket_cap_mb = 0.05, .gradient_as_bucket_view = true}},
      {"static", {.static_graph = true}},
      {"find unused", {.find_unused_parameters = true}},
      {"bf16", {}, AdamWKernel::kFused, true},
  };
  std::shared_ptr<ProcessGroup> group = Group(device_, "nccl");
  ASSERT_NE(group, nullptr);
  for (const Mode& mode : modes) {
    const std::vector<double> on_gpu = TrainGpt(group, device_, mode);
    ASSERT_EQ(on_gpu.size(), on_cpu.size()) << mode.name;
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(on_gpu[step], on_cpu[step], mode.compress ? 0.05 : 2e-3) << mode.name << " step " << step;
    }
  }
  EXPECT_EQ(group->Shutdown(), absl::OkStatus());
}

std::vector<double> TrainHalves(std::shared_ptr<ProcessGroup> group, c10::Device first, c10::Device second) {
  std::vector<double> losses;
  const absl::Status status = group->Try("training", [&]() -> absl::Status {
    torch::manual_seed(4);
    auto module = std::make_shared<testing::Halves>(first, second);
    DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(module, group));
    AdamW optimizer(module->parameters(), torch::optim::AdamWOptions(1e-2));
    const at::Tensor x = (at::arange(8 * 16).view({8, 16}) % 11).to(at::kFloat) / 11;
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor loss = ddp->forward(x).square().mean();
      ddp->zero_grad();
      loss.backward();
      optimizer.step();
      losses.push_back(LossOfThisRank(loss));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return losses;
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << "step " << i;
}

TEST_F(DdpGpuTest, ModelOnGpuAndCpu_MixedGroup_Trains) {
  const c10::Device cpu(at::kCPU);
  const std::vector<double> on_cpu = TrainHalves(Group(cpu, "gloo"), cpu, cpu);
  std::shared_ptr<ProcessGroup> mixed = Group(device_, "cpu:gloo,cuda:nccl");
  ASSERT_NE(mixed, nullptr);
  ExpectNear(TrainHalves(mixed, device_, cpu), on_cpu);
}

// Losses that two processes on one device print.
std::vector<double> LossesOfTwoRanks(const std::string& device, const std::string& backend) {
  testing::Finished launcher(
      0, {"--standalone", "--nproc-per-node=2", "--no-python", "tests/gpu/sharing_rank", device, backend});
  std::vector<double> losses;
  for (absl::string_view line : absl::StrSplit(launcher.Out(), '\n')) {
    double loss;
    if (absl::ConsumePrefix(&line, "loss ") && absl::SimpleAtod(line, &loss)) losses.push_back(loss);
  }
  EXPECT_EQ(losses.size(), kSteps) << launcher.Out() << launcher.Err();
  return losses;
}

// Gloo moves CUDA tensors through the host. The result equals that of two ranks on the CPU.
TEST_F(DdpGpuTest, TwoRanksOnOneGpu_OverGloo_LossesEqualTheCpus) {
  ExpectNear(LossesOfTwoRanks("cuda:0", "gloo"), LossesOfTwoRanks("cpu", "gloo"));
}

TEST_F(DdpGpuTest, TwoRanksOnOneGpu_OverNccl_LossesEqualTheCpus) {
  ExpectNear(LossesOfTwoRanks("cuda:0", "nccl"), LossesOfTwoRanks("cpu", "gloo"));
}

TEST_F(DdpGpuTest, ModelOnTwoGpus_OneGroup_Trains) {
  std::shared_ptr<ProcessGroup> group = Group(device_, "nccl");
  ASSERT_NE(group, nullptr);
  if (at::getNumGPUs() < 2) GTEST_SKIP() << "this host has only one GPU";
  const c10::Device cpu(at::kCPU);
  const std::vector<double> on_cpu = TrainHalves(Group(cpu, "gloo"), cpu, cpu);
  ExpectNear(TrainHalves(group, c10::Device(at::kCUDA, 0), c10::Device(at::kCUDA, 1)), on_cpu);
}

}  // namespace
}  // namespace ddprun
