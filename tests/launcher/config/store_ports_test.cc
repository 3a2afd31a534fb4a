#include "launcher/config/store_ports.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using Parts = std::vector<PortRange>;

TEST(StorePortsTest, FirstStore_AllButTheReserved) {
  EXPECT_EQ(StorePorts({10, 19}, 0, 0), (Parts{{10, 19}}));
  EXPECT_EQ(StorePorts({10, 19}, 10, 0), (Parts{{11, 19}}));
  EXPECT_EQ(StorePorts({10, 19}, 19, 0), (Parts{{10, 18}}));
  EXPECT_EQ(StorePorts({10, 19}, 14, 0), (Parts{{10, 13}, {15, 19}}));
  EXPECT_EQ(StorePorts({10, 10}, 10, 0), Parts{});
}

TEST(StorePortsTest, LaterStores_BeginBeyondTheLast) {
  EXPECT_EQ(StorePorts({10, 19}, 0, 12), (Parts{{13, 19}, {10, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 10, 12), (Parts{{13, 19}, {11, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 13, 12), (Parts{{14, 19}, {10, 12}}));
  EXPECT_EQ(StorePorts({10, 19}, 0, 19), (Parts{{10, 19}})) << "again from the start";
  EXPECT_EQ(StorePorts({10, 11}, 10, 11), (Parts{{11, 11}})) << "the only one";
}

}  // namespace
}  // namespace ddprun::launcher
