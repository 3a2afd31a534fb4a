#include <ATen/Functions.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/worker_runtime/ddp/small_models.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/process_group/collectives.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::SequentialImpl;

template <typename M>
std::shared_ptr<DistributedDataParallel<M>> Wrap(std::shared_ptr<M> module, Group group,
                                                 const DdpOptions& options = {}) {
  return MakeDistributedDataParallel(module, group, options).value();
}

TEST(DdpTest, Create_ModelsDiffer_SetsThemToRankZeros) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    auto module = std::make_shared<Scale>();
    module->register_buffer("steps", at::full({1}, 10 + rank, at::kLong));
    torch::NoGradGuard no_grad;
    module->weight.fill_(rank + 5);
    Wrap(module, group);
    EXPECT_TRUE(at::equal(module->weight, at::full({4}, 5.0)));
    EXPECT_EQ(module->named_buffers()["steps"].item<int64_t>(), 10);
  });
}

TEST(DdpTest, Create_WithoutInitSync_ChangesNothing) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<Scale>();
    torch::NoGradGuard no_grad;
    module->weight.fill_(rank + 5);
    Wrap(module, group, {.init_sync = false});
    EXPECT_TRUE(at::equal(module->weight, at::full({4}, rank + 5.0)));
  });
}

TEST(DdpTest, Create_ShapesDiffer_SameErrorOnAllRanks) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    auto module = std::make_shared<Scale>(rank == 2 ? 5 : 4);
    const absl::Status status = MakeDistributedDataParallel(module, group).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("parameter \"weight\" has shape [4] on rank 0 and [5] on rank 2; "));
  });
}

TEST(DdpTest, Create_OptionsDiffer_IsInvalidArgument) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    DdpOptions options{.static_graph = rank == 1};
    const absl::Status status = MakeDistributedDataParallel(std::make_shared<Scale>(), group, options).status();
    EXPECT_THAT(status.ToString(), HasSubstr("static_graph is false on rank 0 and true on rank 1"));
  });
}

TEST(DdpTest, Create_NothingToTrain_IsInvalidArgument) {
  ExpectRanksSucceed(1, [](int, Group group) {
    auto module = std::make_shared<Scale>();
    module->weight.set_requires_grad(false);
    const absl::Status status = MakeDistributedDataParallel(module, group).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("no parameter that requires a gradient"));
  });
}

TEST(DdpTest, Backward_AllModes_AveragesGradients) {
  const std::map<std::string, DdpOptions> modes = {
      {"default", {}},
      {"view", {.gradient_as_bucket_view = true}},
      {"find", {.find_unused_parameters = true}},
      {"static", {.static_graph = true}},
      {"static view", {.gradient_as_bucket_view = true, .static_graph = true}},
  };
  ExpectRanksSucceed(3, [&modes](int rank, Group group) {
    for (const auto& [name, options] : modes) {
      auto module = std::make_shared<Scale>();
      auto ddp = Wrap(module, group, options);
      for (int step = 1; step <= 3; ++step) {
        ddp->zero_grad();
        (*ddp)(at::full({4}, (rank + 1.0) * step)).sum().backward();
        EXPECT_TRUE(at::allclose(module->weight.grad(), at::full({4}, 2.0 * step)))
            << name << ": " << module->weight.grad();
      }
    }
  });
}

TEST(DdpTest, NoSync_ThenSyncedStep_AveragesTheSum) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<Scale>();
    auto ddp = Wrap(module, group);
    {
      auto no_sync = ddp->no_sync();
      ddp->forward(at::full({4}, rank + 1.0)).sum().backward();
      EXPECT_TRUE(at::equal(module->weight.grad(), at::full({4}, rank + 1.0)));
    }
    ddp->forward(at::full({4}, 10.0 * (rank + 1))).sum().backward();
    EXPECT_TRUE(at::allclose(module->weight.grad(), at::full({4}, 1.5 + 15)));
  });
}

