#include "launcher/config/port_range.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/match.h"
#include "launcher/config/store_ports.h"

namespace ddprun::launcher {
namespace {

using Parts = std::vector<PortRange>;

TEST(ParsePortRange, BothForms_AreRead) {
  EXPECT_EQ(*ParsePortRange("20000-20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("20000:20100"), (PortRange{20000, 20100}));
  EXPECT_EQ(*ParsePortRange("1-65535"), PortRange());
  EXPECT_EQ(*ParsePortRange("7-7"), (PortRange{7, 7}));
  EXPECT_EQ((PortRange{20000, 20100}.ToString()), "20000-20100");
  const PortRange range{10, 12};
  EXPECT_TRUE(range.Has(10) && range.Has(12));
  EXPECT_FALSE(range.Has(9) || range.Has(13));
}

TEST(ParsePortRange, OtherText_IsAnErrorThatShowsTheForm) {
  for (const char* text : {"", "20000", "-", "1-", "-2", "1-2-3", "a-b", "0-5", "1-65536", "1 - 2", "1,2", "--1"}) {
    const absl::Status status = ParsePortRange(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "FIRST-LAST")) << status;
  }
  EXPECT_TRUE(absl::StrContains(ParsePortRange("9-8").status().message(), "smaller port first"));
}

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
