// Limits of unauthenticated clients on a server without credentials.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/running_job.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

// A launcher with a running round, which strangers attack.
class StrangerTest : public testing::Test {
 protected:
  StrangerTest() : launcher_(server_.Grpc(), "job", "node1", PatientSettings(1)) {
    launcher_.join().set_session_secret(std::string(32, 's'));
    launcher_.ConnectAndJoin();
    assignment_ = launcher_.AwaitRound();
  }

  // The launcher's Join, as a stranger that knows the node's id would forge it.
  Join Forged() {
    Join join = launcher_.join();
    join.set_session_secret(std::string(32, 'x'));
    join.set_incarnation(uint64_t{1} << 60);
    join.set_address("203.0.113.66");
    return join;
  }

  void ExpectJobGoesOn() {
    launcher_.Succeed();
    const Verdict verdict = launcher_.Await<Finish>().verdict();
    EXPECT_TRUE(verdict.succeeded()) << verdict.reason();
    EXPECT_EQ(verdict.exit_code(), 0);
  }

  TestServer server_;
  TestLauncher launcher_;
  Assignment assignment_;
};

TEST_F(StrangerTest, JoinWithTheNodesId_IsRejectedAndTheLauncherStays) {
  for (const Join::Phase phase : {Join::PHASE_RUNNING, Join::PHASE_IDLE, Join::PHASE_STOPPING}) {
    Join join = Forged();
    join.set_phase(phase);
    RawClient stranger(server_.port());
    ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(join))));
    EXPECT_TRUE(stranger.Read()->has_rejected());
    // Later messages of the stranger do not affect the round.
    (void)stranger.Write(ToProto(LauncherMessage(
        NewWorkerFailed(assignment_.round(), TextProto("exit_code: 78 restartable: false", NewFailure())))));
    EXPECT_TRUE(absl::IsFailedPrecondition(stranger.Finish()));
  }
  ExpectJobGoesOn();
}

TEST_F(StrangerTest, NonRestartableFailureOfNewcomer_DoesNotEndTheJob) {
  Join join = Forged();
  join.set_node_id("a stranger");
  join.set_incarnation(1);
  RawClient stranger(server_.port());
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(join))));
  EXPECT_TRUE(stranger.Read()->has_welcome());
  WorkerFailure failure = NewFailure();
  failure.set_exit_code(78);
  failure.set_restartable(false);
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(NewWorkerFailed(assignment_.round(), failure)))));
  ASSERT_TRUE(stranger.Write(ToProto(LauncherMessage(Heartbeat{}))));
  v1::ServerMessage message;
  while (!message.has_heartbeat_ack()) message = stranger.Read().value();
  ExpectJobGoesOn();
}

TEST(StreamsTest, NoMessage_StreamIsEnded) {
  TestServer server({.limits = {.first_message = absl::Milliseconds(20)}});
  RawClient stranger(server.port());
  EXPECT_TRUE(absl::IsDeadlineExceeded(stranger.Finish()));
  // An unknown message is none.
  RawClient newer(server.port());
  newer.WriteBytes("\xFA\x01\x02hi");
  EXPECT_TRUE(absl::IsDeadlineExceeded(newer.Finish()));
  RunningJob(server.Grpc());
}

// Streams that are opened and then stay idle.
class IdleStreams {
 public:
  IdleStreams(int port, int channels, int per_channel) {
    QuietGrpc();
    for (int i = 0; i < channels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      auto channel = grpc::CreateCustomChannel(absl::StrCat("ipv4:127.0.0.1:", port),
                                               grpc::InsecureChannelCredentials(), arguments);
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
      for (int j = 0; j < per_channel; ++j) Open(stubs_.back().get());
    }
  }

  ~IdleStreams() {
    for (const auto& call : calls_) call->context.TryCancel();
    while (in_flight_ > 0) Next();
    queue_.Shutdown();
    while (Next() != nullptr) {
    }
  }

  // Waits until the server has ended `count` streams.
  void AwaitEnded(int count) {
    while (ended_ < count) Next();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
    int step = 0;
  };

  void Open(grpc::GenericStub* stub) {
    calls_.push_back(std::make_unique<Call>());
    Call* call = calls_.back().get();
    call->stream = stub->PrepareCall(&call->context, "/ddprun.v1.Rendezvous/Session", &queue_);
    call->stream->StartCall(call);
    ++in_flight_;
  }

  Call* Next() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return nullptr;
    auto* call = static_cast<Call*>(tag);
    if (++call->step == 1) {  // begun: now wait for the end
      call->stream->Finish(&call->status, call);
    } else {
      --in_flight_;
      ++ended_;
    }
    return call;
  }

  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<Call>> calls_;
  grpc::CompletionQueue queue_;
  int in_flight_ = 0;
  int ended_ = 0;
};

TEST(StreamsTest, ManyIdleStreams_OldestGoAndGoodLaunchersGetIn) {
  constexpr int kWaiting = 500;
  TestServer server({.limits = {.waiting = kWaiting, .first_message = absl::Hours(1)}});
  IdleStreams idle(server.port(), 200, 15);
  idle.AwaitEnded(200 * 15 - kWaiting);
  RunningJob(server.Grpc());
}

TEST(StreamsTest, ManyStreamsOnOneConnection_ItIsClosedOthersGetIn) {
  TestServer server({.limits = {.first_message = absl::Hours(1)}});
  IdleStreams idle(server.port(), 1, 17);
  idle.AwaitEnded(17);
  IdleStreams many(server.port(), 1, 300);  // more than one connection may have at a time
  RunningJob(server.Grpc());
}

}  // namespace
}  // namespace ddprun::rendezvous
