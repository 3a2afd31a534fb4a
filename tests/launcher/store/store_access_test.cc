// Access control of a store (docs/security.md): processes of this user on this host, and nodes of the round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "launcher/store/registration.h"
#include "tests/launcher/store/raw_store_client.h"
#include "tests/launcher/store/request_bytes.h"
#include "tests/launcher/store/store_on_loop.h"

namespace ddprun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kSecret[] = "0123456789abcdef";
// Loopback addresses that represent other hosts here.
constexpr char kNodeB[] = "127.0.0.2";
constexpr char kNodeBToo[] = "127.0.0.3";
constexpr char kStranger[] = "127.0.0.66";

// A store for which all addresses except 127.0.0.1 are other hosts.
StoreOptions Options(absl::Duration patience = absl::Hours(1)) {
  StoreOptions options;
  options.secret = kSecret;
  options.pending.patience = patience;
  options.user_of = [](const SocketAddress& peer, const SocketAddress&) -> absl::StatusOr<uid_t> {
    if (AddressText(peer) == "127.0.0.1") return geteuid();
    return absl::NotFoundError("another host");
  };
  return options;
}

void Begin(StoreOnLoop& store) {
  store.Call([&](StoreServer& server) {
    server.BeginRound(1, 4);
    return server.RegisterLocal({1, 0, "a", {10, 11}}).ok();
  });
}

struct BegunStore : StoreOnLoop {
  BegunStore() : StoreOnLoop(Options()) { Begin(*this); }
};

NodeRegistration NodeB(const std::string& secret = kSecret) { return {1, 2, "b", {20, 21}, {kNodeBToo}, secret}; }

// Sends a registration; returns true if it was accepted.
bool Register(RawClient& launcher, const NodeRegistration& node) {
  return launcher.Send(RegistrationBytes(node)) && launcher.Receive(1) == Number(kRegistered);
}

// Sends a worker's first messages, without waiting for the answer.
bool Hello(RawClient& worker, uint32_t pid) { return worker.Send(Validate() + Ping(pid)); }

TEST(StoreAccess, ThisHost_UserDecides) {
  const struct {
    absl::StatusOr<uid_t> user;
    bool served;
    const char* log;
  } kCases[] = {{geteuid() + 4242, false, "refused a connection of user "},
                {0, true, ""},
                {absl::UnavailableError("?"), true, "can't tell which user connects"}};
  for (const auto& c : kCases) {
    StoreOptions options = Options();
    options.user_of = [&](const auto&, const auto&) { return c.user; };
    StoreOnLoop store(options);
    RawClient client(store.port(), c.served);
    EXPECT_EQ(c.served ? client.Ask(Add("/n", 1)) == Number<int64_t>(1) : client.IsClosed(), true) << c.user.status();
    EXPECT_THAT(store.log(), HasSubstr(c.log));
  }
}

// The owner of a closed connection cannot be determined any more.
TEST(StoreAccess, ThisHost_SentAndClosedBeforeItWasAccepted_NotCarriedOut) {
  auto store = StoreServer::Open({.address = "127.0.0.1"});
  ASSERT_TRUE(store.ok()) << store.status();
  {
    RawClient hasty((*store)->port(), /*hello=*/false);
    ASSERT_TRUE(hasty.Send(Validate() + Set("/poison", "x")));
  }
  const size_t before = (*store)->used_bytes();
  pollfd ready = {(*store)->PollFd(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 60000), 1);
  (*store)->ProcessReady();
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  EXPECT_EQ((*store)->connections(), 0);
  EXPECT_EQ((*store)->used_bytes(), before);
}

