#include "worker_runtime/process_group/process_group.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/testing/ranks.h"
#include "worker_runtime/process_group/choose_device.h"

namespace ddprun::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ProcessGroup, Collectives_ThreeRanks_EqualOnAll) {
  ExpectRanksSucceed(3, [](int rank, Group group) {
    const std::vector<std::pair<ReduceOp, double>> sums = {{ReduceOp::kSum, 6},
                                                           {ReduceOp::kAverage, 2},
                                                           {ReduceOp::kMin, 1},
                                                           {ReduceOp::kMax, 3},
                                                           {ReduceOp::kProduct, 6}};
    for (const auto& [op, expected] : sums) {
      at::Tensor tensor = at::full({4}, rank + 1.0);
      DDPRUN_RETURN_IF_ERROR(group->AllReduce(tensor, op));
      EXPECT_EQ(tensor[3].item<double>(), expected);
    }
    at::Tensor from_two = at::full({2, 2}, rank);
    DDPRUN_RETURN_IF_ERROR(group->Broadcast(from_two, 2));
    EXPECT_EQ(from_two[1][1].item<int>(), 2);
    DDPRUN_ASSIGN_OR_RETURN(auto all, group->AllGather(at::full({1}, rank * 10)));
    for (int other = 0; other < 3; ++other) EXPECT_EQ(all[other].item<int>(), other * 10);
    for (const std::string text : {"from one", "", "zwölf\0drei"}) {
      DDPRUN_ASSIGN_OR_RETURN(auto heard, group->BroadcastText(rank == 1 ? text : "other", 1));
      EXPECT_EQ(heard, text);
    }
    return group->Barrier();
  });
}

TEST(ProcessGroup, Create_WorldOfOne_NeedsNoAddress) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv());
  at::Tensor tensor = at::full({1}, 5.0);
  EXPECT_EQ((*group)->AllReduce(tensor), absl::OkStatus());
  EXPECT_EQ(tensor.item<double>(), 5);
  EXPECT_EQ((*group)->backend(), "gloo");
  EXPECT_EQ((*group)->c10d()->getGroupDesc(), "default_pg");
  EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
  EXPECT_EQ((*group)->Shutdown(), absl::OkStatus());
  EXPECT_EQ((*group)->Barrier().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ProcessGroup, AllReduce_UnsupportedTensor_IsInvalidArgumentAndGroupStaysUsable) {
  ExpectRanksSucceed(2, [](int, Group group) {
    const at::Tensor good = at::full({4, 4}, 1.0);
    EXPECT_EQ(group->AllReduce(at::Tensor()).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->AllReduce(good.select(1, 0)).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->AllReduce(at::full({1}, 1), ReduceOp::kAverage).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->Broadcast(good, 2).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(group->Broadcast(good, -1).code(), absl::StatusCode::kInvalidArgument);
    return group->Barrier();
  });
}

TEST(ProcessGroup, Try_Exception_NamesRankAndOperation) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const absl::Status thrown = group->Try("training step", [&]() -> absl::Status {
      at::full({2}, 1.0).add_(at::full({3}, 1.0));
      return absl::OkStatus();
    });
    EXPECT_EQ(thrown.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(thrown), HasSubstr("rank " + std::to_string(rank) + ": training step: The size"));
    EXPECT_EQ(Message(thrown).find('\n'), std::string::npos);
    EXPECT_EQ(group->Try("x", [] { return absl::DataLossError("bad"); }), absl::DataLossError("bad"));
    return group->Barrier();
  });
}

// An error of a data loader that is unrelated to the group.
TEST(ProcessGroup, Try_TimeoutOfSomethingElse_GroupStaysUsable) {
  ExpectRanksSucceed(2, [](int rank, Group group) {
    const absl::Status status = group->Try("loading", [&]() -> absl::Status {
      if (rank == 0) throw std::runtime_error("curl: (28) Operation timed out after 5000 ms");
      return absl::OkStatus();
    });
    if (rank == 0) {
      EXPECT_EQ(status, absl::DeadlineExceededError("rank 0: loading: curl: (28) Operation timed out after 5000 ms"));
    }
    return group->Barrier();
  });
}

