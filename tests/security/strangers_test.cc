// Limits of clients that a server without credentials does not know: their TCP connections, their streams, and their
// messages about other nodes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/raw_connection.h"
#include "tests/security/running_job.h"
#include "tests/testing/process.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using testing::Eventually;
using testing::Process;

using Connections = std::vector<std::unique_ptr<RawConnection>>;

Connections Connect(int port, int count) {
  Connections connections;
  for (int i = 0; i < count; ++i) connections.push_back(std::make_unique<RawConnection>(port));
  return connections;
}

class Job : public RunningJob {
 public:
  Job(int port, const std::string& name) : RunningJob(TestServer::GrpcTo(port), name) {}
};

TEST(ConnectionsTest, Limit_ManyWithoutSession_OldestAreClosed) {
  TestServer server({.connections = {.waiting = 20}});
  Job before(server.port(), "before");
  const Connections idle = Connect(server.port(), 100);
  for (int i = 0; i < 80; ++i) EXPECT_TRUE(idle[i]->AwaitClosed());
  EXPECT_TRUE(idle.back()->Greet());
  Job after(server.port(), "after");
  before.End();
  after.End();
}

TEST(ConnectionsTest, Limit_AddressTooFast_OthersAreServed) {
  TestServer server({.connections = {.interval = absl::Hours(1), .burst = 10}});
  Job job(server.port(), "job");
  for (int i = 1; i < 10; ++i) EXPECT_TRUE(RawConnection(server.port()).Greet());
  EXPECT_FALSE(RawConnection(server.port()).Greet());
  EXPECT_TRUE(RawConnection(server.port(), "127.0.0.2").Greet());
  job.End();
}

TEST(ConnectionsTest, Connection_Silent_IsClosed) {
  TestServer server({.connections = {.first_bytes = absl::Milliseconds(20)}});
  RawConnection silent(server.port());
  RawConnection half(server.port());
  half.Send(RawConnection::Greeting().substr(0, 20));
  EXPECT_TRUE(silent.AwaitClosed());
  EXPECT_TRUE(half.AwaitClosed());
}

TEST(ConnectionsTest, Connection_OtherProtocol_IsClosed) {
  TestServer server({.connections = {.first_bytes = absl::Hours(1)}});
  RawConnection http1(server.port());
  http1.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(http1.AwaitClosed());
  std::string no_settings = RawConnection::Greeting();
  no_settings[27] = 0;
  RawConnection http2(server.port());
  http2.Send(no_settings);
  EXPECT_TRUE(http2.AwaitClosed());
}

TEST(ConnectionsTest, Connection_GreetingInPieces_IsServed) {
  TestServer server;
  RawConnection slow(server.port());
  for (const char byte : RawConnection::Greeting()) {
    slow.Send(std::string(1, byte));
    ASSERT_TRUE(RawConnection(server.port()).Greet()) << "the server has seen the byte before";
  }
  EXPECT_TRUE(slow.IsAnswered());
}

// A real rendezvousd.
class DaemonTest : public ::testing::Test {
 protected:
  void Start(const std::string& before) {
    server_ = std::make_unique<Process>(std::vector<std::string>{
        "/bin/sh", "-c", absl::StrCat(before, "exec rendezvous/daemon/rendezvousd --listen=127.0.0.1:0")});
    ASSERT_TRUE(server_->WaitForOut("\n")) << server_->Err();
    const std::string line = server_->Out();
    ASSERT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port_)) << line;
  }
  void ExpectOneLine(const std::string& what) {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    const std::string log = server_->Err();
    const size_t at = log.find(what);
    EXPECT_NE(at, std::string::npos) << log;
    EXPECT_EQ(log.find(what, at + 1), std::string::npos) << log;
  }
  // Changes the limit of the running server; returns the previous one.
  rlim_t LimitDescriptors(rlim_t limit) {
    rlimit limits = {};
    EXPECT_EQ(prlimit(server_->pid(), RLIMIT_NOFILE, nullptr, &limits), 0);
    const rlim_t before = std::exchange(limits.rlim_cur, limit);
    EXPECT_EQ(prlimit(server_->pid(), RLIMIT_NOFILE, &limits, nullptr), 0);
    return before;
  }

  std::unique_ptr<Process> server_;
  int port_ = 0;
};

TEST_F(DaemonTest, Descriptors_FilledByStrangers_LaunchersAreServed) {
  Start("ulimit -n 100; ");
  {
    Job before(port_, "before");
    const Connections idle = Connect(port_, 300);
    Job during(port_, "during");
    before.End();
    during.End();
  }
  Job(port_, "after").End();
  ExpectOneLine("out of file descriptors (limit 100)");
}

