// The blocking parts of the client: lookups of names and probes of addresses.

#include "rendezvous/client/grpc_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"

namespace ddprun::rendezvous {
namespace {

TEST(GrpcClientTest, IsAddress_AddressesOnly) {
  EXPECT_TRUE(IsAddress("10.0.0.1"));
  EXPECT_TRUE(IsAddress("::1"));
  EXPECT_FALSE(IsAddress("localhost"));
}

TEST(GrpcClientTest, LookUpAddresses_Address_IsItself) {
  EXPECT_EQ(LookUpAddresses({"10.0.0.1", 29400}).value(), std::vector<std::string>{"10.0.0.1:29400"});
  EXPECT_EQ(LookUpAddresses({"::1", 29400}).value(), std::vector<std::string>{"[::1]:29400"});
}

bool Probe(const std::string& address) { return IsRefused(address, SteadyNow() + absl::Minutes(1)); }

// A socket bound to a free port, with or without listening.
class LocalSocket {
 public:
  LocalSocket(bool ipv6, bool listens) : fd_(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address = {};
    socklen_t size = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    address.sin6_family = ipv6 ? AF_INET6 : AF_INET;
    if (ipv6) {
      address.sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    bound_ = bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    if (listens) listen(fd_, 1);
    address_ = absl::StrCat(ipv6 ? "[::1]:" : "127.0.0.1:", ntohs(address.sin6_port));
  }
  ~LocalSocket() { close(fd_); }
  bool bound() const { return bound_; }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  bool bound_ = false;
  std::string address_;
};

TEST(GrpcClientTest, IsRefused_NoListener_IsTrue) {
  const LocalSocket socket(false, false);
  EXPECT_TRUE(Probe(socket.address()));
  const LocalSocket six(true, false);
  if (six.bound()) {
    EXPECT_TRUE(Probe(six.address()));
  }
}

TEST(GrpcClientTest, IsRefused_Listener_IsFalse) {
  const LocalSocket socket(false, true);
  EXPECT_FALSE(Probe(socket.address()));
}

TEST(GrpcClientTest, IsRefused_NoAddressOrNoRoute_IsFalse) {
  for (const char* address : {"", "name:1", "127.0.0.1", "[fe80::1%nowhere]:29400"}) {
    EXPECT_FALSE(Probe(address)) << address;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
