#include "launcher/config/node_count.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ParseNodeCount, NumberAndRange_AreRead) {
  EXPECT_EQ(*ParseNodeCount("1"), (NodeCount{1, 1}));
  EXPECT_EQ(*ParseNodeCount("12"), (NodeCount{12, 12}));
  EXPECT_EQ(*ParseNodeCount("1:4"), (NodeCount{1, 4}));
  EXPECT_EQ(*ParseNodeCount("3:3"), (NodeCount{3, 3}));
  EXPECT_EQ(*ParseNodeCount("100000"), (NodeCount{100000, 100000}));
}

TEST(ParseNodeCount, AnythingElse_IsRefused) {
  for (const char* bad :
       {"", "0", "-1", "x", "1:", ":2", "0:2", "4:1", "1:2:3", "1-2", "1.5", "1 :2", "1000001", ":"}) {
    EXPECT_FALSE(ParseNodeCount(bad).ok()) << bad;
  }
  EXPECT_EQ(ParseNodeCount("4:1").status().message(),
            "'4:1' asks for at least 4 and at most 1 nodes: put the smaller number first");
}

TEST(ParseProcessCount, NumberAndWords_AreRead) {
  EXPECT_EQ(*ParseProcessCount("8"), (ProcessCount{ProcessCount::Kind::kNumber, 8}));
  EXPECT_EQ(ParseProcessCount("cpu")->kind, ProcessCount::Kind::kCpu);
  EXPECT_EQ(ParseProcessCount("gpu")->kind, ProcessCount::Kind::kGpu);
  EXPECT_EQ(ParseProcessCount("auto")->kind, ProcessCount::Kind::kAuto);
  for (const char* bad : {"", "0", "-2", "xpu", "GPU", "8.0", "10001", "cpu "}) {
    EXPECT_FALSE(ParseProcessCount(bad).ok()) << bad;
  }
}

TEST(CountProcesses, Devices_AreCounted) {
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("3"), 8, 2), 3);
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("cpu"), 8, 2), 8);
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("gpu"), 8, 2), 2);
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("auto"), 8, 2), 2);
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("auto"), 8, 0), 8);
  EXPECT_EQ(*CountProcesses(*ParseProcessCount("cpu"), 0, 0), 1);
  EXPECT_EQ(CountProcesses(*ParseProcessCount("gpu"), 8, 0).status().message(),
            "this node has no GPU: give a number, or cpu");
}

}  // namespace
}  // namespace ddprun::launcher
