#include "launcher/store/store_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "tests/launcher/store/raw_store_client.h"
#include "tests/launcher/store/request_bytes.h"
#include "tests/launcher/store/store_on_loop.h"

namespace ddprun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kReleased = Number(kStopWaiting);
const std::string kCanceled = Number(kWaitCanceled);

// Returns the number of connections once it is `want`; the store notices a disconnect later than the client.
int WaitForConnections(StoreOnLoop& store, int want) {
  int count = -1;
  for (int i = 0; i < 1000000 && count != want; ++i) {
    count = store.Call([](StoreServer& server) { return server.connections(); });
  }
  return count;
}

size_t Waiting(StoreOnLoop& store) {
  return store.Call([](StoreServer& server) { return server.Waiting().size(); });
}

TEST(StoreServer, Start_ByteByByte_Accepted) {
  StoreOnLoop store;
  RawClient client(store.port(), /*hello=*/false);
  for (char byte : Validate() + Set("/a", "1") + Get("/a")) ASSERT_TRUE(client.Send(std::string(1, byte)));
  EXPECT_EQ(client.Ask(""), Text("1"));
}

TEST(StoreServer, Start_AnythingElse_Closed) {
  StoreOnLoop store;
  for (const std::string& start : {Ping(7), Set("/a", "1"), std::string("\0abcd", 5), Validate() + Validate(),
                                   std::string("GET / HTTP/1.1\r\n\r\n")}) {
    RawClient client(store.port(), /*hello=*/false);
    ASSERT_TRUE(client.Send(start));
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST(StoreServer, Request_Unknown_ClosedAndLoggedWithOpcodeAndPid_NotTooOften) {
  StoreOnLoop store;
  for (int i = 0; i < 100; ++i) {
    RawClient client(store.port(), true, 4711);
    ASSERT_TRUE(client.Send("\x13"));
    EXPECT_TRUE(client.IsClosed());
    if (i == 0) {
      EXPECT_EQ(store.log(), "W store: closed the connection from this host (pid 4711): unknown request 0x13\n");
    }
  }
  const std::string log = store.log();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 20);
}

TEST(StoreServer, Request_ThenCloseAtOnce_IsCarriedOut) {
  StoreOnLoop store;
  RawClient waiting(store.port());
  ASSERT_TRUE(waiting.Send(Wait({"/last"})));
  {
    RawClient writer(store.port());
    // The unread reply makes the kernel reset the connection.
    ASSERT_TRUE(writer.Send(NumKeys() + Set("/last", "word")));
  }
  EXPECT_EQ(waiting.Receive(1), kReleased);
}

TEST(StoreServer, Wait_ManyClients_AllReleased) {
  StoreOnLoop store;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(std::make_unique<RawClient>(store.port()));
    ASSERT_EQ(clients.back()->Ask(Wait({"/go", "/a"})), "") << "but the ping";
  }
  RawClient writer(store.port());
  EXPECT_EQ(writer.Ask(MultiSet({{"/a", ""}, {"/go", ""}})), "");
  for (auto& client : clients) EXPECT_EQ(client->Receive(1), kReleased);
}

TEST(StoreServer, Wait_ClientGone_ItsWaitToo) {
  StoreOnLoop store;
  {
    RawClient client(store.port());
    ASSERT_EQ(client.Ask(Wait({"/a"})), "");
    EXPECT_EQ(Waiting(store), 1u);
  }
  ASSERT_EQ(WaitForConnections(store, 0), 0);
  EXPECT_EQ(Waiting(store), 0u);
  RawClient writer(store.port());
  EXPECT_EQ(writer.Ask(Set("/a", "")), "");
}

// Release and cancel cross: the client reads either 00 01 or 01, and is in sync afterwards.
TEST(StoreServer, CancelWait_RacingTheRelease_InStep) {
  StoreOnLoop store;
  RawClient waiter(store.port());
  RawClient writer(store.port());
  for (int i = 0; i < 2000; ++i) {
    const std::string key = absl::StrCat("/key", i);
    ASSERT_TRUE(waiter.Send(Wait({key})));
    std::thread other([&] { writer.Send(Set(key, "")); });
    const std::string got = waiter.Ask(CancelWait());
    other.join();
    ASSERT_TRUE(got == kCanceled || got == kReleased + kCanceled) << i;
  }
}

TEST(StoreServer, Reply_SlowReader_BoundedAndCompleteInTheEnd) {
  StoreOnLoop store;
  RawClient slow(store.port());
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE(slow.Send(Set("/big", value)));
  constexpr int kGets = 100;
  for (int i = 0; i < kGets; ++i) ASSERT_TRUE(slow.Send(Get("/big")));
  // Other clients are served meanwhile.
  RawClient other(store.port());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(other.Ask(Add("/n", 1)), Number<int64_t>(i + 1));
  EXPECT_LT(store.Call([](StoreServer& server) { return server.used_bytes(); }), size_t{8} << 20);
  const std::string reply = Text(value);
  for (int i = 0; i < kGets; ++i) ASSERT_EQ(slow.Receive(reply.size()), reply) << i;
  EXPECT_EQ(slow.Ask(NumKeys()), Number<int64_t>(2));
}

