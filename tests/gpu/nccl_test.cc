#include <ATen/ops/full.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <thread>

#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/nccl_loader.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostHasGpu()) GTEST_SKIP() << "this host has no NVIDIA GPU";
    absl::StatusOr<c10::Device> chosen = ChooseDevice(WorkerEnv(), "cuda");
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    device_ = *chosen;
  }

  absl::StatusOr<std::shared_ptr<ProcessGroup>> Make(const std::string& backend) {
    ProcessGroupOptions options;
    options.backend = backend;
    options.device = device_;
    options.timeout = absl::Minutes(1);
    return ProcessGroup::Create(WorkerEnv(), options);
  }

  at::Tensor OnGpu(double value) { return at::full({1000}, value, at::TensorOptions().device(device_)); }

  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

TEST_F(Nccl, Collectives_OfOneRank) {
  for (const char* backend : {"", "nccl", "cpu:gloo,cuda:nccl"}) {
    absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make(backend);
    ASSERT_TRUE(group.ok()) << group.status();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      at::Tensor tensor = OnGpu(3);
      EXPECT_EQ((*group)->AllReduce(tensor, op), absl::OkStatus());
      EXPECT_EQ(tensor[999].item<double>(), 3);
    }
    at::Tensor tensor = OnGpu(4);
    EXPECT_EQ((*group)->Broadcast(tensor), absl::OkStatus());
    EXPECT_EQ((*group)->AllGather(tensor)->size(), 1u);
    EXPECT_EQ(*(*group)->BroadcastText("text"), "text");
    EXPECT_EQ((*group)->Barrier(), absl::OkStatus());
    EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
  }
}

TEST_F(Nccl, MixedGroup_MovesTensorsOfBothDevices) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("cpu:gloo,cuda:nccl");
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->AllReduce(OnGpu(1)), absl::OkStatus());
  EXPECT_EQ((*group)->AllReduce(at::full({4}, 1.0)), absl::OkStatus());
  EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
}

TEST_F(Nccl, Abort_ThenAnotherGroupInTheSameProcess) {
  for (int round = 0; round < 5; ++round) {
    absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("nccl");
    ASSERT_TRUE(group.ok()) << group.status();
    at::Tensor tensor = OnGpu(2);
    ASSERT_EQ((*group)->AllReduce(tensor), absl::OkStatus());
    EXPECT_EQ(tensor[0].item<double>(), 2);
    std::thread([&] { (*group)->Abort("a peer is gone"); }).join();
    const absl::Status status = (*group)->AllReduce(tensor);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a peer is gone"));
  }
}

TEST_F(Nccl, DeviceThatIsNotThere_IsNamedWithHowManyThereAre) {
  WorkerEnv env;
  env.local_rank = 100;
  const absl::Status status = ChooseDevice(env, "cuda").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no device cuda:100 (the GPU of this local rank): this process sees"));
  ProcessGroupOptions options;
  options.backend = "nccl";
  options.device = c10::Device(c10::DeviceType::CUDA, 100);
  EXPECT_THAT(std::string(ProcessGroup::Create(WorkerEnv(), options).status().message()),
              HasSubstr("no device cuda:100"));
}

TEST_F(Nccl, TensorOfTheCpu_IsRefusedByAGroupThatHasNcclOnly) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("nccl");
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_FALSE((*group)->AllReduce(at::full({4}, 1.0)).ok());
}

// This one needs no GPU: the plugin loads, with all of CUDA's libraries, and is of this build.
TEST(NcclPlugin, Loads_AndIsOfThisBuild) {
  void* const library = dlopen(getenv(kNcclLibraryVariable), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto function = reinterpret_cast<NcclPluginFunction>(dlsym(library, DDPRUN_NCCL_PLUGIN_ENTRY));
  ASSERT_NE(function, nullptr);
  EXPECT_STREQ(function()->build, DDPRUN_NCCL_PLUGIN_BUILD);
}

}  // namespace
}  // namespace ddprun
