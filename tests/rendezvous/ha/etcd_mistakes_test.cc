// Mistakes of operators with etcd: one line names each and says what to do. With a real etcd and real servers.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/security/certificates.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

class EtcdMistakesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
  }

  void StartEtcd(const Strings& more = {}, const std::string& scheme = "http") {
    etcd_ = std::make_unique<Process>(EtcdCluster::SoleMember(address_, dir_.File("etcd"), more, scheme));
    ASSERT_TRUE(Eventually([&] { return CanConnect(port_); })) << etcd_->Err();
  }
  void Ctl(Strings arguments) {
    arguments.insert(arguments.begin(), {"/usr/bin/etcdctl", "--command-timeout=30s"});
    Process ctl(arguments, {{"ETCDCTL_API", "3"}, {"ETCDCTL_ENDPOINTS", address_}});
    EXPECT_EQ(ctl.Wait(), 0) << ctl.Err();
  }
  std::unique_ptr<Process> Server(Strings more = {}, std::map<std::string, std::string> environment = {}) {
    more.insert(more.begin(), {"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--lease-ttl=2"});
    if (!absl::StrContains(more.back(), "--etcd=")) more.push_back("--etcd=" + address_);
    auto server = std::make_unique<Process>(more, environment);
    EXPECT_TRUE(server->WaitForOut("listening on")) << server->Err();
    return server;
  }
  // Expects that the server logs the line and keeps running.
  void ExpectLine(Process* server, const std::string& line) {
    EXPECT_TRUE(server->WaitForErr(line)) << line << "\n" << server->Err();
    EXPECT_TRUE(Alive(server->pid()));
  }
  static std::string AddressOf(Process& server) {
    const std::string sign = "listening on ", out = server.Out();
    const size_t at = out.find(sign) + sign.size();
    return out.substr(at, out.find('\n', at) - at);
  }

  const TempDir dir_;
  const int port_ = FreePort();
  const std::string address_ = absl::StrCat("127.0.0.1:", port_);
  std::unique_ptr<Process> etcd_;
};

TEST_F(EtcdMistakesTest, OneMemberIsMisspelt_IsNamed_TheOthersAreUsed) {
  StartEtcd();
  Ctl({"put", "ready", "yes"});
  const auto server = Server({"--etcd=" + address_ + ",no-such-host.invalid:2379"});
  ExpectLine(server.get(), "a member of etcd does not answer: no-such-host.invalid:2379: ");
  ExpectLine(server.get(), "leads since revision");
}

TEST_F(EtcdMistakesTest, Start_NoEtcdListens_IsNamed) {
  const auto server = Server();
  ExpectLine(server.get(), absl::StrCat("can't use etcd: ", address_, ": connection refused; check --etcd, and that "));
  Process ctl({"ddprunctl/ddprunctl", "--server=" + AddressOf(*server), "jobs"});
  EXPECT_EQ(ctl.Wait(), 1);
  EXPECT_THAT(ctl.Err(), HasSubstr("a follower that cannot determine the leader: can't use etcd: "));
  StartEtcd();
  ExpectLine(server.get(), "etcd answers again");
  ExpectLine(server.get(), "leads since revision");
}

TEST_F(EtcdMistakesTest, Start_TlsOnOneSideOnly_IsNamed) {
  TestCa ca(NewFolder("ca")), other(NewFolder("other"));
  ca.Issue("etcd", "IP:127.0.0.1");
  StartEtcd();
  const auto server = Server({"--etcd-cacert=" + ca.ca()});
  ExpectLine(server.get(), "the TLS handshake failed; check --etcd-cacert");
  etcd_->Signal(SIGKILL);
  etcd_->Wait();
  StartEtcd({"--cert-file=" + ca.cert("etcd"), "--key-file=" + ca.key("etcd")}, "https");
  ExpectLine(server.get(), "leads since revision");
  ExpectLine(Server().get(), "etcd closed the connection; if it uses TLS, give --etcd-cacert");
  ExpectLine(Server({"--etcd-cacert=" + other.ca()}).get(), "; check --etcd-cacert");
}

TEST_F(EtcdMistakesTest, Start_UserPasswordOrPermissionsWrong_IsNamed) {
  StartEtcd();
  ExpectLine(Server({}, {{"DDPRUN_ETCD_USER", "reader:r"}}).get(), "unset DDPRUN_ETCD_USER");
  for (const char* user : {"root:x", "reader:r", "owner:o"}) Ctl({"user", "add", user});
  for (const char* role : {"reader", "owner"}) Ctl({"role", "add", role});
  Ctl({"role", "grant-permission", "reader", "read", "--prefix=true", "/ddprun/"});
  Ctl({"role", "grant-permission", "owner", "readwrite", "--prefix=true", "/mine/"});
  Ctl({"user", "grant-role", "root", "root"});
  for (const char* user : {"reader", "owner"}) Ctl({"user", "grant-role", user, user});
  Ctl({"auth", "enable"});
  ExpectLine(Server().get(), "etcd asks for a user; set DDPRUN_ETCD_USER");
  ExpectLine(Server({}, {{"DDPRUN_ETCD_USER", "owner:wrong"}}).get(), "wrong user or password; check DDPRUN_ETCD_USER");
  ExpectLine(Server({}, {{"DDPRUN_ETCD_USER", "owner:o"}}).get(), "permission denied; grant the user of ");
  const auto reader = Server({}, {{"DDPRUN_ETCD_USER", "reader:r"}});
  const auto owner = Server({"--etcd-prefix=/mine/"}, {{"DDPRUN_ETCD_USER", "owner:o"}});
  ExpectLine(owner.get(), "leads since revision");
  ExpectLine(reader.get(), "This server can't lead; retrying");
  const auto reader_again = Server({}, {{"DDPRUN_ETCD_USER", "reader:r"}});
  ExpectLine(reader_again.get(), "This server can't lead; retrying");
  // The first server has retried since then.
  EXPECT_EQ(Count(reader->Err(), "permission denied"), 1) << reader->Err();
}

TEST_F(EtcdMistakesTest, Start_AddressAdvertisedTwice_IsNamed) {
  StartEtcd();
  const std::string flag = absl::StrCat("--advertise=127.0.0.1:", FreePort());
  const auto leader = Server({flag});
  ExpectLine(leader.get(), "leads since revision");
  const auto other = Server({flag});
  ExpectLine(other.get(), "give each server its own --advertise address");
}

}  // namespace
}  // namespace ddprun::testing
