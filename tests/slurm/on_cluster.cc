// Not a test: runs the command in $ON_CLUSTER on the head of a two-node cluster, in the folder of the checkout. For
// benchmarks and experiments:
//
//   ON_CLUSTER='srun -N2 hostname' bazel run //tests/slurm:on_cluster
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/slurm/slurm_cluster.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

class OnCluster : public SlurmTest {
 protected:
  static void SetUpTestSuite() { BringUp({.cpus = {4, 4}}); }
};

TEST_F(OnCluster, Command) {
  const char* const command = getenv("ON_CLUSTER");
  ASSERT_NE(command, nullptr) << "put the command into ON_CLUSTER";
  EXPECT_EQ(system(absl::StrCat("cd ", SourceRoot(), "; ", command).c_str()), 0);
}

}  // namespace
}  // namespace ddprun::testing
