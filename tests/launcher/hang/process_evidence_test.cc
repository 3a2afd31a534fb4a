// Real processes, files and connections.
#include "launcher/hang/process_evidence.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "launcher/io/file_descriptor.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Process;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A child that runs `what`, which never returns.
class Child {
 public:
  template <typename What>
  explicit Child(const What& what) : pid_(fork()) {
    if (pid_ == 0) {
      what();
      while (true) pause();
    }
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

  // Waits until its main thread is in this system call.
  Process In(const std::string& call, const std::vector<TcpConnection>& connections = {}) const {
    Process process;
    const pid_t pid = pid_;
    EXPECT_TRUE(testing::Eventually([&] {
      process = ReadProcess(pid, connections).value_or(Process());
      return process.call() == call && process.state() == "S";
    })) << process.DebugString();
    return process;
  }

 private:
  const pid_t pid_;
};

// Both ends of a connection over loopback.
struct Connection {
  Connection() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    client.reset(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    server.reset(accept(listener.get(), nullptr, nullptr));
    port = ntohs(address.sin_port);
  }

  // The kernel's view of the client's end.
  TcpConnection Client() const {
    const std::string peer = absl::StrCat("127.0.0.1:", port);
    for (const TcpConnection& connection : ConnectionsOf({getpid()}, ReadTcpConnections())) {
      if (connection.evidence.peer() == peer) return connection;
    }
    ADD_FAILURE() << peer;
    return {};
  }

  UniqueFd client, server;
  int port = 0;
};

TEST(ReadProcessTest, Process_Pauses_HasStateAndCall) {
  const Child child([] {});
  const Process process = child.In("pause");
  EXPECT_EQ(process.pid(), child.pid());
  EXPECT_FALSE(process.traced());
  EXPECT_THAT(process.command(), HasSubstr("process_evidence_test"));
  EXPECT_EQ(process.target(), "");
}

TEST(ReadProcessTest, Process_OpensFifoWithoutWriter_HasItsPath) {
  const testing::TempDir folder;
  const std::string path = folder.File("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const Child child([&path] { (void)!open(path.c_str(), O_RDONLY); });
  EXPECT_EQ(child.In("openat").target(), path);
}

TEST(ReadProcessTest, Process_ReadsFifo_HasItsPath) {
  const testing::TempDir folder;
  const std::string path = folder.File("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const UniqueFd fifo(open(path.c_str(), O_RDWR));
  const Child child([&fifo] {
    char byte;
    (void)!read(fifo.get(), &byte, 1);
  });
  EXPECT_EQ(child.In("read").target(), path);
}

TEST(ReadProcessTest, Process_WaitsForALock_HasTheFile) {
  const testing::TempDir folder;
  const std::string path = folder.File("lock");
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(flock(file.get(), LOCK_EX), 0);
  const Child child([&path] { flock(open(path.c_str(), O_RDWR), LOCK_EX); });
  EXPECT_EQ(child.In("flock").target(), path);
}

TEST(ReadProcessTest, Process_ReadsOrPollsAConnection_HasThePeer) {
  const Connection connection;
  const std::string peer = absl::StrCat("the connection to 127.0.0.1:", connection.port);
  const std::vector<TcpConnection> table = ReadTcpConnections();
  const Child reading([&] {
    char byte;
    (void)!recv(connection.client.get(), &byte, 1, 0);
  });
  EXPECT_EQ(reading.In("recvfrom", table).target(), peer);
  const Child polling([&] {
    pollfd polled[] = {{-1, 0, 0}, {connection.client.get(), POLLIN, 0}};
    poll(polled, 2, -1);
  });
  EXPECT_EQ(polling.In("poll", table).target(), peer);
  EXPECT_THAT(polling.In("poll").target(), HasSubstr("socket:[")) << "not in the table";
}

TEST(ReadProcessTest, Process_Stopped_IsNotTraced) {
  const Child child([] {});
  kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  const Process process = *ReadProcess(child.pid(), {});
  EXPECT_EQ(process.state(), "T");
  EXPECT_FALSE(process.traced());
}

TEST(ReadProcessTest, Process_Traced_IsMarked) {
  const Child child([] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
  });
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, 0), child.pid());
  const Process process = *ReadProcess(child.pid(), {});
  EXPECT_EQ(process.state(), "t");
  EXPECT_TRUE(process.traced());
}

TEST(ReadProcessTest, Process_EndedOrGone_IsKnownAsSuch) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ReadProcess(pid, {})->state(), "Z");
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(ReadProcess(pid, {}).has_value());
}

