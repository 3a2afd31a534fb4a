// ddprunctl and several rendezvousd on a real etcd: commands reach the leader through any server, and the leader knows
// the history of the servers before it.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/rendezvous/ha/servers.h"

namespace ddprun::testing {
namespace {

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
