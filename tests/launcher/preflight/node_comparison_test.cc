#include "launcher/preflight/node_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

HostReading Host(const std::string& name) {
  HostReading host;
  host.name = name;
  host.facts.set_python("3.11.7");
  host.facts.set_torch("2.11.0+cu130");
  host.facts.set_script_hash(7);
  host.facts.set_max_open_files(1 << 20);
  host.facts.set_max_locked_bytes(-1);
  host.facts.set_shm_free_bytes(int64_t{8} << 30);
  host.facts.set_tmp_free_bytes(int64_t{8} << 30);
  host.facts.set_tmp("/tmp");
  return host;
}

TEST(NodeComparisonTest, EqualHosts_ShowNothing) {
  HostReading b = Host("b");
  b.clock_ahead = absl::Milliseconds(900);
  b.facts.set_shm_free_bytes(int64_t{7} << 30);
  const NodeComparison result = CompareNodes({Host("a"), b});
  EXPECT_EQ(result.table, "");
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(NodeComparisonTest, HostWithOtherVersions_IsNamed_WhereverItStands) {
  HostReading a = Host("a");
  a.facts.set_torch("2.10.0");
  a.facts.set_python("3.12.1");
  const NodeComparison result = CompareNodes({a, Host("b"), Host("c")});
  EXPECT_THAT(result.errors,
              ElementsAre("a has torch 2.10.0, b has 2.11.0+cu130: install the same version on all hosts",
                          "a has Python 3.12, b has 3.11: use the same environment on all hosts, or set PYTHON_EXEC"));
  EXPECT_EQ(result.table,
            "  host    a       b,c\n"
            "  Python  3.12.1  3.11.7\n"
            "  torch   2.10.0  2.11.0+cu130\n");
}

TEST(NodeComparisonTest, HostWithoutTorch_IsAnError_UnlessNoneHasIt) {
  HostReading b = Host("b");
  b.facts.clear_torch();
  EXPECT_THAT(CompareNodes({Host("a"), b}).errors,
              ElementsAre("b has torch none, a has 2.11.0+cu130: install the same version on all hosts"));
  EXPECT_THAT(CompareNodes({b, b}).errors, IsEmpty());
}

TEST(NodeComparisonTest, DifferencesThatDoNotBreakJobs_AreShown) {
  HostReading b = Host("b");
  b.facts.set_script_hash(8);
  b.facts.set_max_open_files(1024);
  b.facts.set_max_locked_bytes(65536);
  b.facts.set_gpus(8);
  b.facts.set_shm_free_bytes(63 << 20);
  b.clock_ahead = absl::Seconds(-90);
  b.clock_error = absl::Seconds(1);
  const NodeComparison result = CompareNodes({Host("a"), b});
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings, ElementsAre("the script on b is not that of a: copy it again",
                                           "b: 63 MiB are free in /dev/shm, which NCCL and DataLoader workers use"));
  for (const char* row : {"GPUs", "script", "ulimit -Hn", "ulimit -Hl", "unlimited", "90.0 s behind", "63 MiB"}) {
    EXPECT_THAT(result.table, HasSubstr(row));
  }
  EXPECT_THAT(result.table, Not(HasSubstr("torch")));
}

TEST(NodeComparisonTest, FullDisk_IsAnError) {
  HostReading b = Host("b");
  b.facts.set_tmp_free_bytes(4096);
  EXPECT_THAT(CompareNodes({Host("a"), b}).errors, ElementsAre(HasSubstr("b: no space is left in /tmp: ")));
}

TEST(NodeComparisonTest, ManyHosts_ShareColumns) {
  std::vector<HostReading> hosts;
  for (int i = 0; i < 1000; ++i) hosts.push_back(Host("h" + std::to_string(i)));
  hosts[5].facts.set_driver("580.1");
  EXPECT_EQ(CompareNodes(hosts).table,
            "  host           h0 and 998 more  h5\n"
            "  device driver  none             580.1\n");
}

}  // namespace
}  // namespace ddprun::launcher
