// Jobs of one server with random faults: every invariant of docs/explorer.md holds, and every job ends. cluster_run
// runs larger clusters.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/simulation/simulated_cluster.h"

namespace ddprun::testing {
namespace {

TEST(ClusterTest, Faults_Random_EveryJobEnds) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Cluster::Settings settings;
    settings.keeps_records = seed % 3 != 0;
    Cluster cluster(settings, seed);
    cluster.Run();
    ASSERT_EQ(cluster.violation(), "") << "seed " << seed << "\n" << cluster.history();
    const Cluster::Totals totals = cluster.totals();
    std::printf("seed %d: %d jobs (%d succeeded, %d failed), %d rounds, %d faults, %d fenced\n", static_cast<int>(seed),
                totals.jobs, totals.succeeded, totals.failed, totals.rounds, totals.faults, totals.fenced);
    EXPECT_GT(totals.succeeded, totals.jobs / 4);
    EXPECT_GT(totals.rounds, totals.jobs);
    EXPECT_GT(totals.fenced, 0);
  }
}

TEST(ClusterTest, Seed_Same_SameHistory) {
  Cluster::Settings settings;
  settings.nodes = 40;
  Cluster one(settings, 7), other(settings, 7);
  one.Run();
  other.Run();
  EXPECT_EQ(one.violation(), "");
  EXPECT_EQ(one.history(), other.history());
  EXPECT_EQ(one.totals().events, other.totals().events);
}

}  // namespace
}  // namespace ddprun::testing
