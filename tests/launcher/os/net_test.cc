#include "launcher/os/net.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/hostname.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

std::vector<InterfaceAddress> Outward() {
  std::vector<InterfaceAddress> result = LocalAddresses();
  result.erase(std::remove_if(result.begin(), result.end(),
                              [](const InterfaceAddress& a) { return a.loopback || a.link_local; }),
               result.end());
  return result;
}

bool IsOwn(const std::string& address) {
  const std::vector<InterfaceAddress> all = LocalAddresses();
  return std::any_of(all.begin(), all.end(), [&](const InterfaceAddress& a) { return a.address == address; });
}

TEST(NetTest, LocalAddresses_HaveLoopback) {
  bool found = false;
  for (const InterfaceAddress& address : LocalAddresses()) {
    if (address.address != "127.0.0.1") continue;
    found = true;
    EXPECT_TRUE(address.loopback);
    EXPECT_FALSE(address.ipv6);
    EXPECT_FALSE(address.link_local);
  }
  EXPECT_TRUE(found);
}

TEST(NetTest, ResolveHost_Addresses_AreTakenAsTheyAre) {
  EXPECT_EQ(*ResolveHost("192.0.2.77"), std::vector<std::string>{"192.0.2.77"});
  EXPECT_EQ(*ResolveHost("[2001:db8::7]"), std::vector<std::string>{"2001:db8::7"});
  EXPECT_EQ(*ResolveHost("2001:DB8:0::7"), std::vector<std::string>{"2001:db8::7"});
}

TEST(NetTest, ResolveHost_Localhost_IsLoopback) {
  const auto addresses = ResolveHost("localhost");
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  for (const std::string& address : *addresses) EXPECT_TRUE(address == "127.0.0.1" || address == "::1") << address;
}

TEST(NetTest, ResolveHost_Impossible_NamesTheHost) {
  const auto addresses = ResolveHost("no host has spaces");
  EXPECT_TRUE(absl::IsNotFound(addresses.status()));
  EXPECT_THAT(std::string(addresses.status().message()), HasSubstr("can't resolve host 'no host has spaces': "));
}

TEST(NetTest, IsLocalHost_OwnNamesAndAddresses) {
  for (const char* host : {"localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "0.0.0.0",
                           "::", "::ffff:127.0.0.1", "any.localhost"}) {
    EXPECT_TRUE(IsLocalHost(host)) << host;
  }
  EXPECT_TRUE(IsLocalHost(Hostname()));
  for (const InterfaceAddress& address : Outward()) EXPECT_TRUE(IsLocalHost(address.address)) << address.address;
}

TEST(NetTest, IsLocalHost_OthersAndNonsense_AreNot) {
  // Addresses reserved for documentation, which no interface of a test machine has.
  for (const char* host : {"203.0.113.77", "2001:db8:ffff::77", "[2001:db8:ffff::77]", "", "no host has spaces"}) {
    EXPECT_FALSE(IsLocalHost(host)) << host;
  }
}

TEST(NetTest, LocalAddressTowards_Loopback_StaysLoopback) {
  EXPECT_EQ(*LocalAddressTowards("localhost", 29400), "127.0.0.1");
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1", 29400), "127.0.0.1");
}

TEST(NetTest, LocalAddressTowards_Ipv6Loopback_StaysLoopback) {
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

TEST(NetTest, LocalAddressTowards_UnknownName_NamesIt) {
  const auto address = LocalAddressTowards("no host has spaces", 29400);
  EXPECT_TRUE(absl::IsNotFound(address.status()));
  EXPECT_THAT(std::string(address.status().message()), HasSubstr("'no host has spaces'"));
}

TEST(NetTest, Hostname_IsNotEmpty) { EXPECT_FALSE(Hostname().empty()); }

}  // namespace
}  // namespace ddprun::launcher
