#include "launcher/store/registration.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/store/request_bytes.h"

namespace ddprun::launcher {
namespace {

NodeRegistration Node() { return {7, 1, 4, "host-b", {100, 0, 4294967295u}}; }

TEST(Registration, EncodeDecode_SameNode) {
  const auto node = DecodeRegistration(EncodeRegistration(Node()));
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(*node, Node());
}

TEST(Registration, Decode_CutOffAnywhereOrTooLong_Refused) {
  const std::string payload = EncodeRegistration(Node());
  for (size_t size = 0; size < payload.size(); ++size) {
    EXPECT_FALSE(DecodeRegistration(absl::string_view(payload).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeRegistration(payload + "x").ok());
}

TEST(Registration, Decode_OutOfRange_Refused) {
  NodeRegistration node = Node();
  node.base_rank = -1;
  EXPECT_FALSE(DecodeRegistration(EncodeRegistration(node)).ok());
  node = Node();
  node.base_rank = kMaxRanks - 2;
  EXPECT_FALSE(DecodeRegistration(EncodeRegistration(node)).ok());
  node = Node();
  node.group_rank = -1;
  EXPECT_FALSE(DecodeRegistration(EncodeRegistration(node)).ok());
}

TEST(Registration, Decode_HugeCountOrHost_RefusedWithoutAllocating) {
  const std::string start = Number<uint32_t>(1) + Number<uint64_t>(7) + Number<int32_t>(0) + Number<int32_t>(0);
  EXPECT_FALSE(DecodeRegistration(start + Text("h") + Number<uint64_t>(UINT64_MAX)).ok());
  EXPECT_FALSE(DecodeRegistration(start + Text("h") + Number<uint64_t>(uint64_t{1} << 62)).ok());
  EXPECT_FALSE(DecodeRegistration(start + Number<uint64_t>(UINT64_MAX)).ok());
  EXPECT_FALSE(DecodeRegistration(start + Text(std::string(256, 'h')) + Number<uint64_t>(0)).ok());
}

TEST(Registration, Decode_OtherVersion_SaysSo) {
  std::string payload = EncodeRegistration(Node());
  payload[0] = 2;
  EXPECT_EQ(DecodeRegistration(payload).status().message(),
            "a registration of another version; use the same ddprun on all nodes");
}

TEST(Registration, Bytes_AreValidateAndOneRequest) {
  EXPECT_EQ(RegistrationBytes(Node()), Validate() + Op(Opcode::kRegisterNode) + Text(EncodeRegistration(Node())));
}

}  // namespace
}  // namespace ddprun::launcher
