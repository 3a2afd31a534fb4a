// A server over real gRPC: ProtocolTest has its answers to launchers that violate the protocol, and its unary calls;
// ServerTest its addresses; RoundsTest whole conversations of launchers; VersionsTest peers of another version
// (protocol 7); HostileTest peers that do not speak gRPC.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/samples.h"
#include "tests/rendezvous/server/tcp_proxy.h"

// The sanitizers' allocators keep freed memory for a while, but know how much is in use.
extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace ddprun::rendezvous {
namespace {

using Code = absl::StatusCode;

Join IdleJoin(const std::string& job, const std::string& node, uint64_t incarnation) {
  Join join = SampleJoin();
  join.set_job_id(job);
  join.set_node_id(node);
  join.set_host(node);
  join.set_incarnation(incarnation);
  join.clear_node_rank();
  *join.mutable_settings() = PatientSettings(2);
  join.set_phase(Join::PHASE_IDLE);
  join.clear_current();
  join.clear_survivors();
  return join;
}

v1::LauncherMessage Proto(const LauncherMessage& message) { return ToProto(message); }

class ProtocolTest : public testing::Test {
 protected:
  // The server still serves a job after the test.
  ~ProtocolTest() override {
    TestLauncher good(server_.Grpc(), "a good job", "node1", PatientSettings(1));
    BeginRound({&good});
    ExpectSuccess({&good});
  }

  TestServer server_;
};

TEST_F(ProtocolTest, FirstMessageIsNoJoin_InvalidArgument) {
  for (const LauncherMessage& message : {LauncherMessage(Heartbeat{}), LauncherMessage(NewReady(1, 2)),
                                         LauncherMessage(NewLeave("bye")), LauncherMessage(NewGroupSucceeded(1))}) {
    RawClient raw(server_.port());
    ASSERT_TRUE(raw.Write(Proto(message)));
    const absl::Status status = raw.Finish();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  }
}

TEST_F(ProtocolTest, SecondJoin_InvalidArgument) {
  RawClient raw(server_.port());
  ASSERT_TRUE(raw.Write(Proto(IdleJoin("job", "n", 1))));
  ASSERT_TRUE(raw.Read()->has_welcome());
  ASSERT_TRUE(raw.Write(Proto(IdleJoin("job", "n", 2))));
  EXPECT_EQ(raw.Finish().code(), Code::kInvalidArgument);
}

TEST_F(ProtocolTest, MalformedMessages_InvalidArgument) {
  v1::LauncherMessage nameless = Proto(IdleJoin("job", "n", 1));
  nameless.mutable_join()->clear_job_id();
  for (const std::string& bytes : {std::string("\xFF\xFF\xFF"), std::string("\x0A\x7F"), std::string(1000, '\0'),
                                   std::string(), nameless.SerializeAsString()}) {
    RawClient raw(server_.port());
    ASSERT_TRUE(raw.WriteBytes(bytes));
    const absl::Status status = raw.Finish();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  }
}

TEST_F(ProtocolTest, OversizeMessage_IsRefused) {
  for (const size_t bytes : {kMaxMessageBytes + 1, size_t{kMaxReceivedBytes} + 1, size_t{16} << 20}) {
    v1::LauncherMessage message;
    message.mutable_leave()->set_reason(std::string(bytes, 'x'));
    RawClient raw(server_.port());
    (void)raw.Write(message);  // the stream may break meanwhile
    const absl::Status status = raw.Finish();
    // gRPC itself refuses messages larger than kMaxReceivedBytes.
    EXPECT_EQ(status.code(), bytes <= kMaxReceivedBytes ? Code::kInvalidArgument : Code::kResourceExhausted) << status;
  }
}

TEST_F(ProtocolTest, HalfCloseWithoutLeave_InvalidArgument) {
  RawClient silent(server_.port());
  silent.HalfClose();
  EXPECT_EQ(silent.Finish().code(), Code::kInvalidArgument);
  RawClient joined(server_.port());
  ASSERT_TRUE(joined.Write(Proto(IdleJoin("job", "n", 1))));
  joined.HalfClose();
  EXPECT_EQ(joined.Finish().code(), Code::kInvalidArgument);
}

TEST_F(ProtocolTest, Leave_EndsWithOk) {
  RawClient raw(server_.port());
  ASSERT_TRUE(raw.Write(Proto(IdleJoin("job", "n", 1))));
  ASSERT_TRUE(raw.Write(Proto(NewLeave("enough"))));
  EXPECT_TRUE(raw.Finish().ok());
}

TEST_F(ProtocolTest, HalfCloseAfterFinish_EndsWithOk) {
  RawClient raw(server_.port());
  Join join = IdleJoin("job", "n", 1);
  *join.mutable_settings() = PatientSettings(1);
  ASSERT_TRUE(raw.Write(Proto(join)));
  v1::ServerMessage message;
  while (!message.has_assign()) message = raw.Read().value();
  ASSERT_TRUE(raw.Write(Proto(NewGroupSucceeded(message.assign().assignment().round()))));
  while (!message.has_finish()) message = raw.Read().value();
  raw.HalfClose();
  const absl::Status status = raw.Finish();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ProtocolTest, NewerIncarnation_OldStreamIsAborted_StaleOneRefused) {
  RawClient first(server_.port());
  ASSERT_TRUE(first.Write(Proto(IdleJoin("job", "n", 5))));
  ASSERT_TRUE(first.Read()->has_welcome());
  RawClient twin(server_.port());  // the same incarnation
  ASSERT_TRUE(twin.Write(Proto(IdleJoin("job", "n", 5))));
  EXPECT_EQ(twin.Finish().code(), Code::kAborted);
  RawClient second(server_.port());
  ASSERT_TRUE(second.Write(Proto(IdleJoin("job", "n", 6))));
  ASSERT_TRUE(second.Read()->has_welcome());
  EXPECT_EQ(first.Finish().code(), Code::kAborted);
  RawClient stale(server_.port());
  ASSERT_TRUE(stale.Write(Proto(IdleJoin("job", "n", 4))));
  const absl::Status status = stale.Finish();
  EXPECT_EQ(status.code(), Code::kAborted) << status;
  // The newest stream is unaffected.
  ASSERT_TRUE(second.Write(Proto(Heartbeat{})));
  while (!second.Read().value().has_heartbeat_ack()) {
  }
}

// A peer that floods the server and never reads is cut off rather than stored without bound.
TEST_F(ProtocolTest, SlowReader_IsCutOff) {
  RawClient raw(server_.port());
  ASSERT_TRUE(raw.Write(Proto(IdleJoin("job", "n", 1))));
  const v1::LauncherMessage heartbeat = Proto(Heartbeat{});
  int sent = 0;
  while (sent < 5'000'000 && raw.Write(heartbeat)) ++sent;
  EXPECT_LT(sent, 5'000'000);
  const absl::Status status = raw.Finish();
  EXPECT_FALSE(status.ok());
}

TEST_F(ProtocolTest, HealthAndReflection_Answer) {
  RawClient raw(server_.port());
  EXPECT_EQ(raw.Health("").value_or("-"), "SERVING");
  EXPECT_EQ(raw.Health("ddprun.v1.Rendezvous").value_or("-"), "SERVING");
  EXPECT_EQ(raw.Health("no.such.Service").status().code(), Code::kNotFound);
  EXPECT_EQ(raw.WatchHealth("").value_or("-"), "SERVING");
  EXPECT_EQ(raw.WatchHealth("no.such.Service").value_or("-"), "SERVICE_UNKNOWN");
  const absl::StatusOr<std::string> services = raw.Reflect();
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_NE(services->find("ddprun.v1.Rendezvous"), std::string::npos);
  EXPECT_NE(services->find("grpc.health.v1.Health"), std::string::npos);
  EXPECT_EQ(raw.CallUnknownMethod().code(), Code::kUnimplemented);
}

TEST_F(ProtocolTest, ListJobs_Paged_EveryJobOnce) {
  std::vector<std::unique_ptr<TestLauncher>> launchers;
  for (const char* job : {"a", "b", "c"}) {
    launchers.push_back(std::make_unique<TestLauncher>(server_.Local(), job, "node1", PatientSettings(2)));
    launchers.back()->ConnectAndJoin();
    launchers.back()->log().Next();  // Welcome
  }
  RawClient raw(server_.port());
  const v1::ListJobsResponse first = raw.ListJobs(2, "").value();
  const v1::ListJobsResponse second = raw.ListJobs(2, first.next_page_token()).value();
  ASSERT_EQ(first.jobs_size(), 2);
  ASSERT_EQ(second.jobs_size(), 1);
  EXPECT_EQ(first.jobs(0).job_id() + first.jobs(1).job_id() + second.jobs(0).job_id(), "abc");
  EXPECT_EQ(first.jobs(0).node_count(), 1);
  EXPECT_EQ(first.jobs(0).nodes_size(), 0);
  EXPECT_EQ(first.jobs(0).state(), v1::Job::STATE_WAITING);
  EXPECT_EQ(second.next_page_token(), "");
  EXPECT_EQ(raw.ListJobs(0, "")->jobs_size(), 3);
  EXPECT_EQ(raw.ListJobs(3, "")->next_page_token(), "");
  EXPECT_EQ(raw.ListJobs(-1, "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(raw.ListJobs(1, "job110").status().code(), Code::kInvalidArgument);
}

TEST_F(ProtocolTest, GetJob_ShowsNodesAndVerdict) {
  RawClient raw(server_.port());
  EXPECT_EQ(raw.GetJob("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(raw.GetJob("job").status().code(), Code::kNotFound);
  TestLauncher a(server_.Grpc(), "job", "node1", PatientSettings(1));
  BeginRound({&a});
  absl::StatusOr<v1::Job> job = raw.GetJob("job");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(job->world_size(), 2);
  ASSERT_EQ(job->nodes_size(), 1);
  EXPECT_EQ(job->nodes(0).host(), "node1");
  EXPECT_TRUE(job->nodes(0).connected());
  a.Succeed();
  a.Await<Finish>();
  job = raw.GetJob("job");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->state(), v1::Job::STATE_FINISHED);
  EXPECT_TRUE(job->verdict().succeeded());
}

TEST(ServerTest, Shutdown_OpenStreams_EndWithUnavailable) {
  TestServer server;
  RawClient joined(server.port());
  ASSERT_TRUE(joined.Write(Proto(IdleJoin("job", "n", 1))));
  ASSERT_TRUE(joined.Read()->has_welcome());
  server.server().Shutdown();
  EXPECT_EQ(joined.Finish().code(), Code::kUnavailable);
  server.server().Shutdown();  // no more than once
}

TEST(ServerTest, Start_PortTaken_AlreadyExists) {
  TestServer server;
  Driver driver;
  const std::string address = absl::StrCat("127.0.0.1:", server.port());
  const auto second = Server::Start(&driver, {address});
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr(address));
}

TEST(ServerTest, Start_BadAddresses_SayWhy) {
  Driver driver;
  for (const char* text : {"", "29400", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:0", "[::1]",
                           "[]:0", ":0", "a b:0"}) {
    EXPECT_EQ(Server::Start(&driver, {text}).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(Server::Start(&driver, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Server::Start(&driver, {"192.0.2.1:0"}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Server::Start(&driver, {"no-such-host.invalid:0"}).status().code(), Code::kNotFound);
}

TEST(ServerTest, Start_SeveralAddresses_AllServe) {
  Driver driver;
  auto server = Server::Start(&driver, {"127.0.0.1:0", "[::1]:0"});
  if (!server.ok()) server = Server::Start(&driver, {"127.0.0.1:0", "127.0.0.2:0"});  // a host without IPv6
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_EQ((*server)->addresses().size(), 2);
  EXPECT_EQ((*server)->addresses()[0], absl::StrCat("127.0.0.1:", (*server)->port()));
  for (const std::string& address : (*server)->addresses()) {
    ClientLog log;
    const auto client = NewGrpcClient(ParseEndpoint(address).value(), log.Handler());
    log.Await<Connected>();
  }
}

TEST(RoundsTest, LauncherDies_OtherIsToldToStop) {
  TestServer server;
  JobSettings settings = PatientSettings(2);
  settings.set_min_nodes(1);
  *settings.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(80));
  TestLauncher a(server.Grpc(), "job", "node1", settings);
  TestLauncher b(server.Grpc(), "job", "node2", settings);
  BeginRound({&a, &b});
  b.Disappear();  // without Close: as if the process had been killed
  const StopRound stop = a.Await<StopRound>();
  EXPECT_THAT(stop.reason(), HasSubstr("node2"));
}

TEST(RoundsTest, Leave_IsFlushedByClose_AndEndsStreamAtOnce) {
  TestServer server;
  TestLauncher a(server.Grpc(), "job", "node1", PatientSettings(2));
  TestLauncher b(server.Local(), "job", "node2", PatientSettings(2));
  BeginRound({&a, &b});
  a.client().Send(NewLeave("SIGTERM"));
  a.client().Close();
  a.Disappear();
  b.Await<StopRound>();  // the reconnect grace is an hour: only the Leave can tell
  EXPECT_TRUE(server.driver().WaitUntilLaunchersLeft(SteadyNow() + kHang));
}

TEST(RoundsTest, OtherSettings_AreRejectedForGood) {
  TestServer server;
  TestLauncher a(server.Local(), "job", "node1", PatientSettings(2));
  a.ConnectAndJoin();
  ASSERT_TRUE(std::holds_alternative<Welcome>(std::get<ServerMessage>(*a.log().Next())));
  for (const auto& kind : {server.Grpc(), server.Local()}) {
    TestLauncher b(kind, "job", "node2", PatientSettings(2, /*max_restarts=*/9));
    b.ConnectAndJoin();
    const Rejected rejected = b.Await<Rejected>();
    EXPECT_THAT(rejected.reason(), HasSubstr("node1"));
    const Disconnected gone = b.Await<Disconnected>();
    EXPECT_TRUE(gone.permanent);
    EXPECT_THAT(gone.reason, HasSubstr(rejected.reason()));
  }
}

TEST(RoundsTest, ManyJobs_NeverMix) {
  constexpr int kJobs = 20;
  constexpr int kNodes = 4;
  TestServer server;
  std::vector<std::vector<std::unique_ptr<TestLauncher>>> jobs(kJobs);
  for (int node = 0; node < kNodes; ++node) {  // node by node, so that all jobs form at the same time
    for (int job = 0; job < kJobs; ++job) {
      jobs[job].push_back(std::make_unique<TestLauncher>(node == 0 ? server.Local() : server.Grpc(),
                                                         absl::StrCat("job", job), absl::StrCat("j", job, "n", node),
                                                         PatientSettings(kNodes)));
    }
  }
  for (auto& nodes : jobs) {
    for (auto& node : nodes) node->ConnectAndJoin();
  }
  const auto await_rounds = [&](int restarts) {
    for (int job = 0; job < kJobs; ++job) {
      std::set<int> ranks;
      for (auto& node : jobs[job]) {
        const Assignment assignment = node->AwaitRound();
        ranks.insert(assignment.group_rank());
        EXPECT_EQ(assignment.base_rank(), 2 * assignment.group_rank());
        EXPECT_EQ(assignment.world_size(), 2 * kNodes);
        EXPECT_EQ(assignment.master_addr(), absl::StrCat("j", job, "n0.example"));
        EXPECT_EQ(assignment.master_port(), 40'000 + restarts);
        EXPECT_EQ(assignment.restart_count(), restarts);
      }
      EXPECT_EQ(ranks.size(), kNodes);
      if (restarts == 0) continue;
      ++job;  // only even jobs restarted
    }
  };
  await_rounds(0);
  for (int job = 0; job < kJobs; job += 2) jobs[job][job % kNodes]->FailWorker(1);
  for (int job = 0; job < kJobs; job += 2) {
    for (auto& node : jobs[job]) node->GetReady();
  }
  await_rounds(1);
  for (auto& nodes : jobs) {
    for (auto& node : nodes) node->Succeed();
  }
  for (auto& nodes : jobs) {
    for (auto& node : nodes) EXPECT_TRUE(node->Await<Finish>().verdict().succeeded());
  }
}

constexpr char kUnknownKind[] = "\xFA\x01\x02hi";   // field 31, of length 2
constexpr char kUnknownField[] = "\xFA\x3E\x02hi";  // field 1007, of length 2

v1::LauncherMessage IdleJoin(int nodes) {
  Join join = SampleJoin();
  join.set_incarnation(1);
  join.clear_node_rank();
  *join.mutable_settings() = PatientSettings(nodes);
  join.set_phase(Join::PHASE_IDLE);
  join.clear_current();
  join.clear_survivors();
  return ToProto(LauncherMessage(join));
}

TEST(VersionsTest, Server_UnknownKind_IsIgnored) {
  TestServer server;
  RawClient newer(server.port());
  ASSERT_TRUE(newer.WriteBytes(kUnknownKind));  // also before the Join
  ASSERT_TRUE(newer.Write(IdleJoin(1)));
  ASSERT_TRUE(newer.WriteBytes(kUnknownKind));
  v1::ServerMessage message;
  while (!message.has_assign()) message = newer.Read().value();
  ASSERT_TRUE(newer.WriteBytes(kUnknownKind));
  ASSERT_TRUE(newer.Write(ToProto(LauncherMessage(NewGroupSucceeded(message.assign().assignment().round())))));
  while (!message.has_finish()) message = newer.Read().value();
  EXPECT_TRUE(message.finish().verdict().succeeded());
}

TEST(VersionsTest, Server_NewerJoin_IsServedAndToldTheVersion) {
  TestServer server;
  v1::LauncherMessage join = IdleJoin(1);
  join.mutable_join()->set_protocol_version(99);
  ASSERT_TRUE(join.mutable_join()->MergeFromString(kUnknownField));
  RawClient newer(server.port());
  ASSERT_TRUE(newer.Write(join));
  const v1::ServerMessage welcome = newer.Read().value();
  ASSERT_TRUE(welcome.has_welcome());
  EXPECT_EQ(welcome.welcome().protocol_version(), kProtocolVersion);
  EXPECT_TRUE(newer.Read()->has_assign());
}

Welcome NewerWelcome() {
  Welcome welcome = NewWelcome(absl::InfiniteDuration(), absl::Seconds(1));
  welcome.set_protocol_version(99);
  return welcome;
}

// A server of a newer version, which sends unknown message kinds between its messages.
class FutureServer final : public v1::Rendezvous::Service {
 public:
  FutureServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FutureServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  int port() const { return port_; }

  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ServerMessage, v1::LauncherMessage>* stream) override {
    context->AddInitialMetadata(kServerMarker, "1");
    stream->SendInitialMetadata();
    v1::LauncherMessage from;
    if (!stream->Read(&from)) return grpc::Status::OK;
    v1::ServerMessage welcome = ToProto(ServerMessage(NewerWelcome()));
    (void)welcome.mutable_welcome()->MergeFromString(kUnknownField);
    Assignment assignment;
    assignment.set_round(1);
    assignment.set_role_world_size(1);
    assignment.set_group_world_size(1);
    assignment.set_world_size(1);
    assignment.set_master_addr("10.0.0.1");
    assignment.set_master_port(1);
    for (const v1::ServerMessage& message :
         {Unknown(), welcome, Unknown(), ToProto(ServerMessage(NewAssign(assignment))), Unknown()}) {
      stream->Write(message);
    }
    while (stream->Read(&from)) {
    }
    return grpc::Status::OK;
  }

 private:
  static v1::ServerMessage Unknown() {
    v1::ServerMessage message;
    (void)message.ParseFromString(kUnknownKind);
    return message;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(VersionsTest, Client_UnknownKind_IsIgnored) {
  FutureServer server;
  TestLauncher launcher(TestServer::GrpcTo(server.port()), "job", "node1", PatientSettings(1));
  launcher.ConnectAndJoin();
  EXPECT_EQ(std::get<ServerMessage>(*launcher.log().Next()), ServerMessage(NewerWelcome()));
  // The stream stays open: AwaitRound would fail at a Disconnected.
  EXPECT_EQ(launcher.AwaitRound().round(), 1);
}

int64_t UsedBytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// How gRPC's own clients begin, so that the random bytes after it reach the frame parser.
const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettings(std::string("\0\0\0\x04\0\0\0\0\0", 9));

std::string RandomFrame(std::mt19937* random) {
  const size_t size = (*random)() % 300;
  std::string frame;
  frame.push_back(0);
  frame.push_back(static_cast<char>(size >> 8));
  frame.push_back(static_cast<char>(size));
  frame.push_back(static_cast<char>((*random)() % 12));  // type
  frame.push_back(static_cast<char>((*random)()));       // flags
  frame += std::string("\0\0\0", 3);
  frame.push_back(static_cast<char>((*random)() % 8));  // stream
  return frame + RandomBytes(random, size);
}

void Throw(int port, const std::string& bytes) {
  const int fd = ConnectTo(port);
  ASSERT_GE(fd, 0);
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  const timeval patience = {5, 0};  // the server closes; if not, so do we
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char buffer[4096];
  while (recv(fd, buffer, sizeof buffer, 0) > 0) {
  }
  close(fd);
}

void ThrowRound(int port, std::mt19937* random, int times) {
  for (int i = 0; i < times; ++i) {
    Throw(port, RandomBytes(random, (*random)() % 20'000));
    std::string frames = kPreface + kSettings;
    for (int n = (*random)() % 20; n >= 0; --n) frames += RandomFrame(random);
    Throw(port, frames);
  }
}

TEST(HostileTest, RandomBytes_NeitherCrashNorGrow) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  TestServer server({.connections = {.entry_interval = absl::ZeroDuration()}});  // all of it is to reach gRPC
  ThrowRound(server.port(), &random, 100);                                       // until all pools have their size
  const int64_t before = UsedBytes();
  ThrowRound(server.port(), &random, 1000);
  const int64_t grown = UsedBytes() - before;
  printf("memory before %.1f MB, grown by %.1f MB\n", before / 1e6, grown / 1e6);
  EXPECT_LT(grown, 16 << 20);
  TestLauncher good(server.Grpc(), "job", "node1", PatientSettings(1));
  BeginRound({&good});
}

TEST(HostileTest, ManyIdleConnections_OthersAreServed) {
  TestServer server;
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(ConnectTo(server.port()));
    ASSERT_GE(idle.back(), 0);
    if (i % 2 == 0) (void)!send(idle.back(), kPreface, sizeof kPreface - 1, MSG_NOSIGNAL);
  }
  TestLauncher good(server.Grpc(), "job", "node1", PatientSettings(1));
  BeginRound({&good});
  for (const int fd : idle) close(fd);
}

}  // namespace

}  // namespace ddprun::rendezvous
