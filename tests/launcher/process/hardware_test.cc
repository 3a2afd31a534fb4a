#include "launcher/process/hardware.h"

#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "launcher/process/spawn_process.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

TEST(HardwareTest, CpuCount_FollowsTheAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(CpuCount(), CPU_COUNT(&before));
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(CpuCount(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

// A simulated host with four CPUs on two NUMA nodes, in files.
class CpuTopologyTest : public ::testing::Test {
 protected:
  CpuTopologyTest() {
    for (int cpu = 0; cpu < 4; ++cpu) {
      const std::string folder = absl::StrCat("sys/devices/system/cpu/cpu", cpu, "/");
      Write(folder + "topology/physical_package_id", absl::StrCat(cpu / 2));
      Write(folder + "topology/thread_siblings_list", absl::StrCat(cpu, "\n"));
      Write(folder + "cache/index0/type", "Data\n");
      Write(folder + "cache/index0/level", "1\n");
      Write(folder + "cache/index0/shared_cpu_list", absl::StrCat(cpu));
      Write(folder + "cache/index1/type", "Instruction\n");
      Write(folder + "cache/index1/level", "9\n");
      Write(folder + "cache/index1/shared_cpu_list", "0-3");
      Write(folder + "cache/index10/type", "Unified\n");
      Write(folder + "cache/index10/level", "3\n");
      Write(folder + "cache/index10/shared_cpu_list", cpu < 2 ? "0-1" : "2-3");
    }
    Write("sys/devices/system/node/node0/cpulist", "0-1\n");
    Write("sys/devices/system/node/node1/cpulist", "2-3\n");
    Write("sys/devices/system/node/possible", "0-1\n");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir_.File(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const testing::TempDir dir_;
};

TEST_F(CpuTopologyTest, Cpus_NodeSocketCoreAndLastLevelCache) {
  const auto topology = ReadCpuTopologyIn(dir_.path(), {1, 2, 3});
  ASSERT_TRUE(topology.ok()) << topology.status();
  ASSERT_EQ(topology->cpus.size(), 3) << "those that may be used";
  const CpuTopology::Cpu cpu = topology->cpus.at(3);
  EXPECT_EQ(cpu.node, 1);
  EXPECT_EQ(cpu.socket, 1);
  EXPECT_EQ(cpu.core, 3);
  EXPECT_EQ(cpu.cache, 2);
}

TEST_F(CpuTopologyTest, NothingKnown_OneNode) {
  const auto topology = ReadCpuTopologyIn("/no/such/root", {0, 5});
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cpus.at(5).core, 5);
  EXPECT_EQ(topology->cpus.at(5).node, 0);
  EXPECT_FALSE(ReadCpuTopologyIn("/no/such/root", {}).ok());
}

TEST(CpuMaskTest, CpuMask_Cpus_HasOneBitEach) {
  EXPECT_EQ(CpuMask({}), std::vector<unsigned long>{});
  EXPECT_EQ(CpuMask({0, 2}), std::vector<unsigned long>{5});
  EXPECT_EQ(CpuMask({65}), (std::vector<unsigned long>{0, 2}));
}

TEST(CpuMaskTest, SpawnedProgram_IsBoundFromItsFirstInstruction) {
  const auto topology = ReadCpuTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  const int last = topology->cpus.rbegin()->first;
  SpawnRequest request = RequestFor(
      {"/bin/sh", "-c", absl::StrCat("grep -q '^Cpus_allowed_list:[[:space:]]*", last, "$' /proc/self/status")});
  request.cpus = {last};
  const Child child = MustSpawn(request);
  EXPECT_TRUE(WaitFor(child).ok());
}

}  // namespace

}  // namespace ddprun::launcher
