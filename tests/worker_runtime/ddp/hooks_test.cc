#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "tests/worker_runtime/ddp/small_models.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"

namespace ddprun::testing {
namespace {

std::shared_ptr<DistributedDataParallel<Scale>> WithHook(Group group, CommHook hook) {
  auto ddp = *MakeDistributedDataParallel(std::make_shared<Scale>(), group);
  EXPECT_EQ(ddp->RegisterCommHook(std::move(hook)), absl::OkStatus());
  return ddp;
}

TEST(CommHookTest, RegisterCommHook_CustomHook_ItsResultIsTheGradient) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    int calls = 0;
    auto ddp = WithHook(group, SynchronousHook("own", [&](const GradBucket& bucket, ProcessGroup& of) {
                          ++calls;
                          EXPECT_TRUE(at::equal(bucket.buffer(), at::full({4}, rank + 1.0)));
                          EXPECT_EQ(of.rank(), rank);
                          bucket.buffer().fill_(42);
                          return absl::OkStatus();
                        }));
    ddp->forward(at::full({4}, rank + 1.0)).sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(at::equal(ddp->module()->weight.grad(), at::full({4}, 42.0)));
  });
}

// Three parameters in two buckets of about 64 bytes.
TEST(CommHookTest, GradBucket_InnerHook_HasGradientsAndParameters) {
  for (const bool compressed : {false, true}) {
    ExpectRanksSucceed(2, [compressed](int rank, Group group) {
      auto module = std::make_shared<torch::nn::SequentialImpl>(
          torch::nn::Linear(7, 5), torch::nn::Linear(torch::nn::LinearOptions(5, 3).bias(false)));
      Fill(*module);
      std::vector<size_t> indices;
      std::vector<bool> last;
      std::vector<at::Tensor> seen;
      const CommHook looks = {.name = "looks", .run = [&](const GradBucket& bucket, ProcessGroup& of) {
                                indices.push_back(bucket.index());
                                last.push_back(bucket.is_last());
                                const std::vector<at::Tensor> gradients = bucket.gradients();
                                EXPECT_EQ(gradients.size(), bucket.parameters().size());
                                int64_t length = 0;
                                for (size_t i = 0; i < gradients.size(); ++i) {
                                  EXPECT_EQ(gradients[i].sizes(), bucket.parameters()[i].sizes());
                                  EXPECT_TRUE(gradients[i].is_alias_of(bucket.buffer()));
                                  length += gradients[i].numel();
                                  seen.push_back(bucket.parameters()[i]);
                                  // Identifies the parameter.
                                  gradients[i].fill_(static_cast<double>(bucket.parameters()[i].numel()));
                                }
                                EXPECT_EQ(length, bucket.buffer().numel());
                                EXPECT_EQ(bucket.buffer().scalar_type(), compressed ? at::kBFloat16 : at::kFloat);
                                return AllReduceHook().run(bucket, of);
                              }};
      auto ddp = MakeDistributedDataParallel(module, group, {.bucket_cap_mb = 64.0 / (1 << 20)});
      EXPECT_EQ((*ddp)->RegisterCommHook(compressed ? Bf16CompressHook(looks) : looks), absl::OkStatus());
      for (int step = 0; step < 2; ++step) {
        indices.clear();
        last.clear();
        seen.clear();
        (*ddp)->zero_grad();
        (*ddp)->forward(Inputs(step, rank)).sum().backward();
      }
      EXPECT_EQ(indices, (std::vector<size_t>{0, 1}));
      EXPECT_EQ(last, (std::vector<bool>{false, true}));
      EXPECT_EQ(seen.size(), 3u);
      for (const at::Tensor& parameter : module->parameters()) {
        EXPECT_TRUE(at::equal(parameter.grad(), at::full_like(parameter, static_cast<double>(parameter.numel()))));
        const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
        EXPECT_EQ(std::count_if(seen.begin(), seen.end(), is_it), 1);
      }
    });
  }
}