TEST(ReadTcpConnectionsTest, Data_PeerDoesNotRead_IsUnacknowledged) {
  const Connection connection;
  EXPECT_EQ(connection.Client().evidence.unacknowledged(), 0);
  EXPECT_THAT(connection.Client().evidence.own(), ::testing::StartsWith("127.0.0.1:"));
  const std::string data(1 << 20, 'x');
  while (send(connection.client.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  const TcpConnection full = connection.Client();
  EXPECT_GT(full.evidence.unacknowledged(), 0);
  EXPECT_GT(full.bytes, 1000);
}

TEST(ReadTcpConnectionsTest, Connection_OverIpv6_HasBrackets) {
  const UniqueFd listener(socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof address;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) GTEST_SKIP() << "no IPv6";
  ASSERT_EQ(listen(listener.get(), 1), 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const UniqueFd client(socket(AF_INET6, SOCK_STREAM, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  std::vector<std::string> peers;
  for (const TcpConnection& connection : ConnectionsOf({getpid()}, ReadTcpConnections())) {
    peers.push_back(connection.evidence.peer());
  }
  EXPECT_THAT(peers, ::testing::Contains(absl::StrCat("[::1]:", ntohs(address.sin6_port))));
}

TEST(SampleActivityTest, Child_WritesAndComputes_IsSeen) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Connection connection;
  const ActivitySample before = SampleActivity(getpid(), ReadTcpConnections());
  constexpr int kBytes = 8 << 20;
  const Child child([&] {
    const std::string data(kBytes, 'x');
    const int null = open("/dev/null", O_WRONLY);
    while (CLOCKS_PER_SEC / 20 > clock()) (void)!write(null, data.data(), data.size());
    (void)!write(connection.client.get(), data.data(), 50'000);
    (void)!write(ends[1], "", 1);
  });
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  const ActivitySample after = SampleActivity(getpid(), ReadTcpConnections());
  hang::v1::Rank rank;
  SetActivity(before, after, &rank);
  const double seconds = absl::ToDoubleSeconds(after.at - before.at);
  EXPECT_GE(rank.cpu() * seconds, 0.04);
  EXPECT_GE(rank.io() * seconds, kBytes);
  EXPECT_GE(rank.net() * seconds, 50'000);
  close(ends[0]);
  close(ends[1]);
}

TEST(SetActivityTest, ProcessOrConnectionEnded_IsNotNegative) {
  ActivitySample before, after;
  before.at = SteadyNow();
  after.at = before.at + absl::Seconds(2);
  before.processes[1] = {absl::Seconds(5), absl::Seconds(5), 500};
  before.processes[2] = {absl::Seconds(5), absl::Seconds(5), 500};
  before.sockets[7] = 1000;
  after.processes[1] = {absl::Seconds(6), absl::Seconds(5), 400};
  after.processes[3] = {absl::ZeroDuration(), absl::Seconds(1), 100};
  after.sockets[8] = 10;
  hang::v1::Rank rank;
  SetActivity(before, after, &rank);
  EXPECT_DOUBLE_EQ(rank.cpu(), 0.5);
  EXPECT_DOUBLE_EQ(rank.waited(), 0.5);
  EXPECT_DOUBLE_EQ(rank.io(), 50);
  EXPECT_DOUBLE_EQ(rank.net(), 5);
  hang::v1::Rank none;
  SetActivity(after, after, &none);
  EXPECT_EQ(none.ByteSizeLong(), 0);
}

class RankEvidenceTest : public ::testing::Test {
 protected:
  hang::v1::Rank Collect(pid_t pid) {
    hang::v1::Rank found;
    const RankEvidence evidence(loop_.get(), 3, pid, {}, std::nullopt, [&](hang::v1::Rank rank) {
      found = std::move(rank);
      loop_->Quit();
    });
    loop_->Run();
    return found;
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
};

TEST_F(RankEvidenceTest, Worker_WithoutProbe_IsSeenFromOutside) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const Child child([&ready] {
    if (fork() == 0) {
      while (true) pause();
    }
    (void)!write(ready[1], "", 1);
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  child.In("pause");
  const hang::v1::Rank rank = Collect(child.pid());
  EXPECT_EQ(rank.rank(), 3);
  EXPECT_EQ(rank.process().pid(), child.pid());
  EXPECT_EQ(rank.process().call(), "pause");
  ASSERT_EQ(rank.children_size(), 1);
  kill(static_cast<pid_t>(rank.children(0).pid()), SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RankEvidenceTest, Worker_StoppedOrGone_IsNotWaitedFor) {
  pid_t pid;
  {
    const Child child([] {});
    pid = child.pid();
    kill(pid, SIGSTOP);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_EQ(Collect(pid).process().state(), "T");
  }
  const hang::v1::Rank gone = Collect(pid);
  EXPECT_FALSE(gone.has_process());
  EXPECT_EQ(gone.connections_size(), 0);
}

}  // namespace
}  // namespace ddprun::launcher