// Without the error, ranks that call the module's own forward would diverge.
TEST(DdpTest, Backward_ModulesOwnForwardWasCalled_Throws) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    for (const bool static_graph : {false, true}) {
      auto ddp = MakeDistributedDataParallel(std::make_shared<Scale>(), group, {.static_graph = static_graph});
      const at::Tensor x = at::full({4}, rank + 1.0);
      const auto own_forward = [&](absl::string_view what) {
        return group->Try(what, [&] {
          (*ddp)->module()->forward(x).sum().backward();
          return absl::OkStatus();
        });
      };
      // With a static graph the first gradients are counted nevertheless, and the wrapper is unusable.
      if (!static_graph) {
        const absl::Status first = own_forward("first step");
        EXPECT_TRUE(absl::IsInvalidArgument(first)) << first;
        EXPECT_THAT(first.ToString(),
                    HasSubstr("first step: the gradient of parameter \"weight\" would not be averaged"));
      }
      // After correct steps it is an error, too; group and wrapper remain usable.
      for (int step = 0; step < 2; ++step) {
        (*ddp)->zero_grad();
        (*ddp)->forward(x).sum().backward();
        EXPECT_TRUE(at::equal((*ddp)->module()->weight.grad(), at::full({4}, 1.5)));
        EXPECT_TRUE(absl::IsInvalidArgument(own_forward("later step")));
      }
      // A second backward of the same forward is an error, too.
      (*ddp)->zero_grad();
      at::Tensor loss = (*ddp)->forward(x).sum();
      loss.backward({}, /*keep_graph=*/true);
      EXPECT_TRUE(absl::IsInvalidArgument(group->Try("again", [&] {
        loss.backward();
        return absl::OkStatus();
      })));
      // Under no_sync gradients stay on this rank, so that either forward is allowed.
      (*ddp)->zero_grad();
      {
        const auto no_sync = (*ddp)->no_sync();
        EXPECT_EQ(own_forward("no_sync"), absl::OkStatus());
        loss = (*ddp)->forward(x).sum();
      }
      loss.backward();  // backward of a forward under no_sync, which Python allows
      EXPECT_TRUE(at::equal((*ddp)->module()->weight.grad(), at::full({4}, 2.0 * (rank + 1))));
      // Gradients of the input do not involve parameters.
      at::Tensor input = at::ones({4}).requires_grad_();
      EXPECT_EQ(torch::autograd::grad({(*ddp)->module()->forward(input).sum()}, {input}).size(), 1u);
      // The wrapper removes its hooks when it is destroyed.
      const std::shared_ptr<Scale> module = (*ddp)->module();
      ddp = absl::UnknownError("");
      module->forward(x).sum().backward();
    }
  });
}

TEST(DdpTest, ZeroGrad_WithBucketViews_RemovesOrFills) {
  ExpectRanksSucceed(2, [](int, Group group) {
    auto module = std::make_shared<Scale>();
    auto ddp = Wrap(module, group, {.gradient_as_bucket_view = true});
    ddp->forward(at::ones({4})).sum().backward();
    ddp->zero_grad(/*set_to_none=*/false);
    EXPECT_TRUE(at::equal(module->weight.grad(), at::full({4}, 0.0)));
    ddp->forward(at::ones({4})).sum().backward();
    EXPECT_TRUE(at::equal(module->weight.grad(), at::ones({4})));
    ddp->zero_grad();
    EXPECT_FALSE(module->weight.grad().defined());
  });
}

TEST(DdpTest, Forward_UnusedParameterWithoutTheOption_ErrorNamesBoth) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<Forked>();
    auto ddp = Wrap(module, group);
    const auto step = [&]() -> absl::Status {
      ddp->forward(at::ones({1, 3})).sum().backward();
      return absl::OkStatus();
    };
    EXPECT_EQ(group->Try("first step", step), absl::OkStatus());
    const absl::Status status = group->Try("second step", step);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("rank " + std::to_string(rank)),
                                         HasSubstr("2 of 4 parameters received no gradient in the last backward pass: "
                                                   "\"spare.weight\", \"spare.bias\";"),
                                         HasSubstr("DdpOptions::find_unused_parameters")));
  });
}

