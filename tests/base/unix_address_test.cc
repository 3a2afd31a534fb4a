#include "base/unix_address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

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
  const std::string name = absl::StrCat("@unix_address_test_", getpid());
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
