// Access to the store of a running job (docs/security.md): its nodes and this user's processes on their hosts; no other
// host, and no other user.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

// Connects as a TCPStore client and prints whether it was answered. Arguments: host, port, user id.
constexpr char kClient[] = R"(
import os, socket, struct, sys
if sys.argv[3] != "0":
    try:
        os.setuid(int(sys.argv[3]))
    except OSError:
        sys.exit("no other user here")
client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
try:
    client.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\x0d" + struct.pack("<I", 7))
    answer = client.recv(4)
except ConnectionError:
    answer = b""
print("served" if answer else "closed")
)";

class StoreAccessTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_HOSTS(); }

  static Process Launcher(const Hosts& hosts, int host) {
    return Process(hosts.On(host, {"launcher/ddprun", "--nnodes=2", "--rdzv-endpoint=node1", "--no-python", "sh", "-c",
                                   "echo \"store=$MASTER_ADDR,$MASTER_PORT,\"; exec sleep 1000"}));
  }

  static int MasterOf(const std::string& store) { return store.find(Hosts::Ipv4(1)) == 0 ? 1 : 2; }

  static std::string Try(const Hosts& hosts, int host, const std::string& store, const std::string& user = "0") {
    const std::vector<std::string> place = absl::StrSplit(store, ',');
    Process client(hosts.On(host, {"/usr/bin/env", "python3", "-c", kClient, place.at(0), place.at(1), user}));
    client.Wait();
    return client.Out() + client.Err();
  }
};

TEST_F(StoreAccessTest, NodesAreServed_StrangersAreNot) {
  Hosts hosts(3, Hosts::Addresses::kIpv4);
  Process a = Launcher(hosts, 1), b = Launcher(hosts, 2);
  ASSERT_TRUE(a.WaitForOut("store=")) << a.Err();
  ASSERT_TRUE(b.WaitForOut("store=")) << b.Err();
  const std::string out = a.Out();
  const size_t begin = out.find("store=") + 6;
  const std::string store = out.substr(begin, out.find('\n', begin) - begin);
  EXPECT_EQ(Try(hosts, 1, store), "served\n");
  EXPECT_EQ(Try(hosts, 2, store), "served\n");
  EXPECT_EQ(Try(hosts, 3, store), "closed\n");
  const std::string another_user = Try(hosts, MasterOf(store), store, "65534");
  // A client may see its connection closed before the line is written.
  Process& master = MasterOf(store) == 1 ? a : b;
  EXPECT_TRUE(master.WaitForErr("store: refused 10.77.0.3: no launcher of this round registered that address"));
  if (another_user == "no other user here\n") return;  // a user namespace has only one
  EXPECT_EQ(another_user, "closed\n");
  EXPECT_TRUE(master.WaitForErr("store: refused a connection of user 65534")) << master.Err();
}

}  // namespace
}  // namespace ddprun::testing
