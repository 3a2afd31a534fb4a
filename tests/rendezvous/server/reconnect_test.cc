// The gRPC client when connections break, servers restart, or another program answers.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/tcp_proxy.h"

namespace ddprun::rendezvous {
namespace {

TEST(ReconnectTest, ConnectionCut_RejoinsWithinGrace_KeepsItsRound) {
  TestServer server;
  TcpProxy proxy(server.port());
  TestLauncher a(server.Local(), "job", "node1", PatientSettings(2));
  TestLauncher b(TestServer::GrpcTo(proxy.port()), "job", "node2", PatientSettings(2));
  const uint64_t round = BeginRound({&a, &b}).round();
  for (int i = 0; i < 3; ++i) {
    proxy.Cut();
    const Disconnected gone = b.Await<Disconnected>();
    EXPECT_FALSE(gone.permanent);
    EXPECT_EQ(gone.reason.rfind(absl::StrCat("127.0.0.1:", proxy.port(), ": "), 0), 0u) << gone.reason;
    b.ConnectAndJoin();
    while (true) {  // until the server has accepted the Join
      const std::optional<ClientEvent> event = b.log().Next();
      ASSERT_TRUE(event.has_value());
      const auto* message = std::get_if<ServerMessage>(&*event);
      ASSERT_NE(message, nullptr) << Describe(*event);
      if (std::holds_alternative<Welcome>(*message)) break;
    }
  }
  ExpectSuccess({&a, &b});
  EXPECT_EQ(b.join().current().round(), round);
  EXPECT_EQ(proxy.accepted(), 4);  // one new connection per cut
}

// A launcher that has not yet noticed the loss of its stream sends messages on the next stream before its Join.
TEST(ReconnectTest, Send_MeantForTheStreamBefore_DoesNotSpoilTheNextOne) {
  TestServer server;
  for (const bool local : {false, true}) {
    TestLauncher a(local ? server.Local() : server.Grpc(), local ? "local" : "remote", "node1", PatientSettings(1));
    a.Await<Connected>();
    a.client().Send(Heartbeat{});
    a.client().Send(NewReady(7, 1234));
    a.SendJoin();
    a.SendJoin();
    a.AwaitRound();
    ExpectSuccess({&a});
  }
}

TEST(ReconnectTest, Reset_SilentConnection_ConnectsAnew) {
  TestServer server;
  TcpProxy proxy(server.port());
  TestLauncher a(TestServer::GrpcTo(proxy.port()), "job", "node1", PatientSettings(1));
  BeginRound({&a});
  proxy.Silence();
  a.client().Send(Heartbeat{});  // will not be answered
  a.client().Reset();
  const Disconnected gone = a.Await<Disconnected>();
  EXPECT_FALSE(gone.permanent);
  EXPECT_THAT(gone.reason, HasSubstr("not responding"));
  a.ConnectAndJoin();
  ExpectSuccess({&a});
}

// To the server, the end of a stream is the launcher's end. Without a reconnect grace, it would be excluded at once.
TEST(ReconnectTest, Reset_OldStreamIsNotEndedBeforeTheServerHasTheNextJoin) {
  TestServer server;
  JobSettings settings = PatientSettings(2);
  *settings.mutable_reconnect_grace() = FromDuration(absl::ZeroDuration());
  TestLauncher a(server.Grpc(), "job", "node1", settings), b(server.Grpc(), "job", "node2", settings);
  const uint64_t round = BeginRound({&a, &b}).round();
  for (int i = 0; i < 3; ++i) {
    a.client().Reset();
    EXPECT_FALSE(a.Await<Disconnected>().refused.has_value());
    a.ConnectAndJoin();
    ASSERT_TRUE(std::holds_alternative<Welcome>(std::get<ServerMessage>(*a.log().Next())));
  }
  ExpectSuccess({&a, &b});
  EXPECT_EQ(b.join().current().round(), round);
}

// A launcher that hosts the server stays after the job's end until a node that was cut off has reconnected.
TEST(ReconnectTest, CutOffWhileTheJobEnds_IsWaitedForAndHearsTheVerdict) {
  TestServer server;
  TcpProxy proxy(server.port());
  TestLauncher host(server.Local(), "job", "node1", PatientSettings(2));
  TestLauncher b(TestServer::GrpcTo(proxy.port()), "job", "node2", PatientSettings(2));
  host.join().mutable_origin()->set_in_process(true);
  BeginRound({&host, &b});
  proxy.Cut();
  b.Await<Disconnected>();
  const auto connected = [&] {
    const std::optional<v1::Job> job = server.driver().GetJob("job");
    for (const v1::Node& node : job->nodes()) {
      if (node.host() == "node2") return node.connected();
    }
    return false;
  };
  const SteadyTime hang = SteadyNow() + kHang;
  while (connected() && SteadyNow() < hang) std::this_thread::yield();
  b.Succeed();  // is dropped
  WorkerFailure failure = NewFailure();
  failure.set_restartable(false);
  failure.set_exit_code(7);
  host.client().Send(NewWorkerFailed(host.join().current().round(), failure));
  EXPECT_EQ(host.Await<Finish>().verdict().exit_code(), 7);
  EXPECT_FALSE(server.driver().WaitUntilLaunchersLeft(SteadyNow()));
  b.ConnectAndJoin();
  EXPECT_EQ(b.Await<Finish>().verdict().exit_code(), 7);
  b.Disappear();
  EXPECT_TRUE(server.driver().WaitUntilLaunchersLeft(SteadyNow() + kHang));
}

TEST(ReconnectTest, ServerGone_RefusalsSayWhenTheyWereAskedFor) {
  auto server = std::make_unique<TestServer>();
  TestLauncher a(server->Grpc(), "job", "node1", PatientSettings(2));
  a.ConnectAndJoin();
  ASSERT_TRUE(std::holds_alternative<Welcome>(std::get<ServerMessage>(*a.log().Next())));
  const SteadyTime before = SteadyNow();
  server = nullptr;
  EXPECT_FALSE(a.Await<Disconnected>().refused.has_value()) << "the stream's end";
  for (int refusals = 0; refusals < 3;) {
    const Disconnected gone = a.Await<Disconnected>();
    if (!gone.refused.has_value() && refusals == 0) continue;  // the server was still shutting down
    ++refusals;
    ASSERT_TRUE(gone.refused.has_value()) << gone.reason;
    EXPECT_GE(*gone.refused, before);
    EXPECT_LE(*gone.refused, SteadyNow());
  }
}

TEST(ReconnectTest, ServerRestarted_Rejoined_RoundContinues) {
  TestServer server;
  TestLauncher a(server.Grpc(), "job", "node1", PatientSettings(2));
  TestLauncher b(server.Grpc(), "job", "node2", PatientSettings(2));
  const uint64_t round = BeginRound({&a, &b}).round();
  server.Restart();  // loses all state
  for (TestLauncher* launcher : {&a, &b}) {
    EXPECT_NE(launcher->Await<Disconnected>().reason.find("shutting down"), std::string::npos);
    launcher->log().AwaitReconnected();
    launcher->SendJoin();
  }
  a.FailWorker(1);
  a.GetReady();
  b.GetReady();
  EXPECT_GT(a.AwaitRound().round(), round);
  EXPECT_GT(b.AwaitRound().round(), round);
}

TEST(ReconnectTest, Connect_NoListener_ReportsReasonAndRetries) {
  int port = 0;
  const int listener = ListenAnywhere(&port);
  close(listener);
  ClientLog log;
  const auto client = NewGrpcClient({"127.0.0.1", port}, log.Handler());
  for (int i = 0; i < 4; ++i) {
    const Disconnected gone = log.Await<Disconnected>();
    EXPECT_EQ(gone.reason, absl::StrCat("tried 127.0.0.1:", port, ": connection refused"));
    EXPECT_FALSE(gone.permanent);
    EXPECT_FALSE(gone.refused.has_value()) << "there has been no server";
  }
}

TEST(ReconnectTest, NameWithSeveralAddresses_AllAreTried) {
  TestServer server;  // listens on 127.0.0.1 only; localhost may resolve to ::1 first
  TestLauncher a(
      [&](Client::Handler handler) {
        return NewGrpcClient({"localhost", server.port()}, std::move(handler));
      },
      "job", "node1", PatientSettings(1));
  BeginRound({&a});
}

// A program that answers every connection with `answer` and closes it.
class OtherProgram {
 public:
  explicit OtherProgram(std::string answer) : answer_(std::move(answer)), listener_(ListenAnywhere(&port_)) {
    thread_ = std::thread([this] {
      while (true) {
        const int fd = accept(listener_, nullptr, nullptr);
        if (fd < 0) return;
        char buffer[4096];
        (void)!recv(fd, buffer, sizeof buffer, 0);
        (void)!send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
        close(fd);
      }
    });
  }
  ~OtherProgram() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }

