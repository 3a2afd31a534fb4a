// Limits on the TCP connections of a server.

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
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/raw_connection.h"
#include "tests/security/running_job.h"
#include "tests/testing/process.h"

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

TEST(ConnectionsTest, ManyWithoutASession_TheOldestAreClosedLaunchersStay) {
  TestServer server({.connections = {.waiting = 20}});
  Job before(server.port(), "before");
  const Connections idle = Connect(server.port(), 100);
  for (int i = 0; i < 80; ++i) EXPECT_TRUE(idle[i]->AwaitClosed());
  EXPECT_TRUE(idle.back()->Greet());
  Job after(server.port(), "after");
  before.End();
  after.End();
}

TEST(ConnectionsTest, TooFast_TheAddressIsRefusedOthersAreServed) {
  TestServer server({.connections = {.interval = absl::Hours(1), .burst = 10}});
  Job job(server.port(), "job");
  for (int i = 1; i < 10; ++i) EXPECT_TRUE(RawConnection(server.port()).Greet());
  EXPECT_FALSE(RawConnection(server.port()).Greet());
  EXPECT_TRUE(RawConnection(server.port(), "127.0.0.2").Greet());
  job.End();
}

TEST(ConnectionsTest, SaysNothing_IsClosed) {
  TestServer server({.connections = {.first_bytes = absl::Milliseconds(20)}});
  RawConnection silent(server.port());
  RawConnection half(server.port());
  half.Send(RawConnection::Greeting().substr(0, 20));
  EXPECT_TRUE(silent.AwaitClosed());
  EXPECT_TRUE(half.AwaitClosed());
}

TEST(ConnectionsTest, SaysSomethingElse_IsClosed) {
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

TEST(ConnectionsTest, GreetingInPieces_IsServed) {
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

TEST_F(DaemonTest, StrangersFillItsDescriptors_LaunchersGetIn) {
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

TEST_F(DaemonTest, NoDescriptorForAWhile_AcceptsAgain) {
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

TEST_F(DaemonTest, TenThousandIdleStreams_LaunchersGetInAndMemoryIsBounded) {
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

}  // namespace
}  // namespace ddprun::rendezvous
