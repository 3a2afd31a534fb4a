#include "base/endpoint.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

TEST(ParseEndpoint, EveryForm_IsRead) {
  const struct {
    const char* text;
    Endpoint expected;
  } kCases[] = {
      {"node1", {"node1", 29400}},
      {"node1:1", {"node1", 1}},
      {"node1.cluster.local:29500", {"node1.cluster.local", 29500}},
      {"my_host-2:65535", {"my_host-2", 65535}},
      {"localhost:0", {"localhost", 0}},
      {"10.0.0.1", {"10.0.0.1", 29400}},
      {"10.0.0.1:80", {"10.0.0.1", 80}},
      {"[::1]", {"::1", 29400}},
      {"[::1]:29500", {"::1", 29500}},
      {"[fe80::1%eth0]:5", {"fe80::1%eth0", 5}},
      {"::1", {"::1", 29400}},
      {"2001:db8::7", {"2001:db8::7", 29400}},
      {"::ffff:10.0.0.1", {"::ffff:10.0.0.1", 29400}},
      {"3com", {"3com", 29400}},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(c.text, 29400);
    ASSERT_TRUE(endpoint.ok()) << c.text << ": " << endpoint.status();
    EXPECT_EQ(*endpoint, c.expected) << c.text;
  }
}

TEST(ParseEndpoint, AnythingElse_IsRefusedInOneLine) {
  const char kBad[] =
      "|:29400|host:|host:x|host:65536|host:-1|host:+5|host: "
      "5|a:b:c|host:1:2|[::1|::1]|[::1]x|[::1]29400|[host]:1|[]:1|"
      "[10.0.0.1]:1|http://host:1|host/path|a b|10.0.0:1|1.2.3.400|ho\nst|-host|fe80::1%|*|12345::1|tcp://[::1]:4|höst";
  std::vector<std::string> all = absl::StrSplit(kBad, '|');
  all.insert(all.end(), {std::string("host\0x", 6), std::string(254, 'a')});
  for (const std::string& bad : all) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(bad, 29400);
    ASSERT_FALSE(endpoint.ok()) << bad;
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(endpoint.status().message().find('\n'), absl::string_view::npos) << bad;
    EXPECT_FALSE(ParseEndpoint(bad).ok()) << bad;
  }
}

TEST(ParseEndpoint, WithoutDefaultPort_ThePortIsRequired) {
  for (const char* text : {"127.0.0.1:29400", "[::1]:0", "[fe80::1%eth0]:65535", "node-7.example:1"}) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->ToString(), text);
  }
  for (const char* text : {"node1", "10.0.0.1", "[::1]", "::1", "2001:db8::7:80"}) {
    EXPECT_FALSE(ParseEndpoint(text).ok()) << text;
  }
  EXPECT_EQ(ParseEndpoint("node1").status().message(), "'node1' is not HOST:PORT or [IPV6]:PORT: the port is missing");
}

TEST(ParseEndpoints, List_AllOrNothing) {
  EXPECT_EQ(*ParseEndpoints("a:1,[::1]:2,b", 7), (std::vector<Endpoint>{{"a", 1}, {"::1", 2}, {"b", 7}}));
  EXPECT_EQ(*ParseEndpoints("a:0", 7), (std::vector<Endpoint>{{"a", 0}}));
  for (const char* text : {"", "a:1,", ",a:1", "a:1,b:0"}) EXPECT_FALSE(ParseEndpoints(text, 7).ok()) << text;
  EXPECT_FALSE(ParseEndpoints("a:1,b", std::nullopt).ok());
}

TEST(ParseHost, NamesAndAddresses_AreRead) {
  EXPECT_EQ(*ParseHost("node1"), "node1");
  EXPECT_EQ(*ParseHost("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(*ParseHost("[::1]"), "::1");
  EXPECT_EQ(*ParseHost("fe80::1%eth0"), "fe80::1%eth0");
  for (const char* bad : {"", "host:1", "[::1]:1", "[x]", "a b", "1.2.3"}) EXPECT_FALSE(ParseHost(bad).ok()) << bad;
}

}  // namespace
}  // namespace ddprun
