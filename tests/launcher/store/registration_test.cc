#include "launcher/store/registration.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/registration.pb.h"
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

TEST(Registration, Encode_MoreAddressesThanAllowed_CutToWhatIs) {
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

}  // namespace
}  // namespace ddprun::launcher
