#include "launcher/os/hardware.h"

#include <sched.h>

#include <fstream>
#include <optional>

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

class GpuCountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"}) {
      std::ofstream(dir_.File(name)) << "";
    }
  }
  int Count(std::optional<std::string> visible) { return GpuCountIn(dir_.path(), visible); }

  const testing::TempDir dir_;
};

TEST_F(GpuCountTest, Variable_NarrowsThem_UpToItsFirstInvalidEntry) {
  EXPECT_EQ(Count(std::nullopt), 4);
  const std::pair<const char*, int> kCases[] = {
      {"0", 1},      {"2,0", 2},  {" 1 , 3 ", 2}, {"GPU-8932f937-d72c,GPU-1", 2},
      {"MIG-a", 1},  {"", 0},     {"-1", 0},      {"NoDevFiles", 0},
      {"0,-1,1", 1}, {"0,4,1", 1}};
  for (const auto& [visible, count] : kCases) EXPECT_EQ(Count(visible), count) << visible;
  for (const auto& visible : {std::optional<std::string>(), std::optional<std::string>("GPU-1")}) {
    EXPECT_EQ(GpuCountIn("/no/such/folder", visible), 0);
  }
}

}  // namespace
}  // namespace ddprun::launcher
