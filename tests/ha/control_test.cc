// ddprunctl and several rendezvousd on a real etcd: whichever server is named, the one that leads is commanded.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/ha/etcd_cluster.h"
#include "tests/ha/servers.h"

namespace ddprun::testing {
namespace {

struct Answer {
  int exit = 0;
  std::string out, err;
};

Answer Ctl(const std::string& servers, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ddprunctl/ddprunctl", absl::StrCat("--server=", servers)});
  Process ctl(std::move(arguments));
  const int exit = ctl.Wait();
  return {exit, ctl.Out(), ctl.Err()};
}

class ControlTest : public ::testing::Test {
 protected:
  // Server 0 leads, 1 follows.
  void SetUp() override {
    if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
    etcd_ = std::make_unique<EtcdCluster>();
    servers_ = std::make_unique<Servers>(2, etcd_->Endpoints());
    servers_->StartAll();
  }

  std::string Address(int server) const { return servers_->Address(server); }

  std::unique_ptr<EtcdCluster> etcd_;
  std::unique_ptr<Servers> servers_;
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
  EXPECT_TRUE(absl::StrContains(events.out, "round.assigned")) << events.out;
  EXPECT_EQ(Ctl(Address(1), {"stop", "job"}).exit, 0);
  EXPECT_EQ(node.Wait(), 143) << node.Err();
}

TEST_F(ControlTest, LeaderIsReplaced_ItsCommandsHold) {
  EXPECT_EQ(Ctl(Address(1), {"drain", "broken"}).exit, 0);
  Process watch({"ddprunctl/ddprunctl", "--server=" + Address(1), "events", "--follow"});
  ASSERT_TRUE(watch.WaitForOut("host.drained")) << watch.Err();
  (*servers_)[0].Signal(SIGKILL);
  (*servers_)[0].Wait();
  EXPECT_EQ(watch.Wait(), 1) << watch.Out();
  ASSERT_TRUE(servers_->AwaitLead(1)) << (*servers_)[1].Err();
  const std::string all = Address(0) + "," + Address(1);
  Answer hosts;
  ASSERT_TRUE(Eventually([&] {
    hosts = Ctl(all, {"hosts"});
    return hosts.exit == 0;
  })) << hosts.err;
  EXPECT_TRUE(absl::StrContains(hosts.out, "broken")) << hosts.out;
  const Answer events = Ctl(all, {"events"});
  EXPECT_EQ(Count(events.out, "host.drained"), 1) << "events outlive the leader\n" << events.out;
  EXPECT_EQ(Ctl(all, {"undrain", "broken"}).exit, 0);

  // Nobody leads: one line that names all that were asked.
  (*servers_)[1].Signal(SIGKILL);
  (*servers_)[1].Wait();
  const Answer none = Ctl(all, {"stop", "job"});
  EXPECT_EQ(none.exit, 1);
  EXPECT_EQ(Lines(none.err), 1) << none.err;
  EXPECT_TRUE(absl::StrContains(none.err, Address(0)) && absl::StrContains(none.err, Address(1))) << none.err;
}

}  // namespace
}  // namespace ddprun::testing
