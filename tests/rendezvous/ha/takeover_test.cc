// Several rendezvousd on a real etcd, with real launchers and workers, while leaders are killed, paused and cut off,
// and members of etcd die. In every case all launchers exit with the job's code, round numbers only grow, no restart is
// lost or counted twice, and no worker of a round starts before all workers of the previous one have ended.
// ControlTest: ddprunctl reaches the leader through any server, and the leader knows the history of the servers before
// it.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/e2e/logged_job.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/rendezvous/ha/servers.h"
#include "tests/rendezvous/http/http_client.h"
#include "tests/rendezvous/server/tcp_proxy.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

constexpr int kServers = 3;

// Scripts of a LoggedJob.
constexpr char kUntilTold[] = "Await; Say stop; exit 0";
// Rank 0 fails in its first two attempts, after Tell(".0") and Tell(".1").
constexpr char kFailsTwice[] =
    "if [ $RANK = 0 ] && [ $ATTEMPT -lt 2 ]; then Await .$ATTEMPT; Say fail; Say stop; exit 3; fi; "
    "Await; Say stop; exit 0";

class TakeoverTest : public ServersTest {
 protected:
  TakeoverTest() : ServersTest(kServers) {}

  // A job whose workers have been started.
  std::unique_ptr<LoggedJob> NewJob(const std::string& name, const std::string& script) {
    auto job = std::make_unique<LoggedJob>(name, servers_->Endpoints(), dir_, script);
    EXPECT_TRUE(job->AwaitSaid("start", LoggedJob::kNodes)) << job->Logs();
    return job;
  }
};

TEST_F(TakeoverTest, LeadersAreKilled_WorkersRunOn_FailuresAreCharged_NewJobsForm) {
  servers_->StartAll();
  const auto steady = NewJob("steady", kUntilTold);
  const auto failing = NewJob("failing", kFailsTwice);
  (*servers_)[0].Signal(SIGKILL);
  failing->Tell(".0");  // while no server leads
  const int second = servers_->AwaitLeaderAfter(0);
  ASSERT_TRUE(failing->AwaitSaid("start", 4)) << failing->Logs();
  servers_->Start(0);
  failing->Tell(".1");
  ASSERT_TRUE(failing->AwaitSaid("fail", 2)) << failing->Logs();
  ASSERT_TRUE(steady->AwaitConnected(1)) << steady->Logs();
  (*servers_)[second].Signal(SIGKILL);
  servers_->AwaitLeaderAfter(second);
  const auto late = NewJob("late", kUntilTold);
  for (LoggedJob* job : {late.get(), failing.get(), steady.get()}) {
    const int starts = job == failing.get() ? 6 : 2;
    ASSERT_TRUE(job->AwaitSaid("start", starts)) << job->Logs();
    job->Tell();
    job->Check(0);
  }
  EXPECT_EQ(steady->rounds(), 1) << steady->Logs();
  EXPECT_EQ(failing->rounds(), 3) << failing->Logs();
}

TEST_F(TakeoverTest, NothingChanges_EtcdGetsNoRequests_OnlyRenewalsOnAStream) {
  servers_->StartAll();
  const auto calls = [this] {
    std::vector<int> calls;
    for (const char* method : {"Range", "Txn", "LeaseGrant", "LeaseKeepAlive", "Watch"}) {
      calls.push_back(etcd_->Counter("started", method));
    }
    return calls;
  };
  const auto renewals = [this] { return etcd_->Counter("msg_received", "LeaseKeepAlive"); };
  EXPECT_TRUE(Eventually([&] { return etcd_->Counter("started", "Watch") == kServers - 1; }))
      << "one for each follower";
  EXPECT_TRUE(Eventually([&] {
    const std::vector<int> before = calls();
    const int renewed = renewals();
    return Eventually([&] { return renewals() >= renewed + 10; }) && calls() == before;
  }));
}

TEST_F(TakeoverTest, MemberOfEtcdThatIsWatchedIsStopped_ASuccessorStillLeads) {
  servers_->StartAll();
  EXPECT_TRUE(Eventually([&] { return etcd_->Counter(0, "started", "Watch") == kServers - 1; }));
  etcd_->Signal(0, SIGSTOP);
  servers_->Kill(0);
  EXPECT_GT(servers_->AwaitLeaderAfter(0), 0);
}

