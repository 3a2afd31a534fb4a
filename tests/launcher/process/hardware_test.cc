#include "launcher/process/hardware.h"

#include <sched.h>
#include <stdlib.h>

#include <fstream>

#include "gtest/gtest.h"
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

TEST(HardwareTest, Gpus_AreCountedByTheirDeviceFiles) {
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

}  // namespace
}  // namespace ddprun::launcher