TEST(StoreServer, Request_ManyInOnePiece_AllAnsweredInOrder) {
  StoreOnLoop store;
  RawClient client(store.port());
  std::string requests;
  std::string replies;
  for (int i = 1; i <= 20000; ++i) {
    requests += Add("/n", 1);
    replies += Number<int64_t>(i);
  }
  std::thread sender([&] { client.Send(requests); });
  const std::string got = client.Receive(replies.size());
  sender.join();
  EXPECT_EQ(got, replies);
}

TEST(StoreServer, Memory_ContentFull_OffenderClosedOthersServed) {
  StoreOnLoop store({.max_bytes = 16 << 20});
  RawClient good(store.port());
  RawClient bad(store.port());
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 40; ++i) bad.Send(Set(absl::StrCat("/", i), value));
  EXPECT_TRUE(bad.IsClosed());
  EXPECT_THAT(store.log(), HasSubstr("the store is full"));
  EXPECT_EQ(good.Ask(DeleteKey("/0")), Number<int64_t>(1));
  EXPECT_EQ(good.Ask(Set("/small", "1") + Get("/small")), Text("1"));
}

TEST(StoreServer, Memory_ManyUnfinishedRequests_Bounded) {
  StoreOnLoop store({.max_bytes = 16 << 20});
  const std::string unfinished = Op(Opcode::kSet) + Text("/a") + Number<uint64_t>(8 << 20) + std::string(4 << 20, 'x');
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<RawClient>(store.port()));
    clients.back()->Send(unfinished);
  }
  EXPECT_LT(store.Call([](StoreServer& server) { return server.used_bytes(); }), size_t{17} << 20);
  clients.clear();
  ASSERT_EQ(WaitForConnections(store, 0), 0);
  RawClient good(store.port());
  EXPECT_EQ(good.Ask(Set("/a", "1") + Get("/a")), Text("1"));
}

TEST(StoreServer, Memory_OneRequestForEndlessReply_Closed) {
  StoreOnLoop store({.max_bytes = 64 << 20});
  RawClient client(store.port());
  ASSERT_TRUE(client.Send(Set("/big", std::string(8 << 20, 'v'))));
  ASSERT_TRUE(client.Send(MultiGet(std::vector<std::string>(1000, "/big"))));
  EXPECT_TRUE(client.IsClosed());
}

TEST(StoreServer, Connections_MoreThanAllowed_ClosedAndOthersServed) {
  StoreOnLoop store({.max_connections = 10});
  RawClient first(store.port());
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(std::make_unique<RawClient>(store.port(), /*hello=*/false));
  EXPECT_EQ(first.Ask(Add("/n", 1)), Number<int64_t>(1));
  EXPECT_EQ(store.Call([](StoreServer& server) { return server.connections(); }), 10);
  flood.clear();
  ASSERT_EQ(WaitForConnections(store, 1), 1);
  RawClient last(store.port());
  EXPECT_EQ(last.Ask(Add("/n", 1)), Number<int64_t>(2));
}