TEST_F(TakeoverTest, FollowersReadiness_NamesTheLeader) {
  servers_->Start(0);
  ASSERT_TRUE(servers_->AwaitLead(0));
  Process follower({"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--etcd=" + etcd_->Endpoints(),
                    "--lease-ttl=2", "--http=127.0.0.1:0"});
  constexpr char kPort[] = "HTTP on port ";
  ASSERT_TRUE(follower.WaitForOut(kPort)) << follower.Err();
  const int port = std::stoi(follower.Out().substr(follower.Out().find(kPort) + sizeof kPort - 1));
  const auto await_answer = [&](const std::string& status, const std::string& text) {
    std::string answer;
    const bool came = Eventually([&] {
      answer = HttpClient(port).Get("/readyz");
      return absl::StartsWith(answer, absl::StrCat("HTTP/1.1 ", status, " ")) && absl::EndsWith(answer, text);
    });
    EXPECT_TRUE(came) << answer << follower.Err();
  };
  await_answer("503", absl::StrCat("\r\n\r\nthis server is not the leader; ", servers_->Address(0), " is\n"));
  (*servers_)[0].Signal(SIGTERM);
  await_answer("200", "\r\n\r\nready\n");
}

TEST_F(TakeoverTest, LeaderIsStopped_ASuccessorLeads_AndTheOldOneCanDoNoHarm) {
  servers_->StartAll();
  const auto job = NewJob("job", kFailsTwice);
  (*servers_)[0].Signal(SIGSTOP);
  const int second = servers_->AwaitLeaderAfter(0);
  ASSERT_TRUE(job->AwaitConnected(1)) << job->Logs();
  job->Tell(".0");
  ASSERT_TRUE(job->AwaitSaid("fail", 1)) << job->Logs();
  const std::string epoch = etcd_->Get("/ddprun/epoch");
  (*servers_)[0].Signal(SIGCONT);
  EXPECT_EQ((*servers_)[0].Wait(), 1) << (*servers_)[0].Err();
  EXPECT_TRUE(absl::StrContains((*servers_)[0].Err(), "no longer the leader")) << (*servers_)[0].Err();
  EXPECT_EQ(etcd_->Get("/ddprun/epoch"), epoch);
  EXPECT_TRUE(Alive((*servers_)[second].pid()));
  job->Tell(".1");
  job->Tell();
  job->Check(0);
}

TEST_F(TakeoverTest, LeaderIsCutOffFromEtcd_EndsAndAnotherLeads) {
  auto proxy =
      std::make_unique<rendezvous::TcpProxy>(std::stoi(etcd_->Endpoint(0).substr(etcd_->Endpoint(0).find(':') + 1)));
  servers_->Start(0, absl::StrCat("127.0.0.1:", proxy->port()));
  ASSERT_TRUE(servers_->AwaitLead(0));
  servers_->Start(1);
  servers_->Start(2);
  const auto job = NewJob("job", kUntilTold);
  proxy = nullptr;
  EXPECT_EQ((*servers_)[0].Wait(), 1) << (*servers_)[0].Err();
  servers_->AwaitLeaderAfter(0);
  job->Tell();
  job->Check(0);
}

TEST_F(TakeoverTest, Etcd_LosesLeaderThenMajority_JobsContinueAfterwards) {
  servers_->StartAll();
  const auto job = NewJob("job", kFailsTwice);
  const int first = etcd_->Leader();
  etcd_->Kill(first);
  const int other = etcd_->Leader();
  job->Tell(".0");
  ASSERT_TRUE(job->AwaitSaid("fail", 1)) << job->Logs();
  etcd_->Kill(other);
  // No server can lead: the leader exits.
  ASSERT_TRUE(Eventually([&] {
    for (int server = 0; server < kServers; ++server) {
      if (!Alive((*servers_)[server].pid())) return true;
    }
    return false;
  }));
  etcd_->Restart(first);
  etcd_->Restart(other);
  for (int server = 0; server < kServers; ++server) {
    if (Alive((*servers_)[server].pid())) continue;
    (*servers_)[server].Wait();  // until then a thread of it may have the port
    servers_->Start(server);
  }
  servers_->AwaitLeaderAfter(-1);
  job->Tell(".1");
  job->Tell();
  job->Check(0);
}

