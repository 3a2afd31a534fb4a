#include "launcher/config/cpu_binding.h"

#include <set>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

using Workers = std::vector<std::vector<int>>;

// Two sockets of two NUMA nodes of four cores of two threads: thread t of core c is CPU c + 16 t. Each pair of cores
// shares a cache.
CpuTopology Host(std::vector<int> gpu_nodes) {
  CpuTopology topology;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16;
    topology.cpus[cpu] = {core / 4, core / 8, core, core / 2 * 2};
  }
  topology.gpu_nodes = std::move(gpu_nodes);
  return topology;
}

Workers Bind(CpuBinding binding, const CpuTopology& topology, int workers) {
  absl::StatusOr<Workers> bound = BindWorkers(binding, topology, workers);
  EXPECT_TRUE(bound.ok()) << bound.status();
  return bound.value_or(Workers());
}

TEST(ParseCpuBinding, TorchrunsModes_AreParsed) {
  EXPECT_EQ(*ParseCpuBinding("node"), CpuBinding::kNode);
  EXPECT_EQ(*ParseCpuBinding("core-complex"), CpuBinding::kCoreComplex);
  EXPECT_EQ(ParseCpuBinding("core").status().message(), "'core' is not node, socket, exclusive or core-complex");
}

TEST(ParseCpuList, KernelFormat_IsParsed) {
  EXPECT_EQ(ParseCpuList("0-2,4, 6-6\n"), (std::vector<int>{0, 1, 2, 4, 6}));
  EXPECT_EQ(ParseCpuList(""), std::vector<int>{});
  for (const char* bad : {"a", "1-", "-1", "3-1", "0-99999999", "1--2"})
    EXPECT_EQ(ParseCpuList(bad), std::nullopt) << bad;
}

TEST(BindWorkers, NodeOrSocket_IsAllCpusNearTheGpu) {
  EXPECT_EQ(Bind(CpuBinding::kNode, Host({3, 0}), 2),
            (Workers{{12, 13, 14, 15, 28, 29, 30, 31}, {0, 1, 2, 3, 16, 17, 18, 19}}));
  EXPECT_EQ(Bind(CpuBinding::kSocket, Host({2}), 1),
            (Workers{{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}}));
}

TEST(BindWorkers, Exclusive_CoresAreDividedWithBothThreads) {
  // Three GPUs share a node's four cores: the first GPU gets two. A GPU without a worker keeps its share.
  EXPECT_EQ(Bind(CpuBinding::kExclusive, Host({1, 1, 0, 1}), 3),
            (Workers{{4, 5, 20, 21}, {6, 22}, {0, 1, 2, 3, 16, 17, 18, 19}}));
  EXPECT_EQ(BindWorkers(CpuBinding::kExclusive, Host({0}), 5).status().message(),
            "NUMA node 0 has 4 cores for 5 workers or GPUs: use node");
}

TEST(BindWorkers, CoreComplex_IsAnotherCacheForEachLargestFirst) {
  CpuTopology host = Host({0, 0, 0});
  host.cpus.erase(0);  // the first cache has three CPUs now
  const Workers bound = Bind(CpuBinding::kCoreComplex, host, 3);
  EXPECT_EQ(bound[0], (std::vector<int>{2, 3, 18, 19}));
  EXPECT_EQ(bound[1], (std::vector<int>{1, 16, 17}));
  EXPECT_EQ(bound[2], bound[0]) << "there are two";
}

TEST(BindWorkers, NoGpu_NeighboursShareANode) {
  const Workers bound = Bind(CpuBinding::kNode, Host({}), 8);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(bound[rank].front(), rank / 2 * 4);
  EXPECT_EQ(Bind(CpuBinding::kNode, Host({}), 2)[1].front(), 8) << "one on each socket";
}

TEST(BindWorkers, MoreWorkersThanGpus_StartOverWithTheFirst) {
  const Workers bound = Bind(CpuBinding::kNode, Host({0, 2}), 4);
  EXPECT_EQ(bound[0], bound[2]);
  EXPECT_EQ(bound[1], bound[3]);
  const Workers exclusive = Bind(CpuBinding::kExclusive, Host({0, 2}), 4);
  std::set<int> cpus;
  size_t all = 0;
  for (const std::vector<int>& worker : exclusive) {
    cpus.insert(worker.begin(), worker.end());
    all += worker.size();
  }
  EXPECT_EQ(cpus.size(), all) << "no CPU belongs to two";
}

TEST(BindWorkers, NoUsableCpu_ErrorNamesTheNumaNode) {
  CpuTopology host = Host({3});
  std::erase_if(host.cpus, [](const auto& cpu) { return cpu.second.node == 3; });
  EXPECT_TRUE(absl::StrContains(BindWorkers(CpuBinding::kNode, host, 1).status().message(), "on NUMA node 3"));
}

}  // namespace
}  // namespace ddprun::launcher
