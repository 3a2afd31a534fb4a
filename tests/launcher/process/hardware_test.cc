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

TEST(HardwareTest, Gpus_DeviceFiles_AreCounted) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const testing::TempDir dir;
  EXPECT_EQ(InspectGpus(dir.path()).nvidia, 0);
  EXPECT_EQ(InspectGpus(dir.path()).other, "");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "kfd"}) {
    std::ofstream(dir.File(name)) << "";
  }
  const GpuFacts facts = InspectGpus(dir.path());
  EXPECT_EQ(facts.nvidia, 4);
  EXPECT_EQ(facts.other, dir.File("kfd") + " (AMD)");
  ASSERT_TRUE(facts.visible);
  EXPECT_EQ(facts.visible->source, "CUDA_VISIBLE_DEVICES=1");
  EXPECT_EQ(InspectGpus("/no/such/folder").nvidia, 0);
}

// A simulated host with four CPUs on two NUMA nodes and two GPUs, in files.
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
    AddGpu("0000:9c:00.0", "GPU-aaaa", "1");
    AddGpu("0000:1B:00.0", "GPU-bbbb", "-1");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir_.File(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void AddGpu(const std::string& address, const std::string& uuid, const std::string& node) const {
    Write(absl::StrCat("proc/driver/nvidia/gpus/", address, "/information"),
          absl::StrCat("Model: \t\t NVIDIA H200\nGPU UUID: \t ", uuid, "\nDevice Minor: \t 0\n"));
    std::string lower = address;
    for (char& c : lower) c = static_cast<char>(tolower(c));
    Write(absl::StrCat("sys/bus/pci/devices/", lower, "/numa_node"), node + "\n");
  }
  std::vector<int> GpuNodes(const char* visible) const {
    return ReadCpuTopologyIn(dir_.path(), {0, 1, 2, 3}, Found<std::string>{visible, ""})->gpu_nodes;
  }

  const testing::TempDir dir_;
};

TEST_F(CpuTopologyTest, Cpus_NodeSocketCoreAndLastLevelCache) {
  const auto topology = ReadCpuTopologyIn(dir_.path(), {1, 2, 3}, std::nullopt);
  ASSERT_TRUE(topology.ok()) << topology.status();
  ASSERT_EQ(topology->cpus.size(), 3) << "those that may be used";
  const CpuTopology::Cpu cpu = topology->cpus.at(3);
  EXPECT_EQ(cpu.node, 1);
  EXPECT_EQ(cpu.socket, 1);
  EXPECT_EQ(cpu.core, 3);
  EXPECT_EQ(cpu.cache, 2);
}

TEST_F(CpuTopologyTest, Gpus_FollowAddressOrVariable) {
  EXPECT_EQ(ReadCpuTopologyIn(dir_.path(), {0}, std::nullopt)->gpu_nodes, (std::vector<int>{0, 1})) << "1b before 9c";
  EXPECT_EQ(GpuNodes("1"), (std::vector<int>{1}));
  EXPECT_EQ(GpuNodes("1, 0"), (std::vector<int>{1, 0}));
  EXPECT_EQ(GpuNodes("GPU-aa,GPU-bbbb"), (std::vector<int>{1, 0}));
  EXPECT_EQ(GpuNodes("0,-1,1"), (std::vector<int>{0}));
  EXPECT_EQ(GpuNodes(""), (std::vector<int>{}));
  EXPECT_EQ(ReadCpuTopologyIn(dir_.path(), {0}, Found<std::string>{"MIG-1", "V=MIG-1"}).status().message(),
            "V=MIG-1 names MIG-1, whose location is not known");
}

TEST_F(CpuTopologyTest, NothingKnown_OneNodeWithoutGpus) {
  const auto topology = ReadCpuTopologyIn("/no/such/root", {0, 5}, std::nullopt);
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->cpus.at(5).core, 5);
  EXPECT_EQ(topology->cpus.at(5).node, 0);
  EXPECT_TRUE(topology->gpu_nodes.empty());
  EXPECT_FALSE(ReadCpuTopologyIn("/no/such/root", {}, std::nullopt).ok());
}

TEST(CpuMaskTest, CpuMask_Cpus_HasOneBitEach) {
  EXPECT_EQ(CpuMask({}), std::vector<unsigned long>{});
  EXPECT_EQ(CpuMask({0, 2}), std::vector<unsigned long>{5});
  EXPECT_EQ(CpuMask({65}), (std::vector<unsigned long>{0, 2}));
}

TEST(CpuMaskTest, SpawnedProgram_IsBoundFromItsFirstInstruction) {
  const auto topology = ReadCpuTopology(std::nullopt);
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