 private:
  const std::string answer_;
  int port_ = 0;
  const int listener_;
  std::thread thread_;
};

TEST(ReconnectTest, Connect_OtherProgramAnswers_IsReported) {
  for (const char* answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    OtherProgram other(answer);
    ClientLog log;
    const auto client = NewGrpcClient({"127.0.0.1", other.port()}, log.Handler());
    const Disconnected gone = log.Await<Disconnected>();
    EXPECT_EQ(gone.reason, absl::StrCat("tried 127.0.0.1:", other.port(), ": not a ddprun rendezvous server"));
    EXPECT_FALSE(gone.permanent);
  }
}

TEST(ReconnectTest, SilentListener_DestructorDoesNotWait) {
  int port = 0;
  const int listener = ListenAnywhere(&port);  // the kernel accepts connections, but no process answers
  ClientLog log;
  auto client = NewGrpcClient({"127.0.0.1", port}, log.Handler());
  client->Send(Heartbeat{});  // dropped
  client->Close();
  client.reset();
  EXPECT_TRUE(log.empty());
  close(listener);
}

TEST(ReconnectTest, Close_SilentServer_DestructorEnds) {
  TestServer server;
  TcpProxy proxy(server.port());
  TestLauncher a(TestServer::GrpcTo(proxy.port()), "job", "node1", PatientSettings(2));
  a.ConnectAndJoin();
  ASSERT_TRUE(std::holds_alternative<Welcome>(std::get<ServerMessage>(*a.log().Next())));
  proxy.Silence();
  const SteadyTime begin = SteadyNow();
  a.client().Send(NewLeave("bye"));
  a.client().Close();
  a.Disappear();
  EXPECT_LT(SteadyNow() - begin, absl::Seconds(30));  // two seconds on an idle machine
}

TEST(ReconnectTest, SendAndCloseFromManyThreads_NothingBreaks) {
  TestServer server;
  for (int i = 0; i < 20; ++i) {
    TestLauncher a(server.Grpc(), "job", "node1", PatientSettings(2));
    if (i % 2 == 0) a.ConnectAndJoin();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&a, t] {
        for (int n = 0; n < 50; ++n) {
          a.client().Send(Heartbeat{});
          if (n % 10 == 9) t == 0 ? a.client().Reset() : a.client().Send(NewReady(1, 2));
        }
        if (t == 3) a.client().Close();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  TestLauncher good(server.Grpc(), "other", "node1", PatientSettings(1));
  BeginRound({&good});
}

}  // namespace
}  // namespace ddprun::rendezvous
