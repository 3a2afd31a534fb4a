#include "base/socket_address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

TEST(SocketAddress, NumericAddress_TextAndPort_ComeBack) {
  for (const std::string text : {"127.0.0.1", "10.0.0.5", "::1", "2001:db8::7"}) {
    const auto address = NumericAddress(text, 29500);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(AddressText(*address), text);
    EXPECT_EQ(PortOf(*address), 29500);
  }
  EXPECT_EQ(AddressText(*NumericAddress("::ffff:10.0.0.5", 1)), "10.0.0.5");
  for (const std::string text : {"", "localhost", "host.example", "1.2.3.4:5", "[::1]"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(NumericAddress(text, 1).status())) << text;
  }
}

TEST(LoopbackTest, EveryForm_IsKnown) {
  const struct {
    const char* host;
    bool address, name, loopback;  // IsLoopbackAddress, IsLocalhostName, IsLoopbackHost
  } kCases[] = {
      {"127.0.0.1", true, false, true},
      {"127.8.9.1", true, false, true},
      {"::1", true, false, true},
      {"::ffff:127.0.0.1", true, false, true},
      {"0:0::1", true, false, true},
      {"[::1]", false, false, true},
      {"[::ffff:127.9.0.1]", false, false, true},
      {"localhost", false, true, true},
      {"LocalHost", false, true, true},
      {"localhost.localdomain", false, true, true},
      {"a.localhost", false, true, true},
      {"127.0.0.1:80", false, false, false},
  };
  for (const auto& [host, address, name, loopback] : kCases) {
    EXPECT_EQ(IsLoopbackAddress(host), address) << host;
    EXPECT_EQ(IsLocalhostName(host), name) << host;
    EXPECT_EQ(IsLoopbackHost(host), loopback) << host;
    if (const auto numeric = NumericAddress(host, 1); numeric.ok()) {
      EXPECT_EQ(IsLoopback(*numeric), loopback) << host;
    }
  }
  for (const char* host : {"", "[]", "node1", "localhost1", "127.example.org", "127.0.0", "127.1", "128.0.0.1",
                           "10.0.0.5", "::", "0.0.0.0", "::ffff:10.0.0.1", "::2", "[localhost]"}) {
    EXPECT_FALSE(IsLoopbackAddress(host) || IsLocalhostName(host) || IsLoopbackHost(host)) << host;
  }
  for (const char* host : {"10.0.0.5", "::", "0.0.0.0", "128.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(*NumericAddress(host, 1))) << host;
  }
}

// Checks that a client reaches a server at `text`.
void Meet(const std::string& text) {
  const auto address = UnixAddress::Parse(text);
  ASSERT_TRUE(address.has_value()) << text;
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(server, address->get(), address->size()), 0) << text;
  ASSERT_EQ(listen(server, 1), 0);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(client, address->get(), address->size()), 0) << text;
  close(client);
  close(server);
}

TEST(UnixAddressTest, Name_IsAbstract) {
  const std::string name = absl::StrCat("@socket_address_test_", getpid());
  Meet(name);
  EXPECT_NE(access(name.c_str(), F_OK), 0) << "a file was created";
  // The address is only as long as its text: an additional character names another socket.
  const auto longer = UnixAddress::Parse(name + "x"), same = UnixAddress::Parse(name);
  EXPECT_EQ(longer->size(), same->size() + 1);
}

TEST(UnixAddressTest, Path_IsAFile) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/s");
  if (path.size() > 107) GTEST_SKIP() << "the folder for tests has too long a name for a socket";
  Meet(path);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
}

TEST(UnixAddressTest, OtherTexts_AreRefused) {
  EXPECT_TRUE(UnixAddress::Parse(absl::StrCat("@", std::string(106, 'a'))).has_value());
  EXPECT_TRUE(UnixAddress::Parse(absl::StrCat("/", std::string(106, 'a'))).has_value());
  for (const std::string& text : {std::string(), std::string("@"), std::string("/"), std::string("file"),
                                  "@" + std::string(107, 'a'), "/" + std::string(107, 'a')}) {
    EXPECT_FALSE(UnixAddress::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace ddprun