TEST(StoreServer, Connections_NoDescriptorLeft_ClosedWithoutSpinning) {
  StoreOnLoop store;
  RawClient first(store.port());
  std::vector<UniqueFd> ballast;
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  const UniqueFd late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const rlimit limit = {std::min<rlim_t>(256, old_limit.rlim_max), old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  while (true) {
    UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    ballast.push_back(std::move(fd));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(store.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(late.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  char byte;
  EXPECT_EQ(recv(late.get(), &byte, 1, 0), 0);  // accepted and closed
  EXPECT_TRUE(RanOutOfFiles()) << "and said";
  ballast.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);
  EXPECT_EQ(first.Ask(Add("/n", 1)), Number<int64_t>(1));
  const int64_t before = store.Wakeups();
  for (int i = 0; i < 100; ++i) store.Call([](StoreServer& server) { return server.port(); });
  EXPECT_LE(store.Wakeups() - before, 2 * 102);  // caused by Call itself
  RawClient next(store.port());
  EXPECT_TRUE(next.connected());
}

TEST(StoreServer, Destruction_ClosesPortAndConnections) {
  auto store = std::make_unique<StoreOnLoop>();
  const int port = store->port();
  RawClient client(port);
  ASSERT_EQ(client.Ask(Wait({"/a"})), "");
  store.reset();
  EXPECT_TRUE(client.IsClosed());
  EXPECT_FALSE(RawClient(port, /*hello=*/false).connected());
  // The port can be bound again at once, although the server closed first.
  StoreOptions options;
  options.first_port = options.last_port = port;
  StoreOnLoop again(options);
  EXPECT_EQ(again.port(), port);
  EXPECT_EQ(RawClient(port).Ask(NumKeys()), Number<int64_t>(0));
}

TEST(StoreServer, Descriptors_AreClosedOnExec) {
  StoreOnLoop store;
  RawClient client(store.port());
  ASSERT_TRUE(client.connected());
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    int accepts = 0;
    socklen_t size = sizeof accepts;
    const bool is_socket = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0;
    if (flags < 0 || !is_socket) continue;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << "descriptor " << fd;
  }
}

TEST(StoreServer, PollFd_NothingToDo_NotReadable) {
  auto store = StoreServer::Open({.address = "127.0.0.1"});
  ASSERT_TRUE(store.ok()) << store.status();
  pollfd ready = {(*store)->PollFd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  RawClient idle((*store)->port(), /*hello=*/false);
  EXPECT_EQ(poll(&ready, 1, 60000), 1);
  (*store)->ProcessReady();
  EXPECT_EQ((*store)->connections(), 1);
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  RawClient waiting((*store)->port(), /*hello=*/false);
  ASSERT_TRUE(waiting.Send(Validate() + Wait({"/never"})));
  while ((*store)->Waiting().empty()) {
    ASSERT_EQ(poll(&ready, 1, 60000), 1);
    (*store)->ProcessReady();
  }
  (*store)->ProcessReady();
  EXPECT_EQ(poll(&ready, 1, 300), 0) << "clients that wait or are idle cause no wake-up";
}

TEST(StoreServer, Waiting_NamesClientsAndKeys) {
  StoreOnLoop store;
  store.Call([](StoreServer& server) {
    server.BeginRound(1, 2);
    return server.RegisterLocal({1, 0, "here", {4711, 4712}}).ok();
  });
  RawClient rank0(store.port(), true, 4711);
  ASSERT_EQ(rank0.Ask(Set("/default_pg/0//cpu//0/0", "x") + Wait({"/default_pg/0//cpu//0/1"})), "");
  store.Call([](StoreServer& server) {
    const auto waiting = server.Waiting();
    EXPECT_EQ(waiting.size(), 1u);
    EXPECT_EQ(waiting.at(0).rank, 0);
    EXPECT_EQ(waiting.at(0).pid, 4711u);
    EXPECT_EQ(waiting.at(0).key, "/default_pg/0//cpu//0/1");
    EXPECT_EQ(waiting.at(0).on_rank, 1);
    EXPECT_THAT(server.Missing(), ElementsAre(MissingRank{1, 1, "here", 4712}));
    return true;
  });
}

TEST(StoreServer, Missing_LocalWrapper_FoundByItsParents_AlsoIfTheyNeverEnd) {
  StoreOptions options;
  options.parent_of = [](pid_t pid) -> pid_t {
    return pid == 30 ? 20 : pid == 20 ? 10 : pid == 10 ? 5 : pid == 2 ? 3 : pid == 3 ? 2 : 0;
  };
  StoreOnLoop store(options);
  RawClient wrapped(store.port(), true, 30);  // before the round is known
  const auto missing = store.Call([](StoreServer& server) {
    server.BeginRound(1, 2);
    EXPECT_TRUE(server.RegisterLocal({1, 0, "here", {10, 11}}).ok());
    return server.Missing();
  });
  EXPECT_THAT(missing, ElementsAre(MissingRank{1, 1, "here", 11}));
  EXPECT_TRUE(RawClient(store.port(), true, 2).connected());
}

TEST(StoreServer, Open_BadInput_IsAnError) {
  EXPECT_EQ(StoreServer::Open({.address = "some.host.name"}).status().message(),
            "'some.host.name' is not a numeric IP address");
  EXPECT_EQ(StoreServer::Open({.address = "127.0.0.1", .first_port = 9, .last_port = 8}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(StoreServer::Open({.address = "203.0.113.7"}).ok());  // not an address of this host
}

TEST(StoreServer, Open_PortRange_TakesTheFirstFreeOne) {
  auto first = StoreServer::Open({});  // all addresses, also those of IPv4
  ASSERT_TRUE(first.ok()) << first.status();
  const int taken = (*first)->port();
  EXPECT_TRUE(RawClient(taken, /*hello=*/false).connected());
  for (const char* address : {"127.0.0.1", ""}) {
    const auto busy = StoreServer::Open({.address = address, .first_port = taken, .last_port = taken});
    EXPECT_THAT(busy.status().message(), HasSubstr(absl::StrCat("port ", taken, ": Address already in use")));
  }
  const int last = std::min(taken + 50, 65535);
  auto second = StoreServer::Open({.address = "127.0.0.1", .first_port = taken, .last_port = last});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT((*second)->port(), taken);
}

}  // namespace
}  // namespace ddprun::launcher
