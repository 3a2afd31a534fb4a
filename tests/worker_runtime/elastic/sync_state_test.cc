// Collectives at the beginning of a round. Ranks are threads of this process.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "base/status_macros.h"
#include "tests/launcher/store/store_on_loop.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {
namespace {

constexpr int kRanks = 2;

WorkerEnv EnvOf(int rank, int port) {
  WorkerEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = kRanks;
  env.master_addr = "127.0.0.1";
  env.master_port = port;
  env.agent_store = true;
  env.round = 1;
  return env;
}

// A rank's model, and its worker in a round.
class Member {
 public:
  Member(int rank, int port) : worker_(EnvOf(rank, port)) {}

  Worker& worker() { return worker_; }
  absl::Status InitProcessGroup() {
    // Groups of a process are numbered, and this process has several ranks.
    DDPRUN_ASSIGN_OR_RETURN(auto group,
                            ProcessGroup::Create(worker_.env(), {.timeout = absl::Minutes(1), .attempt = 1}));
    worker_.set_group(std::move(group));
    return absl::OkStatus();
  }
  const torch::nn::Linear& layer() const { return layer_; }

  // Calls SyncState and returns the number of its collectives.
  absl::StatusOr<uint64_t> Sync() {
    const auto collectives = [this] {
      return worker_.group()->c10d()->getDefaultBackend()->getSequenceNumberForGroup();
    };
    const uint64_t before = collectives();
    DDPRUN_ASSIGN_OR_RETURN(step_, worker_.SyncState(state_, ddp_, [] { return std::optional<int64_t>(0); }));
    return collectives() - before;
  }
  void Commit() { EXPECT_EQ(worker_.Commit(state_, ++step_), absl::OkStatus()); }
  int64_t step() const { return step_; }

 private:
  torch::nn::Linear layer_{300, 300};
  AdamW optimizer_{Parameters(layer_), torch::optim::AdamWOptions(0.01)};
  TrainingState state_{*layer_, &optimizer_};
  DistributedDataParallel<torch::nn::LinearImpl> ddp_{layer_};
  Worker worker_;
  int64_t step_ = 0;
};

TEST(SyncState, SyncState_AllRanksHoldTheState_SendsNothing) {
  const launcher::StoreOnLoop store;
  std::vector<absl::Status> results(kRanks);
  const auto rank_body = [&](int rank) -> absl::Status {
    Member member(rank, store.port());
    DDPRUN_RETURN_IF_ERROR(member.InitProcessGroup());
    DDPRUN_RETURN_IF_ERROR(member.Sync().status());  // all have rank 0's parameters
    member.Commit();
    const at::Tensor weight = member.layer()->weight.detach().clone();
    DDPRUN_ASSIGN_OR_RETURN(const uint64_t equal, member.Sync());
    EXPECT_EQ(member.step(), 1);
    EXPECT_TRUE(at::equal(member.layer()->weight, weight));
    // Rank 1 is a step behind.
    if (rank == 0) member.Commit();
    DDPRUN_ASSIGN_OR_RETURN(const uint64_t behind, member.Sync());
    EXPECT_EQ(member.step(), 2);
    EXPECT_TRUE(at::equal(member.layer()->weight, weight));
    EXPECT_LT(equal, behind);
    return member.worker().group()->Shutdown();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = rank_body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
}

}  // namespace
}  // namespace ddprun::testing
