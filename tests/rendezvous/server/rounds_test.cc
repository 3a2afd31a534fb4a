// Whole conversations of launchers with a server, over gRPC and in the server's own process.

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rendezvous/server/net_fixture.h"

namespace ddprun::rendezvous {
namespace {

TEST(RoundsTest, LauncherDies_OtherIsToldToStop) {
  TestServer server;
  JobSettings settings = PatientSettings(2);
  settings.set_min_nodes(1);
  *settings.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(80));
  TestLauncher a(server.Grpc(), "job", "node1", settings);
  TestLauncher b(server.Grpc(), "job", "node2", settings);
  BeginRound({&a, &b});
  b.Disappear();  // without Close: as if the process had been killed
  const StopRound stop = a.Await<StopRound>();
  EXPECT_THAT(stop.reason(), HasSubstr("node2"));
}

TEST(RoundsTest, Leave_IsFlushedByClose_AndEndsStreamAtOnce) {
  TestServer server;
  TestLauncher a(server.Grpc(), "job", "node1", PatientSettings(2));
  TestLauncher b(server.Local(), "job", "node2", PatientSettings(2));
  BeginRound({&a, &b});
  a.client().Send(NewLeave("SIGTERM"));
  a.client().Close();
  a.Disappear();
  b.Await<StopRound>();  // the reconnect grace is an hour: only the Leave can tell
  EXPECT_TRUE(server.driver().WaitUntilLaunchersLeft(SteadyNow() + kHang));
}

TEST(RoundsTest, OtherSettings_AreRejectedForGood) {
  TestServer server;
  TestLauncher a(server.Local(), "job", "node1", PatientSettings(2));
  a.ConnectAndJoin();
  ASSERT_TRUE(std::holds_alternative<Welcome>(std::get<ServerMessage>(*a.log().Next())));
  for (const auto& kind : {server.Grpc(), server.Local()}) {
    TestLauncher b(kind, "job", "node2", PatientSettings(2, /*max_restarts=*/9));
    b.ConnectAndJoin();
    const Rejected rejected = b.Await<Rejected>();
    EXPECT_THAT(rejected.reason(), HasSubstr("node1"));
    const Disconnected gone = b.Await<Disconnected>();
    EXPECT_TRUE(gone.permanent);
    EXPECT_THAT(gone.reason, HasSubstr(rejected.reason()));
  }
}

TEST(RoundsTest, ManyJobs_NeverMix) {
  constexpr int kJobs = 20;
  constexpr int kNodes = 4;
  TestServer server;
  std::vector<std::vector<std::unique_ptr<TestLauncher>>> jobs(kJobs);
  for (int node = 0; node < kNodes; ++node) {  // node by node, so that all jobs form at the same time
    for (int job = 0; job < kJobs; ++job) {
      jobs[job].push_back(std::make_unique<TestLauncher>(node == 0 ? server.Local() : server.Grpc(),
                                                         absl::StrCat("job", job), absl::StrCat("j", job, "n", node),
                                                         PatientSettings(kNodes)));
    }
  }
  for (auto& nodes : jobs) {
    for (auto& node : nodes) node->ConnectAndJoin();
  }
  const auto await_rounds = [&](int restarts) {
    for (int job = 0; job < kJobs; ++job) {
      std::set<int> ranks;
      for (auto& node : jobs[job]) {
        const Assignment assignment = node->AwaitRound();
        ranks.insert(assignment.group_rank());
        EXPECT_EQ(assignment.base_rank(), 2 * assignment.group_rank());
        EXPECT_EQ(assignment.world_size(), 2 * kNodes);
        EXPECT_EQ(assignment.master_addr(), absl::StrCat("j", job, "n0.example"));
        EXPECT_EQ(assignment.master_port(), 40'000 + restarts);
        EXPECT_EQ(assignment.restart_count(), restarts);
      }
      EXPECT_EQ(ranks.size(), kNodes);
      if (restarts == 0) continue;
      ++job;  // only even jobs restarted
    }
  };
  await_rounds(0);
  for (int job = 0; job < kJobs; job += 2) jobs[job][job % kNodes]->FailWorker(1);
  for (int job = 0; job < kJobs; job += 2) {
    for (auto& node : jobs[job]) node->GetReady();
  }
  await_rounds(1);
  for (auto& nodes : jobs) {
    for (auto& node : nodes) node->Succeed();
  }
  for (auto& nodes : jobs) {
    for (auto& node : nodes) EXPECT_TRUE(node->Await<Finish>().verdict().succeeded());
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