TEST(DdpTest, FindUnused_BranchUsedBySomeRanks_AveragesWithZeros) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<Forked>();
    auto ddp = Wrap(module, group, {.find_unused_parameters = true});
    ddp->forward(at::ones({1, 3}), /*use_both=*/rank == 1).sum().backward();
    EXPECT_TRUE(at::allclose(module->spare->bias.grad(), at::full({2}, 0.5)));
    EXPECT_TRUE(at::allclose(module->used->bias.grad(), at::full({2}, 1.0)));
    ddp->zero_grad();
    ddp->forward(at::ones({1, 3})).sum().backward();
    EXPECT_FALSE(module->spare->bias.grad().defined()) << "unused on all ranks";
  });
}

struct Output {
  at::Tensor first, second;
  void VisitTensors(TensorVisitor visit) {
    visit(first);
    visit(second);
  }
};
struct ManyOutputs : torch::nn::Module {
  using Result = std::tuple<Output, std::vector<at::Tensor>, std::optional<at::Tensor>, std::string,
                            std::map<std::string, std::pair<at::Tensor, int>>>;
  ManyOutputs() {
    for (int i = 0; i < 5; ++i) weights.push_back(register_parameter("weight" + std::to_string(i), at::ones({2})));
  }
  Result forward(const at::Tensor& x) {
    return {{x * weights[0], x * weights[1]}, {x * weights[2]}, x * weights[3], "text", {{"key", {x * weights[4], 7}}}};
  }
  std::vector<at::Tensor> weights;
};

TEST(DdpTest, Forward_OutputsOfManyKinds_NotAllInTheLossWorks) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    for (const bool is_static : {false, true}) {
      auto module = std::make_shared<ManyOutputs>();
      auto ddp = Wrap(module, group, {.find_unused_parameters = !is_static, .static_graph = is_static});
      for (int step = 0; step < 3; ++step) {
        ddp->zero_grad();
        auto [output, list, maybe, text, by_name] = ddp->forward(at::full({2}, rank + 1.0));
        EXPECT_EQ(text, "text");
        EXPECT_EQ(by_name["key"].second, 7);
        (output.second.sum() + by_name["key"].first.sum()).backward();
        EXPECT_TRUE(at::allclose(module->weights[1].grad(), at::full({2}, 1.5)));
        EXPECT_TRUE(at::allclose(module->weights[4].grad(), at::full({2}, 1.5)));
      }
    }
  });
}

TEST(DdpTest, Forward_BuffersDiffer_SetsThemToRankZeros) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<SequentialImpl>(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
    auto ddp = Wrap(module, group);
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      ddp->forward(at::randn({8, 3}) + rank).sum().backward();
    }
    const at::Tensor mean = module->named_buffers()["1.running_mean"];
    absl::StatusOr<std::vector<at::Tensor>> means = group->AllGather(mean);
    EXPECT_TRUE(means.ok());
    EXPECT_FALSE(at::equal((*means)[0], (*means)[1])) << "each rank's last batch is in it";
    torch::NoGradGuard no_grad;
    ddp->forward(at::randn({8, 3}));
    module->eval();
  });
}

TEST(DdpTest, Backward_TiedWeightsAndSparseEmbedding_AveragesGradients) {
  struct Tied : torch::nn::Module {
    Tied() { b->weight = b->parameters()[0] = a->weight; }
    at::Tensor forward(const at::Tensor& tokens) { return b(a(words(tokens))); }
    torch::nn::Embedding words =
        register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).sparse(true)));
    torch::nn::Linear a = register_module("a", torch::nn::Linear(3, 3));
    torch::nn::Linear b = register_module("b", torch::nn::Linear(3, 3));
  };
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto module = std::make_shared<Tied>();
    DdpOptions options{.find_unused_parameters = true};
    auto ddp = Wrap(module, group, options);
    for (int step = 0; step < 2; ++step) {
      ddp->zero_grad();
      ddp->forward(at::arange(2) + rank).sum().backward();
    }
    EXPECT_TRUE(module->words->weight.grad().is_sparse());
    absl::StatusOr<std::vector<at::Tensor>> grads = group->AllGather(module->words->weight.grad().to_dense());
    EXPECT_TRUE(grads.ok() && at::equal((*grads)[0], (*grads)[1]));
  });
}

