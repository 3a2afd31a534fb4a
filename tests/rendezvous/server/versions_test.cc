// Two versions at one rendezvous (protocol 7): peers with unknown message kinds or fields, or without some that this
// version sends.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/wire/completion.h"
#include "rendezvous/wire/envelope.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/rendezvous/server/raw_client.h"
#include "tests/rendezvous/server/samples.h"

namespace ddprun::rendezvous {
namespace {

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

}  // namespace
}  // namespace ddprun::rendezvous
