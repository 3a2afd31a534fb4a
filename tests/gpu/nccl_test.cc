#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <cmath>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "worker_runtime/process_group/backend_choice.h"
#include "worker_runtime/process_group/c10d_operations.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HostHasGpu()) GTEST_SKIP() << "this host has no NVIDIA GPU";
#ifndef DDPRUN_HAS_NCCL2
    if (IsNccl2()) GTEST_SKIP() << "this LibTorch has no nccl2";
#endif
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

  // True if "nccl" is nccl2 (TORCH_DIST_USE_NCCL2).
  static bool IsNccl2() { return ParseBackendChoice("nccl", true)->engine == NcclEngine::kNccl2; }

  at::Tensor OnGpu(double value) { return at::full({1000}, value, at::TensorOptions().device(device_)); }

  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

// Most results of a world of one equal the input, so that a backend without effect would pass: gathered tensors must be
// in new memory, and the backend must have counted every operation.
TEST_F(Nccl, Collectives_OneRank_Work) {
  for (const char* backend : {"", "nccl", "cpu:gloo,cuda:nccl"}) {
    absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make(backend);
    ASSERT_TRUE(group.ok()) << group.status();
    const auto nccl = (*group)->c10d()->getBackend(c10::DeviceType::CUDA);
    EXPECT_EQ(nccl->getBackendName(), IsNccl2() ? "nccl2" : "nccl");
    const uint64_t before = nccl->getSequenceNumberForGroup();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
      at::Tensor tensor = OnGpu(3);
      EXPECT_EQ((*group)->AllReduce(tensor, op), absl::OkStatus());
      EXPECT_EQ(tensor[999].item<double>(), 3);
    }
    at::Tensor tensor = at::arange(1000, at::TensorOptions().device(device_).dtype(at::kBFloat16));
    EXPECT_EQ((*group)->Broadcast(tensor), absl::OkStatus());
    absl::StatusOr<std::vector<at::Tensor>> gathered = (*group)->AllGather(tensor);
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    EXPECT_FALSE((*gathered)[0].is_alias_of(tensor));
    EXPECT_TRUE(at::equal((*gathered)[0], tensor));
    EXPECT_EQ(*(*group)->BroadcastText("text"), "text");
    EXPECT_EQ((*group)->Barrier(), absl::OkStatus());
    EXPECT_GE(nccl->getSequenceNumberForGroup(), before + 5);
    EXPECT_EQ((*group)->Health(), absl::OkStatus());
    EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
  }
}

// A model on several GPUs sends from all of them; no device is bound. nccl2 refuses that.
TEST_F(Nccl, AllReduce_TensorsOfTwoGpus_Work) {
  if (at::getNumGPUs() < 2) GTEST_SKIP() << "this host has only one GPU";
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("nccl-legacy");
  ASSERT_TRUE(group.ok()) << group.status();
  for (const int gpu : {0, 1}) {
    at::Tensor tensor = at::full({1000}, 2.0, at::TensorOptions().device(c10::Device(at::kCUDA, gpu)));
    EXPECT_EQ((*group)->AllReduce(tensor), absl::OkStatus());
    EXPECT_EQ(tensor[0].item<double>(), 2);
  }
  EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
}

// The abort happens while collectives are queued on the GPU behind seconds of work: it returns, and their results are
// ignored.
TEST_F(Nccl, Health_AbortDuringCollectives_ReturnsIt) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("nccl");
  ASSERT_TRUE(group.ok()) << group.status();
  at::Tensor warm = OnGpu(1);
  ASSERT_EQ((*group)->AllReduce(warm), absl::OkStatus());
  at::Tensor square = at::full({8192, 8192}, 1e-4, at::TensorOptions().device(device_));
  at::Tensor sum = at::full({1 << 26}, 1.0, at::TensorOptions().device(device_));
  for (int i = 0; i < 20; ++i) {
    square = at::mm(square, square);
    ASSERT_EQ((*group)->AllReduce(sum), absl::OkStatus());
  }
  std::thread([&] { (*group)->Abort("a peer is gone"); }).join();
  EXPECT_EQ((*group)->Health().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(std::isfinite(square.sum().item<double>())) << "the device can still be used";
  EXPECT_EQ((*group)->AllReduce(sum).code(), absl::StatusCode::kAborted);
}

