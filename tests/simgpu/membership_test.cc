// The functions of the simulated NCCL that make communicators of others.
#include <gtest/gtest.h>

#include "tests/simgpu/simulated_gpus.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

TEST(MembershipTest, Communicators_SplitShrunkGrown_ExchangeData) {
  Process ranks({"/usr/bin/env", "python3", "tests/simgpu/membership.py"}, SimulatedGpus(4));
  EXPECT_EQ(ranks.Wait(), 0) << ranks.Err();
  EXPECT_EQ(ranks.Out(), "ok\n");
}

}  // namespace
}  // namespace ddprun::testing
