#include "base/socket_address.h"

#include <gtest/gtest.h>

#include <string>

#include "base/loopback.h"

namespace ddprun {
namespace {

TEST(SocketAddress, NumericAddress_TextAndPort_ComeBack) {
  for (const std::string text : {"127.0.0.1", "10.0.0.5", "::1", "2001:db8::7"}) {
    const auto address = NumericAddress(text, 29500);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(AddressText(*address), text);
    EXPECT_EQ(PortOf(*address), 29500);
  }
}

TEST(SocketAddress, NumericAddress_AnythingElse_Refused) {
  for (const std::string text : {"", "localhost", "host.example", "1.2.3.4:5", "[::1]"}) {
    const auto address = NumericAddress(text, 1);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(SocketAddress, AddressText_Ipv4OverIpv6_ReadsAsIpv4) {
  EXPECT_EQ(AddressText(*NumericAddress("::ffff:10.0.0.5", 1)), "10.0.0.5");
}

TEST(SocketAddress, IsLoopback_OfAllFamilies) {
  for (const std::string text : {"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(*NumericAddress(text, 1))) << text;
  }
  for (const std::string text : {"10.0.0.5", "::", "0.0.0.0", "128.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(*NumericAddress(text, 1))) << text;
  }
}

TEST(LoopbackTest, NamesAndAddressesOfTheHostItself) {
  for (const char* host : {"localhost", "LocalHost", "localhost.localdomain", "a.localhost", "127.0.0.1", "127.8.9.1",
                           "::1", "[::1]", "0:0::1", "::ffff:127.0.0.1", "[::ffff:127.9.0.1]"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
}

TEST(LoopbackTest, EverythingElse_IsAnotherHost) {
  for (const char* host : {"", "[]", "node1", "localhost1", "127.example.org", "127.0.0", "128.0.0.1", "10.0.0.5",
                           "::", "0.0.0.0", "::ffff:10.0.0.1", "::2", "[localhost]"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(LoopbackTest, Address_HasNoBracketsAndIsNoName) {
  EXPECT_TRUE(IsLoopbackAddress("127.1.2.3"));
  EXPECT_TRUE(IsLoopbackAddress("::1"));
  for (const char* other : {"localhost", "[::1]", "127.0.0.1:80", "127.1", ""}) {
    EXPECT_FALSE(IsLoopbackAddress(other)) << other;
  }
}

TEST(LoopbackTest, LocalhostName_IsNoAddress) {
  EXPECT_TRUE(IsLocalhostName("LOCALHOST"));
  EXPECT_FALSE(IsLocalhostName("127.0.0.1"));
}

}  // namespace
}  // namespace ddprun
