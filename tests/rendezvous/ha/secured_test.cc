// Several rendezvousd that require credentials: launchers and ddprunctl that name a follower first reach the leader and
// the next one, and a follower refuses unauthenticated clients as the leader does.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/rendezvous/ha/servers.h"
#include "tests/security/certificates.h"

namespace ddprun::testing {
namespace {

using Flags = std::vector<std::string>;

class SecuredTest : public ServersTest {
 protected:
  SecuredTest() : ServersTest(0) {}

  void SetUp() override {
    ServersTest::SetUp();
    ca_.Issue("server", "IP:127.0.0.1");
    for (const char* name : {"node", "alice", "mallory"}) ca_.Issue(name, absl::StrCat("DNS:", name, ".example"));
  }

  Flags Certificate(const std::string& name) const {
    return {"--tls-cert=" + ca_.cert(name), "--tls-key=" + ca_.key(name)};
  }
  Flags Trusting(Flags flags) const {
    flags.push_back("--tls-ca=" + ca_.ca());
    return flags;
  }

  std::unique_ptr<Launcher> Node(const std::string& endpoints, const Flags& credentials, const std::string& script) {
    Flags flags = {"--nnodes=2", "--nproc-per-node=1", "--rdzv-endpoint=" + endpoints, "--rdzv-id=job",
                   // The launchers of one job name one server and several, which have different defaults.
                   "--rdzv-conf=is_host=false,heartbeat_timeout=3"};
    flags.insert(flags.end(), credentials.begin(), credentials.end());
    for (const char* word : {"--no-python", "sh", "-c"}) flags.push_back(word);
    flags.push_back(script);
    return std::make_unique<Launcher>(std::move(flags));
  }

  static Flags Jobs(Flags credentials) {
    credentials.insert(credentials.begin(), "jobs");
    return credentials;
  }

  // A job whose launchers name followers first forms, outlives its leader, and is listed; a follower refuses clients
  // with `wrong` credentials and tells them `why`.
  void Run(const Flags& server, const Flags& node, const Flags& operators, const Flags& wrong, const std::string& why) {
    Servers servers(3, etcd_->Endpoints(), server);
    servers.StartAll();
    const std::string follower = servers.Address(2), all = servers.FollowersFirst();
    const std::string go = dir_.File("go");
    const std::string script = absl::StrCat(kSayRank, "while [ ! -e ", go, " ]; do sleep 0.05; done");
    const auto a = Node(follower, node, script), b = Node(all, node, script);
    ASSERT_TRUE(a->WaitForOut("/2 local=")) << a->Err();
    ASSERT_TRUE(b->WaitForOut("/2 local=")) << b->Err();

    for (const std::string& endpoints : {follower, all}) {
      const Answer jobs = Ctl(endpoints, Jobs(operators));
      EXPECT_EQ(jobs.exit, 0) << jobs.err;
      EXPECT_THAT(jobs.out, HasSubstr("running"));
      const Answer refused = Ctl(endpoints, Jobs(wrong));
      EXPECT_EQ(refused.exit, 1) << refused.out;
      EXPECT_THAT(refused.err, HasSubstr(why));
    }
    const auto stranger = Node(follower, wrong, "echo ran");
    EXPECT_EQ(stranger->Wait(), 1);
    EXPECT_THAT(stranger->Err(), HasSubstr(why));
    EXPECT_EQ(stranger->Out(), "");

    servers[0].Signal(SIGKILL);
    servers.AwaitLeaderAfter(0);
    for (Launcher* launcher : {a.get(), b.get()}) {
      ASSERT_TRUE(launcher->WaitForErr("reached the rendezvous server")) << launcher->Err();
    }
    const Answer jobs = Ctl(all, Jobs(operators));
    EXPECT_EQ(jobs.exit, 0) << jobs.err;
    EXPECT_THAT(jobs.out, HasSubstr("running"));
    ASSERT_EQ(std::system(absl::StrCat("touch ", go).c_str()), 0);
    for (Launcher* launcher : {a.get(), b.get()}) {
      EXPECT_EQ(launcher->Wait(), 0) << launcher->Err();
      EXPECT_EQ(Lines(launcher->Out()), 1) << "no worker was restarted\n" << launcher->Out();
    }
  }

  TestCa ca_{NewFolder("ca")};
};

TEST_F(SecuredTest, Servers_ClientCertificates_TakeOver) {
  Flags server = Trusting(Certificate("server"));
  server.push_back("--tls-allowed-names=node.example,alice.example");
  Run(server, Trusting(Certificate("node")), Trusting(Certificate("alice")), Trusting(Certificate("mallory")),
      "no name in the client certificate is allowed");
}

TEST_F(SecuredTest, Servers_TlsAndToken_TakeOver) {
  const std::string right = dir_.File("right"), wrong = dir_.File("wrong");
  WriteFile(right, "the-token-of-this-test-only");
  WriteFile(wrong, "another-token-than-the-servers");
  Flags server = Certificate("server");
  server.push_back("--token-file=" + right);
  const Flags good = Trusting({"--token-file=" + right});
  Run(server, good, good, Trusting({"--token-file=" + wrong}), "invalid token");
}

}  // namespace
}  // namespace ddprun::testing