TEST(StoreAccess, OtherHost_AnyAddressOfANode_ServedAsThatNodeOnceItsLauncherRegisters) {
  BegunStore store;
  RawClient early(store.port(), /*hello=*/false, 0, kNodeBToo);
  ASSERT_TRUE(Hello(early, 20));
  ASSERT_TRUE(early.Send(Set("/from b", "x")));
  // The worker's request waits: other clients do not see its effect.
  RawClient here(store.port());
  EXPECT_EQ(here.Ask(Get("/from b")), Text(""));
  RawClient launcher(store.port(), /*hello=*/false, 0, kNodeB);
  EXPECT_TRUE(Register(launcher, NodeB()));
  EXPECT_EQ(early.Receive(4), Number<uint32_t>(20));
  EXPECT_EQ(early.Ask(Get("/from b")), Text("x"));
  EXPECT_EQ(store.Call([](StoreServer& server) { return server.Joined(); }), 1);
  RawClient late(store.port(), /*hello=*/true, 21, kNodeB);
  EXPECT_EQ(late.Ask(Add("/n", 1)), Number<int64_t>(1));
  const auto missing = store.Call([](StoreServer& server) { return server.Missing(); });
  EXPECT_THAT(missing, ElementsAre(MissingRank{0, 0, "a", 10}, MissingRank{1, 1, "a", 11}));
}

TEST(StoreAccess, OtherHost_NotInTheRound_ClosedAndNamedOnce) {
  StoreOnLoop store(Options(absl::Milliseconds(1)));
  Begin(store);
  for (int i = 0; i < 3; ++i) {
    RawClient stranger(store.port(), /*hello=*/false, 0, kStranger);
    ASSERT_TRUE(stranger.Send(Validate() + Set("/poison", "x") + Ping(1)));
    EXPECT_EQ(stranger.Receive(1), "");
  }
  EXPECT_EQ(store.log(),
            "W store: refused 127.0.0.66: no launcher of this round registered that address within 1ms; a "
            "worker must connect from an address of its launcher's host\n");
  RawClient here(store.port());
  EXPECT_EQ(here.Ask(Get("/poison")), Text(""));
}

TEST(StoreAccess, Registration_WithoutTheSecret_Refused) {
  BegunStore store;
  for (const std::string secret : {"", "0123456789abcdee", "0123456789abcdef0"}) {
    RawClient launcher(store.port(), /*hello=*/false, 0, kStranger);
    EXPECT_FALSE(Register(launcher, NodeB(secret))) << secret;
  }
  // Also on this host, for example another job's launcher.
  RawClient here(store.port(), /*hello=*/false);
  EXPECT_FALSE(Register(here, NodeB("")));
  EXPECT_THAT(store.log(), HasSubstr("host b registered without the secret of this store"));
  EXPECT_EQ(store.Call([](StoreServer& server) { return server.Missing()[2].host; }), "");
}

TEST(StoreAccess, Registration_BeforeTheRound_WaitsIfItHasTheSecret) {
  StoreOnLoop store(Options());
  const std::string wrong = RegistrationBytes(NodeB("wrong"));
  const std::string too_long = Validate() + Op(Opcode::kRegisterNode) + Number<uint64_t>(kMaxRegistrationBytes + 1);
  for (const std::string& bytes : {wrong, too_long}) {  // the latter has not even come
    RawClient stranger(store.port(), /*hello=*/false, 0, kStranger);
    ASSERT_TRUE(stranger.Send(bytes));
    EXPECT_TRUE(stranger.IsClosed());
  }
  RawClient launcher(store.port(), /*hello=*/false, 0, kNodeB);
  ASSERT_TRUE(launcher.Send(RegistrationBytes(NodeB())));
  Begin(store);
  EXPECT_EQ(launcher.Receive(1), Number(kRegistered));
}