TEST_F(TakeoverTest, Sigterm_HandsOverAtOnce_AndTheOnlyEndpointOfALauncherMayBeAFollower) {
  servers_->StartAll();
  LoggedJob job("job", servers_->Address(2), dir_, kUntilTold);  // a follower, which names the leader
  ASSERT_TRUE(job.AwaitSaid("start", 2)) << job.Logs();
  (*servers_)[0].Signal(SIGTERM);
  EXPECT_EQ((*servers_)[0].Wait(), 0) << (*servers_)[0].Err();
  const int leader = servers_->AwaitLeaderAfter(0);
  ASSERT_TRUE(job.AwaitConnected(1)) << job.Logs();
  for (const std::string& said : {absl::StrCat("lost the rendezvous server (", servers_->Address(0), ": "),
                                  absl::StrCat("at ", servers_->Address(leader), ", which leads")}) {
    EXPECT_THAT(job.Logs(), HasSubstr(said));
  }
  job.Tell();
  job.Check(0);
  EXPECT_EQ(job.rounds(), 1) << job.Logs();
}

class ControlTest : public ServersTest {
 protected:
  ControlTest() : ServersTest(2) {}

  // Server 0 leads, 1 follows.
  void SetUp() override {
    ServersTest::SetUp();
    if (servers_ != nullptr) servers_->StartAll();
  }

  std::string Address(int server) const { return servers_->Address(server); }
};

TEST_F(ControlTest, FollowerIsNamed_LeaderIsCommanded) {
  Launcher node({"--nnodes=1", "--rdzv-endpoint=" + Address(0) + "," + Address(1), "--rdzv-id=job", "--no-python", "sh",
                 "-c", std::string(kSayRank) + "exec sleep 1000"});
  ASSERT_TRUE(node.WaitForOut("round=1")) << node.Err();
  const std::string nobody = absl::StrCat("127.0.0.1:", FreePort());
  for (const std::string& servers :
       {Address(1), Address(0) + "," + Address(1), Address(1) + "," + Address(0), nobody + "," + Address(1)}) {
    const Answer jobs = Ctl(servers, {"jobs"});
    EXPECT_EQ(jobs.exit, 0) << jobs.err;
    EXPECT_TRUE(absl::StrContains(jobs.out, "running")) << servers << "\n" << jobs.out;
    EXPECT_EQ(Ctl(servers, {"drain", "gone"}).exit, 0) << servers;
    EXPECT_EQ(Ctl(servers, {"undrain", "gone"}).exit, 0) << servers;
    EXPECT_EQ(Ctl(servers, {"show", "nix"}).exit, 3) << servers;
  }
  const Answer events = Ctl(Address(1), {"events"});
  EXPECT_EQ(events.exit, 0) << events.err;
  EXPECT_EQ(Count(events.out, "host.drained"), 4) << events.out;
  EXPECT_THAT(events.out, HasSubstr("round.assigned"));
  EXPECT_EQ(Ctl(Address(1), {"stop", "job"}).exit, 0);
  EXPECT_EQ(node.Wait(), 143) << node.Err();
}

TEST_F(ControlTest, LeaderIsReplaced_ItsCommandsHold) {
  EXPECT_EQ(Ctl(Address(1), {"drain", "broken"}).exit, 0);
  Process watch({"ddprunctl/ddprunctl", "--server=" + Address(1), "events", "--follow"});
  ASSERT_TRUE(watch.WaitForOut("host.drained")) << watch.Err();
  servers_->Kill(0);
  ASSERT_TRUE(servers_->AwaitLead(1)) << (*servers_)[1].Err();
  const std::string all = Address(0) + "," + Address(1);
  Answer hosts;
  ASSERT_TRUE(Eventually([&] {
    hosts = Ctl(all, {"hosts"});
    return hosts.exit == 0;
  })) << hosts.err;
  EXPECT_THAT(hosts.out, HasSubstr("broken"));
  const Answer events = Ctl(all, {"events"});
  EXPECT_EQ(Count(events.out, "host.drained"), 1) << "events outlive the leader\n" << events.out;
  EXPECT_EQ(Ctl(all, {"undrain", "broken"}).exit, 0);
  EXPECT_TRUE(watch.WaitForOut("host.undrained")) << watch.Err();
  EXPECT_EQ(Count(watch.Out(), "host.drained"), 1) << watch.Out();

  // Without a leader: one line that names all servers that were asked.
  servers_->Kill(1);
  const Answer none = Ctl(all, {"stop", "job"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_EQ(Lines(none.err), 1) << none.err;
  EXPECT_TRUE(absl::StrContains(none.err, Address(0)) && absl::StrContains(none.err, Address(1))) << none.err;
}

}  // namespace

}  // namespace ddprun::testing
