#include "rendezvous/ha/follower_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/ha/etcd_client.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::rendezvous {
namespace {

// While no server leads, launchers stop their workers unless a follower answers in time.
TEST(FollowerTest, ManyLaunchersOfOneAddress_AreAllAnswered) {
  const auto client = EtcdClient::Create({.endpoints = {"127.0.0.1:1"}, .patience = absl::Milliseconds(10)});
  // An unauthenticated address may open one connection an hour.
  ServerOptions options;
  options.connections.entries = 1;
  options.connections.entry_interval = absl::Hours(1);
  const auto follower = FollowerServer::Start(client->get(), EtcdKeys("/follower_test/"), {"127.0.0.1:0"}, options);

  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 5; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("launcher", i);  // or channels with the same arguments share a connection
    channels.push_back(
        grpc::CreateCustomChannel((*follower)->addresses().front(), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::ListJobsResponse response;
    const grpc::Status status = v1::Rendezvous::NewStub(channels.back())->ListJobs(&context, {}, &response);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << i << ": " << status.error_message();
    EXPECT_EQ(context.GetServerTrailingMetadata().count(kFollowerKey), 1u);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
