#include "launcher/store/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/store/connection.h"
#include "launcher/store/store_server.h"
#include "proto/registration.pb.h"
#include "tests/launcher/store/raw_store_client.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddprun::launcher {
namespace {

NodeRegistration Node() {
  return {7, 4, "host-b", {100, 0, 4294967295u}, {"10.0.0.5", "fd00::5"}, std::string("\0s", 2)};
}

bool Accepted(const NodeRegistration& node) { return DecodeRegistration(EncodeRegistration(node)).ok(); }

TEST(Registration, Decode_NoRegistration_Refused) {
  for (const std::string payload : {"", "x", "\x01\x00\x00\x00", "\xff\xff\xff"}) {
    EXPECT_FALSE(DecodeRegistration(payload).ok()) << payload;
  }
  const std::string payload = EncodeRegistration(Node());
  EXPECT_FALSE(DecodeRegistration(absl::string_view(payload).substr(0, payload.size() - 1)).ok());
}

TEST(Registration, Decode_OutOfBounds_Refused) {
  const auto with = [](auto change) {
    NodeRegistration node = Node();
    change(node);
    return node;
  };
  EXPECT_FALSE(Accepted(with([](auto& n) { n.base_rank = -1; })));
  EXPECT_TRUE(Accepted(with([](auto& n) { n.base_rank = kMaxRanks - 3; })));
  EXPECT_FALSE(Accepted(with([](auto& n) { n.base_rank = kMaxRanks - 2; })));
  EXPECT_FALSE(Accepted(with([](auto& n) { n.pids.clear(); })));
  EXPECT_TRUE(Accepted(with([](auto& n) { n.pids.assign(kMaxWorkersOfNode, UINT32_MAX); })));
  EXPECT_FALSE(Accepted(with([](auto& n) { n.pids.assign(kMaxWorkersOfNode + 1, 1); })));
  EXPECT_FALSE(Accepted(with([](auto& n) { n.addresses = {std::string(46, '1')}; })));
  EXPECT_FALSE(Accepted(with([](auto& n) { n.secret = std::string(65, 's'); })));
  store::v1::Registration many;
  many.add_pids(1);
  for (int i = 0; i <= kMaxAddressesOfNode; ++i) many.add_addresses("10.0.0.1");
  EXPECT_FALSE(DecodeRegistration(many.SerializeAsString()).ok());
  EXPECT_FALSE(DecodeRegistration(std::string(kMaxRegistrationBytes + 1, '\0')).ok());
}

TEST(Registration, Encode_TooManyAddresses_CutsThem) {
  NodeRegistration node = Node();
  for (int i = 0; i < 200; ++i) node.addresses.push_back(absl::StrCat("10.0.1.", i));
  const auto decoded = DecodeRegistration(EncodeRegistration(node));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->addresses.size(), size_t{kMaxAddressesOfNode});
}

TEST(Registration, EncodeDecode_SameNode_AFieldOfALaterVersionIsIgnored) {
  for (const char* field : {"", "\xa0\x06\x07" /* field 100, a varint */}) {
    const auto node = DecodeRegistration(EncodeRegistration(Node()) + field);
    ASSERT_TRUE(node.ok()) << node.status();
    EXPECT_EQ(*node, Node());
  }
}

TEST(Registration, Decode_HostWithEscapesAndLineEnds_OneCleanLine) {
  store::v1::Registration message;
  message.add_pids(1);
  message.set_host("a\n\x1b[31mb\r\nc" + std::string(300, 'x'));
  const auto node = DecodeRegistration(message.SerializeAsString());
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->host.substr(0, 10), "a ?[31mb c");
  EXPECT_EQ(node->host.size(), 255u);
}

TEST(Registration, Bytes_AreValidateAndOneRequest) {
  EXPECT_EQ(RegistrationBytes(Node()), Validate() + Op(Opcode::kRegisterNode) + Text(EncodeRegistration(Node())));
}