TEST(StoreAccess, Registration_OnAWorkersConnectionOrTwice_Refused) {
  BegunStore store;
  RawClient worker(store.port());
  ASSERT_TRUE(worker.Send(Op(Opcode::kRegisterNode) + Text(EncodeRegistration(NodeB()))));
  EXPECT_TRUE(worker.IsClosed());
  for (const std::string& more : {Set("/a", "1"), Op(Opcode::kRegisterNode) + Text(EncodeRegistration(NodeB()))}) {
    RawClient launcher(store.port(), /*hello=*/false, 0, kNodeB);
    ASSERT_TRUE(Register(launcher, NodeB()));
    ASSERT_TRUE(launcher.Send(more));
    EXPECT_TRUE(launcher.IsClosed());
  }
}

TEST(StoreAccess, Evidence_NotFromARegisteredLauncher_Refused) {
  const std::string evidence = Op(Opcode::kEvidence) + Text("payload");
  BegunStore store;
  for (const std::string& before : {Validate(), Validate() + Set("/a", "1")}) {
    RawClient worker(store.port(), /*hello=*/false);
    ASSERT_TRUE(worker.Send(before + evidence));
    EXPECT_TRUE(worker.IsClosed());
  }
  StoreOnLoop early(Options());
  RawClient launcher(early.port(), /*hello=*/false, 0, kNodeB);
  ASSERT_TRUE(launcher.Send(RegistrationBytes(NodeB()) + evidence));
  EXPECT_TRUE(launcher.IsClosed());
}

TEST(StoreAccess, Connections_Silent_AreClosed) {
  StoreOnLoop store(Options(absl::Milliseconds(1)));
  std::unique_ptr<RawClient> client;
  // The first request may arrive too late on a slow machine.
  do {
    client = std::make_unique<RawClient>(store.port());
  } while (!client->connected());
  for (const std::string& start : {std::string(), Validate()}) {
    RawClient silent(store.port(), /*hello=*/false);
    ASSERT_TRUE(silent.Send(start));
    EXPECT_TRUE(silent.IsClosed());
  }
  EXPECT_EQ(store.Call([](StoreServer& server) { return server.connections(); }), 1);
  EXPECT_EQ(client->Ask(Add("/n", 1)), Number<int64_t>(1));
}

TEST(StoreAccess, Strangers_TooMany_OthersServedAndMemoryBounded) {
  StoreOptions options = Options();
  options.pending.strangers = 20;
  options.pending.strangers_of_address = 5;
  StoreOnLoop store(options);
  Begin(store);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 400; ++i) {
    flood.push_back(std::make_unique<RawClient>(store.port(), false, 0, absl::StrCat("127.0.1.", i % 40).c_str()));
    flood.back()->Send(Validate() + Set("/poison", std::string(4096, 'x')));
  }
  EXPECT_LE(store.Call([](StoreServer& server) { return server.connections(); }), 20);
  EXPECT_LT(store.Call([](StoreServer& server) { return server.used_bytes(); }), size_t{2} << 20);
  RawClient launcher(store.port(), /*hello=*/false, 0, kNodeB);
  EXPECT_TRUE(Register(launcher, NodeB()));
  RawClient worker(store.port(), /*hello=*/true, 20, kNodeB);
  EXPECT_EQ(worker.Ask(Get("/poison")), Text(""));
}

TEST(StoreAccess, Connections_OfANodeBeyondItsBound_Refused) {
  BegunStore store;
  RawClient launcher(store.port(), /*hello=*/false, 0, kNodeB);
  ASSERT_TRUE(Register(launcher, NodeB()));
  std::vector<std::unique_ptr<RawClient>> clients;
  const int most = RoundNodes::kConnectionsOfNode + 2 * RoundNodes::kConnectionsOfWorker - 1;
  for (int i = 0; i < most; ++i) {
    clients.push_back(std::make_unique<RawClient>(store.port(), true, 20, kNodeB));
    ASSERT_TRUE(clients.back()->connected()) << i;
  }
  EXPECT_FALSE(RawClient(store.port(), true, 20, kNodeB).connected());
  RawClient here(store.port());
  EXPECT_EQ(here.Ask(Add("/n", 1)), Number<int64_t>(1));
}

}  // namespace
}  // namespace ddprun::launcher
