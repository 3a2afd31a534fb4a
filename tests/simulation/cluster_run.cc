// cluster_run NODES [FIRST_SEED [COUNT]]: simulates a cluster for each seed and prints its totals.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "tests/simulation/simulated_cluster.h"

int main(int argc, char** argv) {
  using ddprun::testing::Cluster;
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 0;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const uint64_t count = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  if (nodes < 1 || nodes > 100'000) {
    std::fprintf(stderr, "usage: cluster_run NODES [FIRST_SEED [COUNT]], with 1 to 100000 nodes\n");
    return 2;
  }
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Cluster::Settings settings;
    settings.nodes = nodes;
    settings.keeps_records = seed % 3 != 0;
    Cluster cluster(settings, seed);
    cluster.Run();
    const Cluster::Totals t = cluster.totals();
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);  // sum over all seeds so far
    std::printf(
        "seed %llu: %d nodes, %d jobs (%d succeeded, %d failed), %d launchers, %d rounds, %d faults, %d fenced, "
        "%llu events in %.0f simulated s; %ld CPU s, %ld MiB so far\n",
        static_cast<unsigned long long>(seed), nodes, t.jobs, t.succeeded, t.failed, t.launchers, t.rounds, t.faults,
        t.fenced, static_cast<unsigned long long>(t.events), absl::ToDoubleSeconds(t.time),
        static_cast<long>(usage.ru_utime.tv_sec), usage.ru_maxrss / 1024);
    std::fflush(stdout);
    if (cluster.violation().empty()) continue;
    std::printf("%s\nseed %llu: %s\n", cluster.history().c_str(), static_cast<unsigned long long>(seed),
                cluster.violation().c_str());
    return 1;
  }
  return 0;
}