TEST_F(DaemonTest, Descriptors_ExhaustedForAWhile_AcceptsAgain) {
  Start("");
  Job before(port_, "before");
  const rlim_t limit = LimitDescriptors(3);
  RawConnection waits(port_);
  ASSERT_TRUE(server_->WaitForErr("out of file descriptors"));
  LimitDescriptors(limit);
  EXPECT_TRUE(waits.Greet());
  before.End();
  Job(port_, "after").End();
  ExpectOneLine("out of file descriptors");
}

int64_t ResidentBytes(pid_t pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_F(DaemonTest, Streams_TenThousandIdle_LaunchersAreServedInBoundedMemory) {
  RaiseFileLimit();
  Start("");
  Job before(port_, "before");
  const int64_t bytes = ResidentBytes(server_->pid());
  Connections idle;
  for (int i = 0; i < 600; ++i) {
    idle.push_back(std::make_unique<RawConnection>(port_, absl::StrCat("127.0.1.", i / 200)));
    ASSERT_TRUE(idle.back()->Greet());
    idle.back()->OpenStreams(16);
  }
  for (int i = 0; i < 20; ++i) {
    RawConnection greedy(port_, "127.0.0.3");
    greedy.Send(RawConnection::Greeting());
    greedy.OpenStreams(100);
    EXPECT_TRUE(greedy.AwaitClosed());
  }
  Job during(port_, "during");
  const int64_t grown = ResidentBytes(server_->pid()) - bytes;
  printf("memory grown by %.1f MB\n", grown / 1e6);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(grown, 120 << 20);
#endif
  before.End();
  during.End();
}

// A launcher with a running round, which strangers attack.
class StrangerTest : public ::testing::Test {
 protected:
  // The launcher's Join, as a stranger that knows the node's id would forge it.
  Join Forged() {
    Join join = launcher_.join();
    join.set_session_secret(std::string(32, 'x'));
    join.set_incarnation(uint64_t{1} << 60);
    join.set_address("203.0.113.66");
    return join;
  }

  TestServer server_;
  RunningJob launcher_{server_.Grpc()};
  const uint64_t round_ = launcher_.join().current().round();
};

TEST_F(StrangerTest, Join_WithNodesId_IsRejectedAndLauncherStays) {
  for (const Join::Phase phase : {Join::PHASE_RUNNING, Join::PHASE_IDLE, Join::PHASE_STOPPING}) {
    Join join = Forged();
    join.set_phase(phase);
    RawClient stranger(server_.port());
    ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(join))));
    EXPECT_TRUE(stranger.Read()->has_rejected());
    // Later messages of the stranger do not affect the round.
    (void)stranger.Write(
        ToProto(LauncherMessage(NewWorkerFailed(round_, TextProto("exit_code: 78 restartable: false", NewFailure())))));
    EXPECT_TRUE(absl::IsFailedPrecondition(stranger.Finish()));
  }
  launcher_.End();
}

TEST_F(StrangerTest, WorkerFailed_NewcomerNonRestartable_JobContinues) {
  Join join = Forged();
  join.set_node_id("a stranger");
  join.set_incarnation(1);
  RawClient stranger(server_.port());
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(join))));
  EXPECT_TRUE(stranger.Read()->has_welcome());
  const WorkerFailure failure = TextProto("exit_code: 78 restartable: false", NewFailure());
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(NewWorkerFailed(round_, failure)))));
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(Heartbeat{}))));
  v1::ServerMessage message;
  while (!message.has_heartbeat_ack()) message = stranger.Read().value();
  launcher_.End();
}

TEST(StreamsTest, Stream_WithoutMessage_IsEnded) {
  TestServer server({.limits = {.first_message = absl::Milliseconds(20)}});
  RawClient stranger(server.port());
  EXPECT_TRUE(absl::IsDeadlineExceeded(stranger.Finish()));
  // An unknown message is none.
  RawClient newer(server.port());
  newer.WriteBytes("\xFA\x01\x02hi");
  EXPECT_TRUE(absl::IsDeadlineExceeded(newer.Finish()));
  // A launcher on a busy machine may need longer than this limit, too: any other call shows that the server lives.
  EXPECT_TRUE(RawClient(server.port()).Health("").ok());
}

TEST(StreamsTest, Streams_ManyIdle_OldestEndAndLaunchersAreServed) {
  TestServer server({.limits = {.waiting = 50, .first_message = absl::Hours(1)}});
  RawClient oldest(server.port());
  ASSERT_TRUE(oldest.WriteBytes("\xFA\x01\x02hi"));  // opens its stream
  ASSERT_TRUE(oldest.Health("").ok());               // which the server has seen
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 10; ++i) {
    idle.push_back(std::make_unique<RawConnection>(server.port()));
    ASSERT_TRUE(idle.back()->Greet());
    idle.back()->OpenStreams(15);
  }
  EXPECT_FALSE(oldest.Finish().ok());
  RunningJob(server.Grpc());
}

}  // namespace
}  // namespace ddprun::rendezvous