// NCCL does not name the lost rank; the error names the rank without a report.
TEST(ProcessGroup, Explain_ErrorOfNccl_NamesTheSilentRank) {
  std::atomic<bool> over = false;
  const absl::Status first = RunRanks(3, [&](int rank, Group group) -> absl::Status {
    if (rank == 2) {
      EXPECT_TRUE(Eventually([&] { return over.load(); }));
      return absl::CancelledError("the end of the test");
    }
    const absl::Status status = group->Try("training", []() -> absl::Status {
      C10_THROW_ERROR(DistBackendError,
                      "NCCL error in: ProcessGroupNCCL.cpp:2500, remote process exited or there was a network error, "
                      "NCCL version 2.28.9\nncclRemoteError: A call failed possibly due to a network error or a remote "
                      "process exiting prematurely.");
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("no report from rank 2 (host "));
    EXPECT_EQ(group->Health().code(), absl::StatusCode::kUnavailable);
    static std::atomic<int> told = 0;
    over = ++told == 2;
    EXPECT_TRUE(Eventually([&] { return over.load(); }));
    return absl::OkStatus();
  });
  EXPECT_FALSE(first.ok());
}

TEST(ProcessGroup, Health_GroupIsAborted_ReturnsTheReason) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv());
  EXPECT_TRUE((*group)->device().is_cpu());
  EXPECT_EQ((*group)->Health(), absl::OkStatus());
  (*group)->Abort("enough");
  EXPECT_EQ((*group)->Health(), absl::AbortedError("rank 0: health check: aborted: enough"));
}

TEST(ProcessGroup, Create_QuietLog_StillPrintsWarnings) {
  ASSERT_TRUE(ProcessGroup::Create(WorkerEnv()).ok());
  ::testing::internal::CaptureStderr();
  TORCH_WARN("the trainer should know this");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("Warning: the trainer should know this"));
}

TEST(ProcessGroup, Try_AbortedMeanwhile_ReturnsAborted) {
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group = ProcessGroup::Create(WorkerEnv());
  const absl::Status status = (*group)->Try("step", [&] {
    (*group)->Abort("enough");
    return absl::OkStatus();
  });
  EXPECT_EQ(status, absl::AbortedError("rank 0: step: aborted: enough"));
}

// Rank 0 waits for rank 1 until another of its threads aborts the group. (Only two ranks, because an abort cuts all
// connections of the process, and the ranks are threads.)
TEST(ProcessGroup, Abort_CollectiveIsStuck_EndsIt) {
  std::atomic<bool> out = false;
  const absl::Status first = RunRanks(2, [&](int rank, Group group) {
    if (rank == 1) {
      EXPECT_TRUE(Eventually([&] { return out.load(); }));
      const absl::Status late = group->AllReduce(at::full({1000}, 1.0));
      EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable) << late;
      EXPECT_THAT(Message(late), HasSubstr("aborted the group: we have heard that rank 1 is gone"));
      return absl::OkStatus();
    }
    std::thread killer([&] {
      EXPECT_TRUE(Eventually([&] { return group->c10d()->getDefaultBackend()->getSequenceNumberForGroup() == 1; }));
      group->Abort("we have heard that rank 1 is gone");
    });
    const absl::Status status = group->AllReduce(at::full({1000}, 1.0));
    killer.join();
    out = true;
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(Message(status), HasSubstr("aborted: we have heard that rank 1 is gone"));
    EXPECT_EQ(group->Barrier().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(group->Shutdown().code(), absl::StatusCode::kAborted);
    group->Abort("again");
    return absl::OkStatus();
  });
  EXPECT_FALSE(first.ok());
}