// Rank 1 joins the group, but calls no operation, so rank 0 waits for it before it creates the communicator.
class NcclWithoutPeer : public Nccl {
 protected:
  // Calls `wait` for rank 0 on another thread, then `end` when it waits. Returns the result of `wait`.
  absl::Status EndWait(std::function<absl::Status(ProcessGroup&)> wait, std::function<void(ProcessGroup&)> end) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    ProcessGroupOptions options;
    options.timeout = absl::Minutes(5);
    options.cancel = stop_.get_token();
    options.backend = "nccl";
    options.device = device_;
    absl::Status status;
    {
      std::thread joining([&] {
        c10d::PrefixStore of_group("g", store);
        Peer peer = *Peer::Decode(of_group.get_to_str("rank/0"));
        peer.gpu = "";
        EXPECT_TRUE(Meet(of_group, 1, 2, peer, options.timeout, /*hosts_store=*/false).ok());
      });
      const std::shared_ptr<ProcessGroup> group = *ProcessGroup::CreateWithStore(store, "g", 0, 2, options);
      joining.join();
      std::thread waiting([&] { status = wait(*group); });
      // NcclStore counts the ranks that are about to create the communicator.
      const char* const id = IsNccl2() ? "nccl2/nccl_storekey_0" : "0";
      EXPECT_TRUE(testing::Eventually([&] { return store->add(absl::StrCat("g/cuda/", id, "/ranks"), 0) == 1; }));
      end(*group);
      waiting.join();
    }
    // A thread that was left behind uses CUDA until it has noticed the stop; CUDA must not be unloaded before.
    EXPECT_TRUE(testing::Eventually([&] { return store.use_count() == 1; }));
    return status;
  }

  std::stop_source stop_;
};

TEST_F(NcclWithoutPeer, ConnectNccl_Cancelled_Ends) {
  const absl::Status status =
      EndWait([](ProcessGroup& group) { return group.ConnectNccl(); }, [this](ProcessGroup&) { stop_.request_stop(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_F(NcclWithoutPeer, Abort_PeerNeverEnters_EndsTheFirstCollective) {
  const absl::Status status = EndWait([this](ProcessGroup& group) { return group.AllReduce(OnGpu(1)); },
                                      [](ProcessGroup& group) { group.Abort("rank 1 is gone"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
}

TEST_F(Nccl, Collectives_MixedGroup_MoveTensorsOfBothDevices) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("cpu:gloo,cuda:nccl");
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->AllReduce(OnGpu(1)), absl::OkStatus());
  EXPECT_EQ((*group)->AllReduce(at::full({4}, 1.0)), absl::OkStatus());
  EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
}

TEST_F(Nccl, Create_AfterAnAbort_WorksInTheSameProcess) {
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

TEST_F(Nccl, Create_DeviceDoesNotExist_ErrorHasTheNumberOfGpus) {
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

TEST_F(Nccl, AllReduce_CpuTensorOverNcclAlone_IsInvalidArgument) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = Make("nccl");
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_FALSE((*group)->AllReduce(at::full({4}, 1.0)).ok());
}

// Needs no GPU: the plugin loads with all of CUDA's libraries, and belongs to this build.
TEST(NcclPlugin, LoadNcclPlugin_ThisBuild_Loads) {
  void* const library = dlopen(getenv(kNcclLibraryVariable), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto function = reinterpret_cast<NcclPluginFunction>(dlsym(library, DDPRUN_NCCL_PLUGIN_ENTRY));
  ASSERT_NE(function, nullptr);
  EXPECT_STREQ(function()->build, DDPRUN_NCCL_PLUGIN_BUILD);
}

}  // namespace
}  // namespace ddprun
