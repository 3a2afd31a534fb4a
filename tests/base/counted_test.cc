#include "base/counted.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(CountedTest, OneIsSingular) {
  EXPECT_EQ(Counted(0, "node"), "0 nodes");
  EXPECT_EQ(Counted(1, "node"), "1 node");
  EXPECT_EQ(Counted(2, "GPU"), "2 GPUs");
}

}  // namespace
}  // namespace ddprun
