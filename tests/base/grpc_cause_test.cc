#include "base/grpc_cause.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(GrpcCauseTest, WrappersAndAddressesAreLeftOut) {
  EXPECT_EQ(GrpcCause("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:29400: Failed to connect "
                      "to remote host: Connection refused"),
            "Connection refused");
  EXPECT_EQ(
      GrpcCause("failed to connect to all addresses; last error: UNAVAILABLE: ipv6:%5B::1%5D:29400: Socket closed"),
      "Socket closed");
  EXPECT_EQ(GrpcCause("ipv4:10.0.0.1:29400: sendmsg:Broken pipe"), "Broken pipe");
  EXPECT_EQ(GrpcCause("recvmsg:Connection reset by peer"), "Connection reset by peer");
}

TEST(GrpcCauseTest, AnythingElseStays) {
  for (const char* message : {"", "etcdserver: no leader", "nnodes differs: 2 on ipv4:", "host ipv6:x"}) {
    EXPECT_EQ(GrpcCause(message), message);
  }
}

}  // namespace
}  // namespace ddprun