TEST(CommHookTest, CompressHook_HalfAndBfloat16_AverageInTheirPrecision) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    for (const bool half : {false, true}) {
      auto ddp = WithHook(group, half ? Fp16CompressHook() : Bf16CompressHook());
      ddp->forward(at::full({4}, 1 + rank * 0.001)).sum().backward();
      const at::Tensor grad = ddp->module()->weight.grad();
      EXPECT_EQ(grad.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(grad, at::full({4}, 1.0005), half ? 1e-3 : 1e-2));
      EXPECT_FALSE(at::allclose(grad, at::full({4}, 1.0005), 1e-6, 1e-9)) << "it was rounded";
    }
  });
}

TEST(CommHookTest, RegisterCommHook_SecondHook_IsFailedPrecondition) {
  ExpectRanksSucceed(1, [](int, Group group) {
    auto ddp = WithHook(group, AllReduceHook());
    EXPECT_TRUE(absl::IsFailedPrecondition(ddp->RegisterCommHook(Fp16CompressHook())));
  });
}

TEST(CommHookTest, Backward_HookFails_TryReturnsItsError) {
  ExpectRanksSucceed(1, [](int, Group group) {
    auto ddp = WithHook(group, SynchronousHook("bad", [](const GradBucket&, ProcessGroup&) {
                          return absl::InternalError("the hook broke");
                        }));
    const absl::Status status = group->Try("backward", [&] {
      ddp->forward(at::ones({4})).sum().backward();
      return absl::OkStatus();
    });
    EXPECT_NE(status.message().find("backward: the hook broke"), std::string::npos) << status;
  });
}

TEST(SharedMemoryAllReduceTest, AllReduce_AllSizesAndDtypes_Sums) {
  constexpr size_t kBytes = 1024;  // so that pieces are needed
  for (const int ranks : {1, 2, 3, 4}) {
    ExpectRanksSucceed(ranks, [ranks](int rank, Group group) {
      auto shared = SharedMemoryAllReduce::Create(group, kBytes);
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
        for (const int64_t size : {0, 1, 7, 128, 129, 1000}) {
          at::Tensor tensor = ((at::arange(size) % 5) * (rank + 1)).to(dtype);
          EXPECT_EQ((*shared)->AllReduce(tensor, 2), absl::OkStatus());
          const at::Tensor expected = ((at::arange(size) % 5) * (ranks * (ranks + 1))).to(dtype);
          EXPECT_TRUE(at::equal(tensor, expected)) << ranks << " ranks, " << size << " of " << c10::toString(dtype);
        }
      }
      at::Tensor matrix = at::ones({3, 5, 70});
      EXPECT_EQ((*shared)->AllReduce(matrix), absl::OkStatus());
      EXPECT_TRUE(at::equal(matrix, at::full({3, 5, 70}, 1.0 * ranks)));
    });
  }
}

TEST(SharedMemoryAllReduceTest, AllReduce_UnsupportedTensor_IsInvalidArgument) {
  ExpectRanksSucceed(1, [](int, Group group) {
    auto shared = SharedMemoryAllReduce::Create(group);
    EXPECT_TRUE(absl::IsInvalidArgument((*shared)->AllReduce(at::ones({4, 4}).t().narrow(0, 0, 2))));
    EXPECT_TRUE(absl::IsInvalidArgument((*shared)->AllReduce(at::ones({4}, at::kLong))));
    EXPECT_TRUE(absl::IsInvalidArgument(SharedMemoryAllReduce::Create(group, 100).status()));
  });
}

// Trains a small network and returns its parameters in one tensor.
at::Tensor Train(Group group, const CommHook* hook) {
  auto module = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(7, 33), torch::nn::Linear(33, 5));
  Fill(*module);
  auto ddp = MakeDistributedDataParallel(module, group, {.bucket_cap_mb = 0.0005});
  if (hook != nullptr) TORCH_CHECK((*ddp)->RegisterCommHook(*hook).ok());
  for (int step = 0; step < 4; ++step) {
    (*ddp)->zero_grad();
    (*ddp)->forward(Inputs(step, group->rank())).square().mean().backward();
    torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : module->parameters()) parameter.sub_(parameter.grad(), 0.05);
  }
  std::vector<at::Tensor> flat;
  for (const at::Tensor& parameter : module->parameters()) flat.push_back(parameter.detach().flatten());
  return at::cat(flat);
}