TEST(DdpTest, BucketLayout_AfterTheFirstStep_IsRebuiltAndReusable) {
  ExpectRanksSucceed(2, [](int, Group group) {
    const auto make = [] { return std::make_shared<SequentialImpl>(torch::nn::Linear(3, 4), torch::nn::Linear(4, 2)); };
    const DdpOptions small{.bucket_cap_mb = 0.00001};
    auto ddp = Wrap(make(), group, small);
    EXPECT_EQ(ddp->bucket_layout()->size(), 1);
    const auto step = [](auto& wrapper) { wrapper->forward(at::ones({1, 3})).sum().backward(); };
    step(ddp);
    step(ddp);
    const BucketLayout rebuilt = ddp->bucket_layout().value();
    EXPECT_GT(rebuilt.size(), 1);
    DdpOptions given = small;
    given.initial_bucket_layout = rebuilt;
    auto next = Wrap(make(), group, given);
    EXPECT_EQ(next->bucket_layout(), rebuilt);
    step(next);
    step(next);
    EXPECT_EQ(next->bucket_layout(), rebuilt);
    given.initial_bucket_layout->pop_back();
    EXPECT_TRUE(absl::IsInvalidArgument(MakeDistributedDataParallel(make(), group, given).status()));
  });
}

// The order of additions depends on the buckets with three or more ranks.
TEST(DdpTest, InitialBucketLayout_NewWrapper_ContinuesWithTheSameBits) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    const DdpOptions small{.bucket_cap_mb = 0.001};
    const auto train = [&](bool interrupted) {
      auto module = std::make_shared<SequentialImpl>(torch::nn::Linear(7, 60), torch::nn::Linear(60, 9),
                                                     torch::nn::Linear(9, 30));
      Fill(*module);
      auto ddp = Wrap(module, group, small);
      torch::optim::SGD optimizer(module->parameters(), 0.1);
      for (int step = 0; step < 6; ++step) {
        if (interrupted && step == 3) {
          DdpOptions next = small;
          next.initial_bucket_layout = ddp->bucket_layout();
          ddp.reset();
          ddp = Wrap(module, group, next);
        }
        ddp->zero_grad();
        ddp->forward(Inputs(step, rank)).square().mean().backward();
        optimizer.step();
      }
      return module;
    };
    const std::shared_ptr<SequentialImpl> whole = train(false), resumed = train(true);
    for (size_t i = 0; i < whole->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(whole->parameters()[i], resumed->parameters()[i]));
    }
  });
}

TEST(DdpTest, Backward_PeerFails_TryReturnsTheError) {
  absl::Status of_rank0;
  absl::Notification before_backward;
  const absl::Status first = RunRanks(2, [&](int rank, Group group) -> absl::Status {
    auto ddp = Wrap(std::make_shared<Scale>(), group);
    at::Tensor loss = ddp->forward(at::ones({4})).sum();
    if (rank == 1) {
      before_backward.WaitForNotification();
      return absl::CancelledError("no backward here");
    }
    before_backward.Notify();
    of_rank0 = group->Try("backward", [&]() -> absl::Status {
      loss.backward();
      return absl::OkStatus();
    });
    return of_rank0;
  });
  EXPECT_FALSE(of_rank0.ok());
  EXPECT_THAT(of_rank0.ToString(), HasSubstr("rank 0"));
  EXPECT_THAT(of_rank0.ToString(), HasSubstr("backward"));
  EXPECT_TRUE(absl::IsCancelled(first)) << first;
}

// Results of a collective that NCCL aborted must not be used for training.
TEST(DdpTest, Forward_GroupHasFailed_Throws) {
  EXPECT_FALSE(RunRanks(1, [](int, Group group) -> absl::Status {
                 auto ddp = Wrap(std::make_shared<Scale>(), group);
                 ddp->forward(at::ones({4})).sum().backward();
                 group->Abort("a collective of the last step failed");
                 EXPECT_THROW(ddp->forward(at::ones({4})), c10::Error);
                 at::NoGradGuard no_grad;
                 EXPECT_EQ(ddp->module()->forward(at::ones({4})).numel(), 4);
                 return absl::OkStatus();
               }).ok());
}

