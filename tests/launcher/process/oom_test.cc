#include "launcher/process/oom.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

class OomTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) {
    const std::filesystem::path file = dir_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  const testing::TempDir dir_;
};

TEST_F(OomTest, Sample_Version2_ReadsTheOwnGroup) {
  Write("/proc/self/cgroup", "0::/job/7\n");
  Write("/sys/fs/cgroup/job/7/memory.events", "low 0\nhigh 1\nmax 5\noom 4\noom_kill 3\noom_group_kill 1\n");
  Write("/proc/vmstat", "nr_free_pages 1\noom_kill 9\n");
  const OomSample sample = SampleOom(dir_.path());
  EXPECT_EQ(sample.in_cgroup, 3);
  EXPECT_EQ(sample.on_host, 9);
}

TEST_F(OomTest, Sample_Version1_ReadsTheMemoryController) {
  EXPECT_FALSE(SampleOom(dir_.path()).in_cgroup.has_value()) << "nothing is readable";
  EXPECT_FALSE(SampleOom(dir_.path()).on_host.has_value());
  Write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/job:8\n0::/\n");
  Write("/sys/fs/cgroup/memory/job:8/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(SampleOom(dir_.path()).in_cgroup, 2);
}

TEST_F(OomTest, Sample_ContainerWithTheHostsPath_ReadsWhatIsMounted) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/container2\n");
  Write("/sys/fs/cgroup/memory.events", "oom_kill 6\n");
  EXPECT_EQ(SampleOom(dir_.path()).in_cgroup, 6);
}

TEST_F(OomTest, Sample_ThisMachine_IsWhatTheKernelCounts) {
  const OomSample before = SampleOom();
  std::optional<int64_t> counted;
  std::ifstream vmstat("/proc/vmstat");
  int64_t value;
  for (std::string name; vmstat >> name >> value;) {
    if (name == "oom_kill") counted = value;
  }
  const OomSample after = SampleOom();
  ASSERT_EQ(before.on_host.has_value(), counted.has_value());
  if (!counted) GTEST_SKIP() << "this kernel does not count them";
  EXPECT_LE(*before.on_host, *counted);
  EXPECT_GE(*after.on_host, *counted);
}

TEST_F(OomTest, Evidence_SaysWhatIsKnownAndNoMore) {
  EXPECT_EQ(OomEvidence({1, 5}, {1, 5}), "");
  EXPECT_EQ(OomEvidence({}, {1, 5}), "");
  EXPECT_THAT(OomEvidence({1, 5}, {2, 6}), HasSubstr("out of memory: the kernel killed 1 process(es) of this job's"));
  EXPECT_THAT(OomEvidence({1, 5}, {1, 7}), HasSubstr("perhaps out of memory: the kernel killed 2 process(es) on this"));
  EXPECT_THAT(OomEvidence({std::nullopt, 5}, {std::nullopt, 6}), HasSubstr("perhaps out of memory"));
}

}  // namespace
}  // namespace ddprun::launcher
