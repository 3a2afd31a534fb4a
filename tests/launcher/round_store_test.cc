#include "launcher/round_store.h"

#include <gtest/gtest.h>

#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

// A stopped or busy launcher: its kernel accepts connections, but the store does not answer.
TEST(RoundStore, StoreOfAnotherNode_ConnectsWithoutAnswer_CountsAsReached) {
  const auto other = StoreServer::Open({.address = "127.0.0.1", .log = [](LogLevel, auto) {}});
  ASSERT_TRUE(other.ok()) << other.status();
  const auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok()) << loop.status();

  std::vector<std::string> events;
  RoundStore::Events heard;
  heard.on_registering = [&] { events.push_back("registering"); };
  heard.on_store_reached = [&](const absl::Status& status) {
    events.push_back(status.ToString());
    (*loop)->Quit();
  };
  const LaunchConfig config;
  RoundStore store(&config, {.address = "127.0.0.1"}, "here", loop->get(), std::move(heard));
  ASSERT_TRUE(store.Open().ok());
  store.BeginRound(TextProto<rendezvous::Assignment>(absl::StrCat(
      "round: 1 group_rank: 1 base_rank: 1 world_size: 2 master_addr: '127.0.0.1' master_port: ", (*other)->port())));
  EXPECT_TRUE(events.empty()) << "the workers do not run";
  store.Register({4711});
  (*loop)->Run();
  EXPECT_EQ(events, (std::vector<std::string>{"registering", "OK"}));
}

}  // namespace
}  // namespace ddprun::launcher