TEST(DdpTest, Create_AfterAFailure_TrainsTheSameModule) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    for (const bool view : {false, true}) {
      const DdpOptions options{.gradient_as_bucket_view = view};
      const std::string name = view ? "view" : "plain";
      absl::StatusOr<std::shared_ptr<ProcessGroup>> broken =
          ProcessGroup::CreateWithStore(group->store(), "broken " + name, rank, 2, {});
      auto module = std::make_shared<Scale>();
      auto ddp = Wrap(module, *broken, options);
      ddp->forward(at::ones({4})).sum().backward();
      (*broken)->Abort("a test");
      const absl::Status failed = (*broken)->Try("step", [&]() -> absl::Status {
        ddp->forward(at::ones({4})).sum().backward();
        return absl::OkStatus();
      });
      EXPECT_TRUE(absl::IsAborted(failed)) << failed;
      ddp.reset();
      broken->reset();

      absl::StatusOr<std::shared_ptr<ProcessGroup>> fresh =
          ProcessGroup::CreateWithStore(group->store(), "fresh " + name, rank, 2, {});
      ddp = Wrap(module, *fresh, options);
      for (int step = 0; step < 3; ++step) {
        ddp->zero_grad();
        ddp->forward(at::full({4}, rank + 1.0)).sum().backward();
        EXPECT_TRUE(at::allclose(module->weight.grad(), at::full({4}, 1.5)));
      }
      ddp.reset();
      EXPECT_EQ((*fresh)->Shutdown(), absl::OkStatus());
    }
  });
}

TEST(DdpTest, Backward_WrapperIsDestroyed_RunsAlone) {
  ExpectRanksSucceed(1, [](int, Group group) {
    auto module = std::make_shared<Scale>();
    auto ddp = Wrap(module, group, {.static_graph = true});
    at::Tensor loss = ddp->forward(at::full({4}, 3.0)).sum();
    ddp.reset();
    loss.backward();
    EXPECT_TRUE(at::equal(module->weight.grad(), at::full({4}, 3.0)));
  });
}

TEST(DdpTest, Forward_WithoutGradients_DoesNotCommunicate) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    auto ddp = Wrap(std::make_shared<Scale>(), group);
    if (rank == 1) return;
    torch::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) ddp->forward(at::ones({4}));
  });
}

TEST(LossTest, LossAveragedOverRanks_TwoRanks_IsTheMean) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    const at::Tensor loss = at::full({}, rank + 1.0, at::kDouble);
    EXPECT_EQ(LossOfThisRank(loss), rank + 1);
    absl::StatusOr<double> averaged = LossAveragedOverRanks(loss, *group);
    EXPECT_TRUE(averaged.ok());
    EXPECT_EQ(*averaged, 2);
    EXPECT_EQ(loss.item<double>(), rank + 1) << "the caller's loss stays as it is";
  });
}

// Expects the same value on all ranks.
void ExpectSame(ProcessGroup& group, double value) {
  const absl::StatusOr<double> least = AllReduceValue(group, value, ReduceOp::kMin);
  const absl::StatusOr<double> most = AllReduceValue(group, value, ReduceOp::kMax);
  EXPECT_EQ(least, most);
}

TEST(MeasuredBucketCap, Create_MeasureBucketCap_EqualOnAllRanksAndTrainsWithTheSameBits) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    std::vector<at::Tensor> gradients;  // without, then with it
    for (const bool measure : {false, true}) {
      auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(7, 300), torch::nn::Linear(300, 300),
                                                             torch::nn::Linear(300, 300), torch::nn::Linear(300, 300));
      Fill(*net);
      auto ddp = MakeDistributedDataParallel(net, group, {.measure_bucket_cap = measure});
      EXPECT_EQ((*ddp)->bucket_cap_mb().has_value(), measure);
      if (measure) {
        EXPECT_GE(*(*ddp)->bucket_cap_mb(), 0.25);
        EXPECT_LE(*(*ddp)->bucket_cap_mb(), 25);
        ExpectSame(*group, *(*ddp)->bucket_cap_mb());
      }
      for (int step = 0; step < 3; ++step) {
        (*ddp)->zero_grad();
        (*ddp)->forward(Inputs(step, rank)).square().mean().backward();
      }
      for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
    }
    const size_t half = gradients.size() / 2;
    for (size_t i = 0; i < half; ++i) EXPECT_TRUE(at::equal(gradients[i], gradients[half + i])) << i;
  });
}

}  // namespace
}  // namespace ddprun::testing