TEST(ProcessGroup, Barrier_RanksMissing_AllRanksNameThem) {
  std::atomic<int> over = 0;
  const absl::Status first = RunRanks(4, [&](int rank, Group group) {
    if (rank == 1 || rank == 3) {
      EXPECT_TRUE(Eventually([&] { return over == 2; }));
      return absl::CancelledError("the end of the test");
    }
    const absl::Status status = group->Barrier(absl::Seconds(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    // Barrier's timeout, not the group's.
    EXPECT_THAT(Message(status), AnyOf(HasSubstr(": timed out after 1s: "), HasSubstr(" timed out in barrier ")));
    EXPECT_THAT(Message(status), HasSubstr("rank 1 (host "));
    EXPECT_THAT(Message(status), HasSubstr(" and rank 3 (host "));
    EXPECT_THAT(Message(status), HasSubstr("did not enter this collective or are not responding"));
    // From now on the group reports the failure without waiting.
    EXPECT_THAT(Message(group->Barrier()), HasSubstr("the group failed earlier"));
    ++over;
    EXPECT_TRUE(Eventually([&] { return over == 2; }));
    return absl::OkStatus();
  });
  EXPECT_FALSE(first.ok());
}

// The launcher of an elastic worker names a dead rank, but not a stopped one.
TEST(ProcessGroup, Barrier_TimeoutWithoutAwaitingReports_NamesOnlyTheMissing) {
  std::atomic<int> over = 0;
  const ProcessGroupOptions options{.timeout = absl::Seconds(1), .await_failure_reports = false};
  EXPECT_FALSE(RunRanks(4, options, [&](int rank, Group group) {
                 if (rank == 1) {
                   EXPECT_TRUE(Eventually([&] { return over == 3; }));
                   return absl::CancelledError("the end of the test");
                 }
                 const absl::Status status = group->AllReduce(at::full({10}, 1.0));
                 EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                 EXPECT_THAT(Message(status), HasSubstr(": rank 1 (host "));
                 EXPECT_THAT(Message(status), HasSubstr("did not enter this collective or is not responding"));
                 ++over;
                 EXPECT_TRUE(Eventually([&] { return over == 3; }));
                 return absl::OkStatus();
               }).ok());
}

TEST(ProcessGroup, Collectives_DifferentOperations_TimeoutNamesThem) {
  ProcessGroupOptions options{.timeout = absl::Seconds(2)};
  std::atomic<int> told = 0, over = 0;
  EXPECT_FALSE(RunRanks(3, options, [&](int rank, Group group) {
                 at::Tensor tensor = at::full({10}, 1.0);
                 const absl::Status status = rank == 1 ? group->Broadcast(tensor) : group->AllReduce(tensor);
                 EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                 told += absl::StrContains(Message(status), "collectives do not match");
                 ++over;
                 EXPECT_TRUE(Eventually([&] { return over == 3; }));
                 return status;
               }).ok());
  EXPECT_GT(told, 0);
}

TEST(ProcessGroup, NewSubgroup_SomeRanks_CommunicateAndEndWithTheParent) {
  std::atomic<int> stuck = 0;
  EXPECT_FALSE(RunRanks(3, [&](int rank, Group group) {
                 EXPECT_EQ(group->NewSubgroup({2, 0}, "bad").status().code(), absl::StatusCode::kInvalidArgument);
                 EXPECT_EQ(group->NewSubgroup({0, 3}, "bad").status().code(), absl::StatusCode::kInvalidArgument);
                 // A name may be used twice.
                 for (int round = 0; round < 2; ++round) {
                   DDPRUN_ASSIGN_OR_RETURN(auto pair, group->NewSubgroup({0, 2}, "ends"));
                   EXPECT_EQ(pair == nullptr, rank == 1);
                   if (pair == nullptr) continue;
                   EXPECT_EQ(pair->rank(), rank == 0 ? 0 : 1);
                   EXPECT_EQ(pair->name(), "ends");
                   at::Tensor sum = at::full({1}, rank + 1.0);
                   DDPRUN_RETURN_IF_ERROR(pair->AllReduce(sum));
                   EXPECT_EQ(sum.item<double>(), 4);
                 }
                 DDPRUN_ASSIGN_OR_RETURN(auto pair, group->NewSubgroup({0, 2}, "stuck"));
                 if (rank == 0) {
                   std::thread killer([&] {
                     EXPECT_TRUE(Eventually(
                         [&] { return pair->c10d()->getDefaultBackend()->getSequenceNumberForGroup() == 1; }));
                     group->Abort("the parent ends");
                   });
                   const absl::Status status = pair->Barrier();
                   EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
                   EXPECT_THAT(Message(status), HasSubstr("subgroup stuck: rank 0: barrier: aborted: the parent ends"));
                   killer.join();
                   ++stuck;
                   return absl::OkStatus();
                 }
                 EXPECT_TRUE(Eventually([&] { return stuck == 1; }));
                 return absl::OkStatus();
               }).ok());
}

TEST(ProcessGroup, Create_RankNeverJoins_AllNameItEvenLateRanks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  ProcessGroupOptions brief, patient;
  brief.timeout = absl::Seconds(1);
  patient.timeout = absl::Minutes(10);
  absl::Status early, late;
  std::thread waiting([&] { late = ProcessGroup::CreateWithStore(store, "g", 1, 3, patient).status(); });
  EXPECT_TRUE(Eventually([&] { return store->check({"g/rank/1"}); }));
  early = ProcessGroup::CreateWithStore(store, "g", 0, 3, brief).status();
  waiting.join();
  for (const absl::Status& status : {early, late}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(status), HasSubstr("waiting for rank 2; "));
  }
  EXPECT_THAT(Message(ProcessGroup::CreateWithStore(store, "g", 2, 3, brief).status()), HasSubstr("joined too late"));
  EXPECT_THAT(Message(ProcessGroup::CreateWithStore(store, "g", 0, 3, brief).status()),
              HasSubstr("already joined as this rank"));
}

TEST(ProcessGroup, Create_CancelledWhileWaitingForRanks_Ends) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::stop_source stop;
  ProcessGroupOptions options{.timeout = absl::Hours(1), .cancel = stop.get_token()};
  absl::Status status;
  std::thread creating([&] { status = ProcessGroup::CreateWithStore(store, "g", 0, 2, options).status(); });
  EXPECT_TRUE(Eventually([&] { return store->check({"g/rank/0"}); }));
  stop.request_stop();
  creating.join();
  EXPECT_EQ(status, absl::CancelledError("rank 0: the creation of the process group was cancelled"));
}

