// A server's answers to peers that violate the protocol, and its unary calls.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/samples.h"

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

}  // namespace
}  // namespace ddprun::rendezvous