TEST(SharedMemoryAllReduceTest, Hook_TwoAndMoreRanks_EqualsGlooAndIsEqualOnAll) {
  for (const int ranks : {2, 3}) {
    ExpectRanksSucceed(ranks, [ranks](int, Group group) {
      auto shared = SharedMemoryAllReduce::Create(group);
      const CommHook hook = (*shared)->Hook();
      const at::Tensor by_memory = Train(group, &hook);
      const at::Tensor by_gloo = Train(group, nullptr);
      if (ranks == 2) {
        EXPECT_TRUE(at::equal(by_memory, by_gloo));
      }
      EXPECT_TRUE(at::allclose(by_memory, by_gloo));
      absl::StatusOr<std::vector<at::Tensor>> all = group->AllGather(by_memory);
      for (const at::Tensor& one : *all) EXPECT_TRUE(at::equal(one, by_memory));
      const CommHook compressed = Bf16CompressHook(hook);
      EXPECT_TRUE(at::allclose(Train(group, &compressed), by_gloo, 0.05, 0.01));
    });
  }
}

// DdpOptions::shared_memory without a hook: the same bits with two ranks; no effect if memory can't be used.
TEST(SharedMemoryAllReduceTest, DdpOption_SharedMemory_RegistersItsHookOrHasNoEffect) {
  ExpectRanksSucceed(2, [](int, Group group) {
    const auto train = [&](bool shared_memory, at::ScalarType dtype, bool* has_hook) -> at::Tensor {
      auto module = std::make_shared<Scale>(8);
      module->to(dtype);
      auto ddp = MakeDistributedDataParallel(module, group, {.shared_memory = shared_memory});
      *has_hook = !(*ddp)->RegisterCommHook(AllReduceHook()).ok();
      if (dtype != at::kFloat) return {};
      (*ddp)->forward(at::arange(8).to(at::kDouble).add(group->rank()).div(7).to(at::kFloat)).sum().backward();
      return module->weight.grad();
    };
    bool by_option = false, by_default = true;
    const at::Tensor shared = train(true, at::kFloat, &by_option), sent = train(false, at::kFloat, &by_default);
    EXPECT_TRUE(by_option);
    EXPECT_FALSE(by_default);
    EXPECT_TRUE(at::equal(shared, sent));
    bool of_complex = true;
    train(true, at::kComplexFloat, &of_complex);
    EXPECT_FALSE(of_complex);
  });
}

TEST(SharedMemoryAllReduceTest, AllReduce_AbortWhileWaiting_Returns) {
  absl::Status waiting;
  absl::Notification created;
  const absl::Status first = RunRanks(2, [&](int rank, Group group) -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(auto shared, SharedMemoryAllReduce::Create(group));
    // Rank 1 fails, which aborts the group of rank 0; rank 1's memory must remain until then.
    static std::shared_ptr<SharedMemoryAllReduce> kept;
    if (rank == 1) {
      kept = shared;
      created.WaitForNotification();
      return absl::CancelledError("on purpose");
    }
    created.Notify();
    waiting = shared->AllReduce(at::ones({100}));
    return waiting;
  });
  EXPECT_TRUE(absl::IsCancelled(first)) << first;
  EXPECT_TRUE(absl::IsAborted(waiting)) << waiting;
}

TEST(SharedMemoryAllReduceTest, AllReduce_NoOtherRankEnters_IsDeadlineExceeded) {
  ProcessGroupOptions options{.timeout = absl::Milliseconds(300)};
  absl::Status waiting;
  RunRanks(2, options, [&](int rank, Group group) -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(auto shared, SharedMemoryAllReduce::Create(group));
    static std::shared_ptr<SharedMemoryAllReduce> kept;
    if (rank == 1) kept = shared;
    if (rank == 0) waiting = shared->AllReduce(at::ones({100}));
    return absl::OkStatus();
  }).IgnoreError();
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiting)) << waiting;
  EXPECT_NE(waiting.message().find("waiting for rank 1"), std::string::npos) << waiting;
}

}  // namespace
}  // namespace ddprun::testing