// No store listens there, and c10d would retry for an hour.
TEST(ProcessGroup, Create_CancelledWhileConnectingToTheStore_Ends) {
  std::stop_source stop;
  ProcessGroupOptions options{.timeout = absl::Hours(1), .cancel = stop.get_token()};
  WorkerEnv env;
  env.rank = 1;
  env.world_size = 2;
  env.master_addr = "127.0.0.1";
  env.master_port = FreePort();
  std::thread stopping([&] { stop.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(ProcessGroup::Create(env, options).status()));
  stopping.join();
}

// A survivor has abandoned attempts that a newcomer never made; both meet at the attempt number that they were given.
TEST(ProcessGroup, Create_SameAttemptNumber_MeetsAcrossProcessHistories) {
  WorkerEnv env;
  env.world_size = 2;
  env.master_addr = "127.0.0.1";
  env.master_port = FreePort();
  const auto join = [&](int rank, uint64_t attempt, std::stop_token cancel) {
    WorkerEnv own = env;
    own.rank = rank;
    return ProcessGroup::Create(own, {.timeout = absl::Minutes(1), .attempt = attempt, .cancel = std::move(cancel)});
  };
  for (const uint64_t attempt : {5, 6}) {
    std::stop_source stop;
    stop.request_stop();
    EXPECT_TRUE(absl::IsCancelled(join(0, attempt, stop.get_token()).status()));
  }
  absl::StatusOr<std::shared_ptr<ProcessGroup>> newcomers = absl::UnknownError("");
  std::thread newcomer([&] { newcomers = join(1, 7, {}); });
  absl::StatusOr<std::shared_ptr<ProcessGroup>> survivors = join(0, 7, {});
  newcomer.join();
  ASSERT_TRUE(survivors.ok() && newcomers.ok()) << survivors.status() << newcomers.status();
  std::thread last([&] { EXPECT_EQ((*newcomers)->Shutdown(), absl::OkStatus()); });
  EXPECT_EQ((*survivors)->Shutdown(), absl::OkStatus());
  last.join();
}

TEST(ProcessGroup, Create_BadOptions_ErrorNamesThem) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto error = [&](int rank, int size, ProcessGroupOptions options) {
    return Message(ProcessGroup::CreateWithStore(store, "g", rank, size, options).status());
  };
  ProcessGroupOptions options;
  EXPECT_THAT(error(2, 2, options), HasSubstr("rank 2 of 2"));
  options.interface = "no_such_if";
  EXPECT_THAT(error(0, 1, options), HasSubstr("one of its interfaces, "));
  options.interface = "";
  options.backend = "mpi";
  EXPECT_THAT(error(0, 1, options), HasSubstr("backend \"mpi\""));
  options.backend = "gloo";
  options.device = c10::Device(c10::DeviceType::CUDA);
  EXPECT_THAT(error(0, 1, options), HasSubstr("the device needs an index, as in cuda:1"));
  options.device = c10::Device(c10::DeviceType::CPU);
  options.timeout = absl::ZeroDuration();
  EXPECT_THAT(error(0, 1, options), HasSubstr("timeout"));
}