using State = RegistrationClient::State;
using testing::ElementsAre;
using testing::HasSubstr;

// Serves both ends on one thread until the client is registered, has failed once more or has lost the store.
State RunUntilSettled(RegistrationClient& client, StoreServer* store) {
  do {
    pollfd ready[2] = {{client.PollFd(), POLLIN, 0}, {store != nullptr ? store->PollFd() : -1, POLLIN, 0}};
    if (poll(ready, 2, 60000) <= 0) break;
    if (ready[1].revents != 0) store->ProcessReady();
    if (ready[0].revents != 0) client.OnReady();
  } while (client.state() == State::kConnecting || client.state() == State::kAwaitingReply);
  return client.state();
}

class RegistrationClientTest : public testing::Test {
 protected:
  RegistrationClientTest() : store_(*StoreServer::Open({.address = "127.0.0.1", .log = [](LogLevel, auto) {}})) {
    store_->BeginRound(3, 4);
  }
  std::unique_ptr<RegistrationClient> Start(const NodeRegistration& node) {
    auto client = RegistrationClient::Start("127.0.0.1", store_->port(), node);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::unique_ptr<StoreServer> store_;
};

TEST_F(RegistrationClientTest, OnReady_StoreThere_Registers_ThenIsLostAndQuiet) {
  auto client = Start({3, 0, "b", {20, 21}});
  ASSERT_EQ(RunUntilSettled(*client, store_.get()), State::kRegistered) << client->status();
  EXPECT_EQ(store_->Missing()[1], (MissingRank{1, 1, "b", 21}));
  EXPECT_EQ(store_->connections(), 1);
  store_.reset();
  pollfd ready = {client->PollFd(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 60000), 1);
  EXPECT_EQ(client->OnReady(), State::kLost);
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST_F(RegistrationClientTest, OnReady_BeforeTheRound_RegisteredWhenItBegins) {
  auto early = StoreServer::Open({.address = "127.0.0.1", .log = [](LogLevel, auto) {}});
  ASSERT_TRUE(early.ok()) << early.status();
  auto client = RegistrationClient::Start("127.0.0.1", (*early)->port(), {3, 0, "b", {20, 21}});
  auto stranger = RegistrationClient::Start("127.0.0.1", (*early)->port(), {3, 1, "c", {30, 31}});
  ASSERT_TRUE(client.ok() && stranger.ok());
  const RawClient third((*early)->port(), /*hello=*/false);
  while ((*client)->state() == State::kConnecting || (*stranger)->state() == State::kConnecting) {
    (*client)->OnReady();
    (*stranger)->OnReady();
  }
  pollfd ready = {(*early)->PollFd(), POLLIN, 0};
  while (poll(&ready, 1, 0) > 0) (*early)->ProcessReady();
  EXPECT_EQ((*early)->connections(), 3);
  EXPECT_EQ((*client)->state(), State::kAwaitingReply);
  (*early)->BeginRound(3, 2);
  // One of the two has the ranks; the other one is refused, as it would be later.
  const State first = RunUntilSettled(**client, early->get());
  const State second = RunUntilSettled(**stranger, early->get());
  EXPECT_NE(first, second);
  EXPECT_TRUE(first == State::kRegistered || second == State::kRegistered);
}

TEST_F(RegistrationClientTest, SendEvidence_Registered_ArrivesWhole) {
  std::vector<std::string> received;
  store_ = *StoreServer::Open(
      {.address = "127.0.0.1", .on_evidence = [&](const std::string& payload) { received.push_back(payload); }});
  store_->BeginRound(3, 4);
  auto client = Start({3, 0, "b", {20, 21}});
  client->SendEvidence("too early");
  ASSERT_EQ(RunUntilSettled(*client, store_.get()), State::kRegistered) << client->status();
  const std::string largest(RequestLimits().evidence_bytes, 'e');
  client->SendEvidence(largest + "e");
  client->SendEvidence(largest);
  client->SendEvidence("while another is being sent");
  while (received.empty()) RunUntilSettled(*client, store_.get());
  client->SendEvidence("short");
  while (received.size() < 2) RunUntilSettled(*client, store_.get());
  EXPECT_EQ(received[0], largest);
  EXPECT_EQ(received[1], "short");
  EXPECT_EQ(client->state(), State::kRegistered);
}

TEST_F(RegistrationClientTest, OnReady_MostRanks_Registers) {
  store_ = *StoreServer::Open({.address = "127.0.0.1"});
  store_->BeginRound(3, kMaxWorkersOfNode);
  auto client = Start({3, 0, "b", std::vector<uint32_t>(kMaxWorkersOfNode, UINT32_MAX)});
  ASSERT_EQ(RunUntilSettled(*client, store_.get()), State::kRegistered) << client->status();
  EXPECT_EQ(store_->Missing().back().local_rank, kMaxWorkersOfNode - 1);
}

TEST_F(RegistrationClientTest, OnReady_OtherRound_RefusedAndTriedAgain) {
  auto client = Start({2, 0, "b", {20, 21}});
  ASSERT_EQ(RunUntilSettled(*client, store_.get()), State::kBackingOff);
  EXPECT_THAT(client->status().message(), HasSubstr("registration refused"));
}

TEST_F(RegistrationClientTest, OnReady_NoListener_RetriesUntilTheStoreOpens) {
  const int port = store_->port();
  store_.reset();
  auto client = RegistrationClient::Start("127.0.0.1", port, {3, 0, "b", {20}});
  ASSERT_TRUE(client.ok()) << client.status();
  for (int tries = 0; tries < 3; ++tries) {
    // Loopback may refuse immediately.
    if ((*client)->state() != State::kBackingOff) RunUntilSettled(**client, nullptr);
    ASSERT_EQ((*client)->state(), State::kBackingOff);
    EXPECT_THAT(std::string((*client)->status().message()), HasSubstr("can't connect: "));
    pollfd ready = {(*client)->PollFd(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 60000), 1);
    (*client)->OnReady();
  }
  store_ = *StoreServer::Open({.address = "127.0.0.1", .first_port = port, .last_port = port});
  store_->BeginRound(3, 4);
  while (RunUntilSettled(**client, store_.get()) == State::kBackingOff) {
  }
  EXPECT_EQ((*client)->state(), State::kRegistered);
  EXPECT_TRUE((*client)->status().ok());
}

TEST_F(RegistrationClientTest, OnReady_NotAStore_Fails) {
  auto listener = Listen("127.0.0.1", 0, 0);
  ASSERT_TRUE(listener.ok());
  auto client = RegistrationClient::Start("127.0.0.1", listener->port, {3, 0, "b", {20}});
  ASSERT_TRUE(client.ok());
  pollfd ready = {listener->fd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 60000), 1);
  const UniqueFd peer(accept(listener->fd.get(), nullptr, nullptr));
  ASSERT_EQ(send(peer.get(), "HTTP/1.1 400", 12, MSG_NOSIGNAL), 12);
  EXPECT_EQ(RunUntilSettled(**client, nullptr), State::kBackingOff);
  EXPECT_THAT(std::string((*client)->status().message()), HasSubstr("another program answers there"));
}

TEST_F(RegistrationClientTest, Start_HostName_Refused) {
  EXPECT_EQ(RegistrationClient::Start("host-b", 1, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RegistrationClientIpv6, OnReady_OverIpv6_Registers) {
  auto store = StoreServer::Open({.address = "::1"});
  if (!store.ok()) GTEST_SKIP() << "this host has no IPv6: " << store.status();
  (*store)->BeginRound(3, 2);
  auto client = RegistrationClient::Start("::1", (*store)->port(), {3, 0, "b", {20, 21}});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(RunUntilSettled(**client, store->get()), State::kRegistered) << (*client)->status();
}

}  // namespace

}  // namespace ddprun::launcher
