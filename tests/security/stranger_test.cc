// Limits of unauthenticated clients on a server without credentials.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/test_launcher.h"
#include "tests/security/raw_connection.h"
#include "tests/security/running_job.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

// A launcher with a running round, which strangers attack.
class StrangerTest : public testing::Test {
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

TEST_F(StrangerTest, JoinWithTheNodesId_IsRejectedAndTheLauncherStays) {
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

TEST_F(StrangerTest, NonRestartableFailureOfNewcomer_DoesNotEndTheJob) {
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

TEST(StreamsTest, ManyIdleStreams_OldestGoAndGoodLaunchersGetIn) {
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
