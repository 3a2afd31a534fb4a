#include "launcher/io/net.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<InterfaceAddress> Outward() {
  std::vector<InterfaceAddress> result = LocalAddresses();
  std::erase_if(result, [](const InterfaceAddress& a) { return a.loopback || a.link_local; });
  return result;
}

bool IsOwn(const std::string& address) {
  const std::vector<InterfaceAddress> all = LocalAddresses();
  return std::any_of(all.begin(), all.end(), [&](const InterfaceAddress& a) { return a.address == address; });
}

TEST(NetTest, LocalAddresses_HaveLoopback) {
  const std::vector<InterfaceAddress> all = LocalAddresses();
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& a) { return a.address == "127.0.0.1"; });
  ASSERT_NE(found, all.end());
  EXPECT_TRUE(found->loopback);
  EXPECT_FALSE(found->ipv6);
  EXPECT_FALSE(found->link_local);
}

TEST(NetTest, ResolveHost_Address_IsReturnedUnchanged) {
  EXPECT_THAT(*ResolveHost("192.0.2.77"), ElementsAre("192.0.2.77"));
  EXPECT_THAT(*ResolveHost("[2001:db8::7]"), ElementsAre("2001:db8::7"));
  EXPECT_THAT(*ResolveHost("2001:DB8:0::7"), ElementsAre("2001:db8::7"));
  EXPECT_THAT(*ResolveHost("localhost"), Each(AnyOf("127.0.0.1", "::1")));
}

TEST(NetTest, ResolveHost_UnknownName_IsInTheError) {
  for (const auto& status :
       {ResolveHost("no host has spaces").status(), LocalAddressTowards("no host has spaces", 29400).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status));
    EXPECT_THAT(status.message(), HasSubstr("'no host has spaces'"));
  }
}

TEST(NetTest, IsLocalHost_OwnNamesAndAddresses_AreLocal) {
  for (const char* host : {"localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "0.0.0.0",
                           "::", "::ffff:127.0.0.1", "any.localhost"}) {
    EXPECT_TRUE(IsLocalHost(host)) << host;
  }
  EXPECT_TRUE(IsLocalHost(Hostname()));
  for (const InterfaceAddress& address : Outward()) EXPECT_TRUE(IsLocalHost(address.address)) << address.address;
}

TEST(NetTest, IsLocalHost_OtherHosts_AreNot) {
  // Addresses reserved for documentation, which no interface of a test machine has.
  for (const char* host : {"203.0.113.77", "2001:db8:ffff::77", "[2001:db8:ffff::77]", "", "no host has spaces"}) {
    EXPECT_FALSE(IsLocalHost(host)) << host;
  }
}

TEST(NetTest, LocalAddressTowards_Loopback_StaysLoopback) {
  EXPECT_EQ(*LocalAddressTowards("localhost", 29400), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1", 29400), "127.0.0.1");
  if (!IsOwn("::1")) GTEST_SKIP() << "no IPv6 on this machine";
  EXPECT_EQ(*LocalAddressTowards("::1", 29400), "::1");
  EXPECT_EQ(*LocalAddressTowards("[::1]", 29400), "::1");
}

TEST(NetTest, LocalAddressTowards_OwnAddress_IsThatAddress) {
  if (Outward().empty()) GTEST_SKIP() << "this machine has no address but loopback";
  for (const InterfaceAddress& address : Outward()) {
    EXPECT_EQ(*LocalAddressTowards(address.address, 29400), address.address);
  }
}

TEST(NetTest, LocalAddressTowards_OwnName_IsNotLoopbackIfThereIsAnother) {
  const auto address = LocalAddressTowards(Hostname(), 29400);
  ASSERT_TRUE(address.ok()) << address.status();
  if (Outward().empty() || Hostname() == "localhost") {
    EXPECT_THAT(*address, ::testing::StartsWith("127."));
  } else {
    EXPECT_TRUE(IsOwn(*address)) << *address;
    EXPECT_THAT(*address, ::testing::Not(::testing::StartsWith("127.")));
  }
}

}  // namespace
}  // namespace ddprun::launcher
