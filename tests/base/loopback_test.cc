#include "base/loopback.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

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
