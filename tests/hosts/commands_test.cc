// ddprunctl from separate hosts: who may command a server without authentication, and draining of a host.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

constexpr int kServer = 1;  // the server's host

class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_HOSTS();
    hosts_ = std::make_unique<Hosts>(4, Hosts::Addresses::kIpv4);
    server_ =
        std::make_unique<Process>(hosts_->On(kServer, {"rendezvous/daemon/rendezvousd", "--listen=0.0.0.0:29400"}));
    ASSERT_TRUE(server_->WaitForOut("listening on")) << server_->Err();
  }

  std::unique_ptr<Process> Node(int host, int nnodes) const {
    return std::make_unique<Process>(
        hosts_->On(host, {"launcher/ddprun", absl::StrCat("--nnodes=", nnodes), "--rdzv-endpoint=node1",
                          "--rdzv-id=job", "--rdzv-conf=is_host=false", "--max-restarts=3", "--no-python", "sh", "-c",
                          std::string(kSayRank) + "exec sleep 1000"}));
  }

  struct Answer {
    int exit = 0;
    std::string out, err;
  };
  Answer Ctl(int host, std::vector<std::string> arguments, const std::string& server = "node1") const {
    arguments.insert(arguments.begin(), {"ddprunctl/ddprunctl", absl::StrCat("--server=", server)});
    Process ctl(hosts_->On(host, std::move(arguments)));
    const int exit = ctl.Wait();
    return {exit, ctl.Out(), ctl.Err()};
  }
  void Command(std::vector<std::string> arguments) const {
    const Answer answer = Ctl(kServer, std::move(arguments), "127.0.0.1");
    EXPECT_EQ(answer.exit, 0) << answer.err;
  }
  nlohmann::json Json(std::vector<std::string> arguments) const {
    arguments.push_back("--output=json");
    const Answer answer = Ctl(2, std::move(arguments));
    EXPECT_EQ(answer.exit, 0) << answer.err;
    return nlohmann::json::parse(answer.out, nullptr, false);
  }
  // The job's nodes by host, with the group rank or -1: {{"node2", 0}, {"node4", 1}}.
  std::map<std::string, int> Ranks() const {
    std::map<std::string, int> ranks;
    const nlohmann::json answer = Json({"nodes", "job"});
    for (const auto& node : answer["nodes"]) ranks[node["host"]] = node["group_rank"];
    return ranks;
  }
  bool HasRank(int host) const {
    const auto ranks = Ranks();
    const auto it = ranks.find(Hosts::Name(host));
    return it != ranks.end() && it->second >= 0;
  }

  std::unique_ptr<Hosts> hosts_;
  std::unique_ptr<Process> server_;
};

TEST_F(CommandsTest, FromAnotherHostWithoutCredentials_ReadOnly) {
  const auto node = Node(2, 1);
  ASSERT_TRUE(node->WaitForOut("round=1")) << node->Err();
  const std::vector<std::vector<std::string>> reads = {{"jobs"},   {"show", "job"}, {"nodes"},
                                                       {"spares"}, {"hosts"},       {"events"}};
  for (const auto& read : reads) {
    const Answer answer = Ctl(3, read);
    EXPECT_EQ(answer.exit, 0) << answer.err;
    EXPECT_NE(answer.out, "") << read[0];
  }
  const std::vector<std::vector<std::string>> commands = {
      {"stop", "job"}, {"resize", "job", "2"}, {"kick", "job", "node2"}, {"drain", "node2"}, {"undrain", "node2"}};
  // A call to a network address is not local, not even on the server's host.
  for (const int host : {2, 3, kServer}) {
    for (const auto& command : commands) {
      const Answer answer = Ctl(host, command);
      EXPECT_EQ(answer.exit, 1) << answer.err;
      EXPECT_TRUE(absl::StrContains(answer.err, "does not check who calls it")) << answer.err;
      EXPECT_TRUE(absl::StrContains(answer.err, "--server=127.0.0.1")) << answer.err;
      EXPECT_EQ(Lines(answer.err), 1) << answer.err;
    }
  }
  const nlohmann::json job = Json({"show", "job"});
  EXPECT_EQ(job["state"], "running") << job;
  EXPECT_EQ(job["round"], 1) << job;
  Command({"stop", "job"});
  EXPECT_EQ(node->Wait(), 143) << node->Err();
}

