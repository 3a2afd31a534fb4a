// A short run of leader_kills.py: jobs that form, fail, end and lose launchers, while the leader is killed,
// paused and terminated. The script checks its invariants; its times are ignored.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/rendezvous/ha/etcd_cluster.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

TEST(LeaderKillsTest, JobsFormFailAndEnd_NothingIsLostOrDoneTwice) {
  if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv (scripts/setup makes one)";
  Process kills({VenvPython(), "tests/rendezvous/ha/leader_kills.py", "--kills=3", "--jobs=6", "--seed=3", "--bin=."},
                {{"PYTHONDONTWRITEBYTECODE", "1"}});
  EXPECT_EQ(kills.Wait(), 0) << kills.Out() << kills.Err();
  EXPECT_TRUE(absl::StrContains(kills.Out(), "holds   no two rounds")) << kills.Out();
}

}  // namespace
}  // namespace ddprun::testing
