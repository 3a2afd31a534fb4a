// One name with the addresses of several rendezvousd on different hosts: launchers find the leader by this name, also
// after a takeover, and the certificate must be valid for the name.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/security/certificates.h"

namespace ddprun::testing {
namespace {

constexpr int kServers = 3;
constexpr int kLast = 4;  // the host of etcd and the launchers
constexpr char kName[] = "rendezvous.example";
constexpr char kPort[] = ":29400";

class NamesTest : public ::testing::Test {
 protected:
  void Start() {
    hosts_ = std::make_unique<Hosts>(kLast);
    std::string names;
    for (int host = 1; host <= kLast; ++host) absl::StrAppend(&names, Hosts::Ipv4(host), " ", Hosts::Name(host), "\n");
    absl::StrAppend(&names, Hosts::Ipv4(1), " ", kName, "\n", Hosts::Ipv4(2), " ", kName, "\n", Hosts::Ipv6(3), " ",
                    kName, "\n");
    for (int host = 1; host <= kLast; ++host) hosts_->SetHostsFile(host, names);
    ca_.Issue("server", absl::StrCat("DNS:", kName));
    const std::string etcd = absl::StrCat(Hosts::Ipv4(kLast), ":2379");
    etcd_ = std::make_unique<Process>(hosts_->On(kLast, EtcdCluster::SoleMember(etcd, dir_.File("etcd"))));
    for (int host = 1; host <= kServers; ++host) {
      const std::string address = host == 3 ? absl::StrCat("[", Hosts::Ipv6(host), "]") : Hosts::Ipv4(host);
      servers_[host] = std::make_unique<Process>(
          hosts_->On(host, {"rendezvous/daemon/rendezvousd", absl::StrCat("--listen=", address, kPort),
                            absl::StrCat("--advertise=", Hosts::Name(host), kPort), "--etcd=" + etcd, "--lease-ttl=2",
                            "--tls-cert=" + ca_.cert("server"), "--tls-key=" + ca_.key("server")}));
      ASSERT_TRUE(servers_[host]->WaitForOut("listening")) << servers_[host]->Err();
    }
  }

  int AwaitLeaderAfter(int last) {
    int leader = 0;
    EXPECT_TRUE(Eventually([&] {
      for (int host = 1; host <= kServers; ++host) {
        if (host != last && absl::StrContains(servers_[host]->Err(), "leads since revision")) leader = host;
      }
      return leader > 0;
    })) << servers_[1]->Err();
    return leader;
  }

  std::unique_ptr<Process> Node(const std::string& endpoint, const std::string& script) {
    return std::make_unique<Process>(hosts_->On(
        kLast, {"launcher/ddprun", "--nnodes=2", "--nproc-per-node=1", absl::StrCat("--rdzv-endpoint=", endpoint),
                "--rdzv-id=job", "--tls-ca=" + ca_.ca(), "--no-python", "sh", "-c", script}));
  }

  const TempDir dir_;
  TestCa ca_{NewFolder("ca")};
  std::unique_ptr<Hosts> hosts_;
  std::unique_ptr<Process> etcd_;
  std::array<std::unique_ptr<Process>, kServers + 1> servers_;  // index: host
};

TEST_F(NamesTest, NameOfAllServers_LeadsToTheLeader_AndToTheNextOne) {
  SKIP_WITHOUT_HOSTS();
  if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
  Start();
  const int first = AwaitLeaderAfter(0);
  const std::string go = dir_.File("go");
  const std::string script = absl::StrCat(kSayRank, "while [ ! -e ", go, " ]; do sleep 0.05; done");
  const auto a = Node(absl::StrCat(kName, kPort), script), b = Node(absl::StrCat(kName, kPort), script);
  ASSERT_TRUE(a->WaitForOut("/2 local=")) << a->Err();
  ASSERT_TRUE(b->WaitForOut("/2 local=")) << b->Err();
  servers_[first]->Signal(SIGKILL);
  AwaitLeaderAfter(first);
  ASSERT_TRUE(a->WaitForErr("reached the rendezvous server")) << a->Err();
  ASSERT_TRUE(b->WaitForErr("reached the rendezvous server")) << b->Err();
  // A name of the same host that is not in its certificate.
  const auto wrong = Node(absl::StrCat(Hosts::Name(first == 1 ? 2 : 1), kPort), "echo ran");
  EXPECT_EQ(wrong->Wait(), 1);
  EXPECT_THAT(wrong->Err(), HasSubstr("TLS handshake failed"));
  ASSERT_EQ(std::system(absl::StrCat("touch ", go).c_str()), 0);
  for (Process* node : {a.get(), b.get()}) {
    EXPECT_EQ(node->Wait(), 0) << node->Err();
    EXPECT_EQ(Lines(node->Out()), 1) << "no worker was restarted\n" << node->Out();
  }
}

}  // namespace
}  // namespace ddprun::testing