TEST_F(CommandsTest, WatchersWithoutCredentials_LeaveRoomForOthers) {
  std::vector<std::unique_ptr<Process>> watchers;
  const auto watch = [&](int host, const std::string& server) -> Process& {
    watchers.push_back(std::make_unique<Process>(
        hosts_->On(host, {"ddprunctl/ddprunctl", absl::StrCat("--server=", server), "events", "--follow"})));
    return *watchers.back();
  };
  const auto node = Node(2, 1);
  ASSERT_TRUE(node->WaitForOut("round=1")) << node->Err();
  for (int i = 0; i < 16; ++i) watch(3, "node1");
  for (const auto& watcher : watchers) ASSERT_TRUE(watcher->WaitForOut("round.assigned")) << watcher->Err();
  Process& surplus = watch(3, "node1");
  EXPECT_EQ(surplus.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(surplus.Err(), "too many watchers without credentials")) << surplus.Err();
  for (Process* other : {&watch(4, "node1"), &watch(kServer, "127.0.0.1")}) {
    EXPECT_TRUE(other->WaitForOut("round.assigned")) << other->Err();
  }
  Command({"stop", "job"});
  EXPECT_EQ(node->Wait(), 143) << node->Err();
}

// Local users, and proxies that serve other hosts, have loopback addresses as well.
TEST_F(CommandsTest, OverAForwarderOfAnotherUser_Refused) {
  constexpr char kForwarder[] = R"(
import encodings.idna, os, socket, sys, threading
try:
    os.setuid(65534)
except OSError:
    print('ready: no other user here', flush=True)
    sys.exit()
listener = socket.create_server(('0.0.0.0', 29500))
print('ready', flush=True)

def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

while True:
    client = listener.accept()[0]
    server = socket.create_connection((sys.argv[1], 29400), source_address=('127.0.0.1', 0))
    for pair in ((client, server), (server, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
)";
  for (const std::string& reached_at : {std::string("127.0.0.1"), Hosts::Ipv4(kServer)}) {
    const auto node = Node(2, 1);
    ASSERT_TRUE(node->WaitForOut("round=")) << node->Err();
    Process forwarder(hosts_->On(kServer, {"/usr/bin/env", "python3", "-c", kForwarder, reached_at}));
    ASSERT_TRUE(forwarder.WaitForOut("ready")) << forwarder.Err();
    if (absl::StrContains(forwarder.Out(), "no other user")) GTEST_SKIP() << "only root can become another user";
    EXPECT_EQ(Ctl(3, {"jobs"}, "node1:29500").exit, 0);
    for (const auto& [host, server] : {std::pair(3, "node1:29500"), std::pair(kServer, "127.0.0.1:29500")}) {
      const Answer answer = Ctl(host, {"stop", "job"}, server);
      EXPECT_EQ(answer.exit, 1) << answer.err;
      EXPECT_TRUE(absl::StrContains(answer.err, "only from root and its own user")) << answer.err;
    }
    Command({"stop", "job"});
    EXPECT_EQ(node->Wait(), 143) << node->Err();
    forwarder.Signal(SIGKILL);
    forwarder.Wait();
  }
}

TEST_F(CommandsTest, Drain_SpareReplacesTheHost_UndrainLetsItBack) {
  const auto a = Node(2, 2);
  const auto b = Node(3, 2);
  ASSERT_TRUE(a->WaitForOut("round=1")) << a->Err();
  ASSERT_TRUE(b->WaitForOut("round=1")) << b->Err();
  const auto c = Node(4, 2);
  ASSERT_TRUE(Eventually([&] { return Json({"spares"})["nodes"].size() == 1; })) << c->Err();

  Command({"drain", "node2"});
  ASSERT_TRUE(c->WaitForOut("round=2")) << c->Err() << a->Err();
  ASSERT_TRUE(b->WaitForOut("round=2")) << b->Err();
  EXPECT_EQ(Count(a->Out(), "round="), 1) << a->Out();
  EXPECT_FALSE(HasRank(2));
  EXPECT_TRUE(HasRank(3));
  EXPECT_TRUE(HasRank(4));
  const nlohmann::json hosts = Json({"hosts"})["hosts"];
  ASSERT_EQ(hosts.size(), 3u) << hosts;
  EXPECT_EQ(hosts[0]["name"], "node2");
  EXPECT_EQ(hosts[0]["drained"], true);
  EXPECT_EQ(hosts[0]["ranked_nodes"], 0);
  EXPECT_EQ(hosts[1]["drained"], false);

  // The job waits rather than continue with the drained host's node.
  Command({"kick", "job", "node4"});
  EXPECT_EQ(c->Wait(), 143) << c->Err();
  ASSERT_TRUE(Eventually([&] { return Json({"show", "job"})["state"] == "waiting"; })) << b->Err();
  EXPECT_FALSE(HasRank(2));
  Command({"undrain", "node2"});
  ASSERT_TRUE(a->WaitForOut("round=3")) << a->Err();
  ASSERT_TRUE(b->WaitForOut("round=3")) << b->Err();
  EXPECT_TRUE(HasRank(2));
  EXPECT_EQ(Json({"hosts"})["hosts"][0]["drained"], false);
  Command({"stop", "job"});
  EXPECT_EQ(a->Wait(), 143) << a->Err();
  EXPECT_EQ(b->Wait(), 143) << b->Err();
}

}  // namespace
}  // namespace ddprun::testing
