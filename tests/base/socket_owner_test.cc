#include "base/socket_owner.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "launcher/io/file_descriptor.h"
#include "launcher/store/connection.h"

namespace ddprun {
namespace {

constexpr uid_t kAnotherUser = 65534;

// A connection over loopback, with both ends' addresses as the accepting side sees them.
struct Connected {
  launcher::UniqueFd client;
  launcher::UniqueFd accepted;
  SocketAddress peer;
  SocketAddress own;
};

// `listen_at` and `connect_to` are numeric. Nothing is connected if the host lacks IPv6.
Connected Connect(const std::string& listen_at, const std::string& connect_to) {
  Connected result;
  const auto listener = launcher::Listen(listen_at, 0, 0);
  if (!listener.ok()) return result;
  const SocketAddress to = *NumericAddress(connect_to, listener->port);
  result.client.reset(socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(result.client.get(), to.get(), to.size), 0) << connect_to;
  result.accepted.reset(accept(listener->fd.get(), result.peer.get(), &result.peer.size));
  EXPECT_EQ(getsockname(result.accepted.get(), result.own.get(), &result.own.size), 0);
  return result;
}

// Both query methods must give the same answer.
void ExpectUser(const Connected& of, uid_t user) {
  SocketOwner owner;
  for (const auto& found : {owner.UserOf(of.peer, of.own), SocketOwner::UserByProc(of.peer, of.own)}) {
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, user);
  }
}

void ExpectCode(const SocketAddress& peer, const SocketAddress& own, absl::StatusCode code) {
  SocketOwner owner;
  EXPECT_EQ(owner.UserOf(peer, own).status().code(), code);
  EXPECT_EQ(SocketOwner::UserByProc(peer, own).status().code(), code);
}

TEST(SocketOwner, OwnProcess_OfAllFamilies) {
  for (const auto& [listen_at, connect_to] : {std::pair("127.0.0.1", "127.0.0.1"), std::pair("::1", "::1"),
                                              std::pair("::", "127.0.0.1"), std::pair("::", "::ffff:127.0.0.1")}) {
    const Connected connected = Connect(listen_at, connect_to);
    if (connected.accepted.valid()) ExpectUser(connected, geteuid());
  }
}

// The kernel reports a closed socket as root's: a client could connect, send and close to be taken for root.
TEST(SocketOwner, SocketOwner_ClosedByItsProcess_IsUnknown) {
  Connected connected = Connect("127.0.0.1", "127.0.0.1");
  connected.client.reset();
  ExpectCode(connected.peer, connected.own, absl::StatusCode::kFailedPrecondition);
  connected.accepted.reset();
  ExpectCode(connected.peer, connected.own, absl::StatusCode::kFailedPrecondition);
}

TEST(SocketOwner, AnotherHost_NotFound) {
  const Connected connected = Connect("127.0.0.1", "127.0.0.1");
  ExpectCode(*NumericAddress("203.0.113.7", 4711), connected.own, absl::StatusCode::kNotFound);
  ExpectCode(*NumericAddress("2001:db8::7", 4711), *NumericAddress("2001:db8::1", PortOf(connected.own)),
             absl::StatusCode::kNotFound);
}

// If there is no such connection, the kernel finds the listener at the peer's port, which is not the peer.
TEST(SocketOwner, ListenerAtThePeersPort_IsNotThePeer) {
  const auto listener = launcher::Listen("127.0.0.1", 0, 0);
  ASSERT_TRUE(listener.ok());
  ExpectCode(*NumericAddress("127.0.0.1", listener->port), *NumericAddress("127.0.0.1", 9),
             absl::StatusCode::kFailedPrecondition);
}

TEST(SocketOwner, ProcessOfAnotherUser_IsThatUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto listener = launcher::Listen("127.0.0.1", 0, 0);
  ASSERT_TRUE(listener.ok());
  const SocketAddress to = *NumericAddress("127.0.0.1", listener->port);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(kAnotherUser) != 0 || setuid(kAnotherUser) != 0) _exit(1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, to.get(), to.size) != 0) _exit(1);
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  Connected connected;
  // The listener is non-blocking.
  while (!connected.accepted.valid()) {
    connected.peer.size = sizeof connected.peer.storage;
    connected.accepted.reset(accept(listener->fd.get(), connected.peer.get(), &connected.peer.size));
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) GTEST_FAIL() << "the child could not connect";
  }
  ASSERT_EQ(getsockname(connected.accepted.get(), connected.own.get(), &connected.own.size), 0);
  ExpectUser(connected, kAnotherUser);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace ddprun