TEST(ProcessGroup, Create_InterfaceByNameOrAddress_ListensThere) {
  for (const char* where : {"lo", "127.0.0.1"}) {
    ProcessGroupOptions options{.timeout = absl::Minutes(1), .interface = where};
    ExpectRanksSucceed(2, options, [](int, Group group) { return group->Barrier(); });
  }
}

TEST(ProcessGroup, Create_ListOfInterfaces_UsesTheFirstOfThisHost) {
  setenv("GLOO_SOCKET_IFNAME", "no_such_if, lo,eth9", 1);
  const absl::Status status = RunRanks(2, [](int, Group group) { return group->Barrier(); });
  unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(Nccl, Create_NoGpu_ErrorIsOneLine) {
  if (HostHasGpu()) GTEST_SKIP() << "this host has a GPU";
  ProcessGroupOptions options{.backend = "cpu:gloo,cuda:nccl"};
  const absl::Status status = ProcessGroup::Create(WorkerEnv(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("nccl: this host has no usable NVIDIA GPU"));
}

TEST(ChooseDevice, ChooseDevice_NoGpu_UsesTheCpuUnlessCudaIsRequested) {
  if (HostHasGpu()) GTEST_SKIP() << "this host has a GPU";
  EXPECT_TRUE(ChooseDevice(WorkerEnv())->is_cpu());
  EXPECT_TRUE(ChooseDevice(WorkerEnv(), "cpu")->is_cpu());
  EXPECT_EQ(ChooseDevice(WorkerEnv(), "cuda").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ChooseDevice(WorkerEnv(), "cuda:0").status().code(), absl::StatusCode::kFailedPrecondition);
  for (const char* wish : {"gpu", "cuda:", "cuda:x", "cuda:-1"}) {
    EXPECT_THAT(Message(ChooseDevice(WorkerEnv(), wish).status()), HasSubstr("must be auto, cpu, cuda")) << wish;
  }
}

TEST(HasGpu, HasGpu_VisibleDevicesHidesAll_IsFalse) {
  const std::string file = "/dev/null";
  EXPECT_TRUE(HasGpu(file, nullptr));
  EXPECT_TRUE(HasGpu(file, "0,1"));
  for (const char* hidden : {"", " ", "-1", "-1,0"}) EXPECT_FALSE(HasGpu(file, hidden)) << hidden;
  EXPECT_FALSE(HasGpu("/dev/no_such_file", nullptr));
}

}  // namespace
}  // namespace ddprun::testing
