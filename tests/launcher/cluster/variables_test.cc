#include "launcher/cluster/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace ddprun::launcher {
namespace {

// Distance of two ports in a ring of `ports`.
int Distance(int a, int b, int ports) {
  const int d = std::abs(a - b);
  return std::min(d, ports - d);
}

TEST(DerivedPort, NoRange_IsInTheDefaultRange) {
  for (uint32_t job : {1u, 2u, 4711u, 67'108'863u, 4'294'967'295u}) {
    for (uint32_t step : {0u, 1u, 9999u, 4'000'000'000u}) {
      for (int restart : {0, 1, 1'000'000'000}) {
        EXPECT_TRUE(kDerivedPorts.Has(DerivedPort(job, step, restart, std::nullopt)));
      }
    }
  }
}

TEST(DerivedPort, JobsNearEachOther_AreFarApart) {
  for (const uint32_t job : {100u, 4711u, 1'731'344u}) {
    const int port = DerivedPort(job, 0, 0, std::nullopt);
    for (uint32_t k = 1; k <= 50; ++k) {
      EXPECT_GE(Distance(port, DerivedPort(job + k, 0, 0, std::nullopt), 10'000), 3800 / k) << k;
    }
  }
}

// Fifty consecutive jobs of twenty steps each.
TEST(DerivedPort, ConsecutiveJobsAndSteps_HaveDifferentPorts) {
  std::set<int> ports;
  for (uint32_t job = 5000; job < 5050; ++job) {
    for (uint32_t step = 0; step < 20; ++step) ports.insert(DerivedPort(job, step, 0, std::nullopt));
  }
  EXPECT_EQ(ports.size(), 50 * 20);
}

// The previous attempt may still hold its port.
TEST(DerivedPort, ConsecutiveRestarts_HaveDifferentPorts) {
  std::set<int> ports;
  for (int restart = 0; restart < 100; ++restart) ports.insert(DerivedPort(4711, 0, restart, std::nullopt));
  EXPECT_EQ(ports.size(), 100);
}

// A stride coprime to the number of ports reaches all of them.
TEST(DerivedPort, AsManyJobsAsPorts_UseEveryPort) {
  for (int count : {1, 2, 3, 4, 6, 10, 12, 30, 99, 100, 101, 1000, 9998, 65535}) {
    const PortRange range{1, count};
    std::set<int> by_job, by_step, by_restart;
    for (int i = 0; i < count; ++i) {
      by_job.insert(DerivedPort(7 + i, 0, 0, range));
      by_step.insert(DerivedPort(7, i, 0, range));
      by_restart.insert(DerivedPort(7, 0, i, range));
    }
    for (const std::set<int>& ports : {by_job, by_step, by_restart}) {
      EXPECT_EQ(ports.size(), count);
      EXPECT_EQ(*ports.begin(), 1);
      EXPECT_EQ(*ports.rbegin(), count);
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
