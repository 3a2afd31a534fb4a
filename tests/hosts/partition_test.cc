// Partitions of hosts that heal: workers of two rounds never run at once, every job ends, and a short blip changes
// nothing (protocol 4.5). Real launchers and workers; the workers record when they ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "base/steady_time.h"
#include "tests/hosts/hosts.h"
#include "tests/hosts/tick_job.h"

namespace ddprun::testing {
namespace {

constexpr int kBatches = 5;
constexpr int kJobsAtOnce = 10;  // sequences of cuts per batch, each with a job on three separate hosts
constexpr int kNodes = 3;
constexpr int kCuts = 3;

// A series of cuts on the three hosts of one job, as a schedule: one thread drives the network's state for all jobs.
class Cuts {
 public:
  struct Step {
    SteadyTime at;
    std::function<void(Hosts*)> what;
  };

  Cuts(int first, uint64_t seed, absl::Duration heartbeat_timeout, SteadyTime start)
      : first_(first), random_(seed), heartbeat_timeout_(heartbeat_timeout), now_(start) {
    for (int i = 0; i < kCuts; ++i) {
      now_ = now_ + Random(absl::Milliseconds(OneIn(3) ? 3000 : 600));
      Add();
    }
  }

  std::vector<Step>& steps() { return steps_; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }
  absl::Duration Random(absl::Duration most) { return most * std::uniform_real_distribution<double>(0, 1)(random_); }

  // Duration of a cut: mostly near the deadlines at which a decision is due.
  absl::Duration Length() {
    static constexpr double kBounds[] = {1. / 6, 1. / 2, 2. / 3, 5. / 6, 11. / 12, 1, 7. / 6, 3. / 2, 2};
    return heartbeat_timeout_ * kBounds[Below(9)] + Random(absl::Milliseconds(150));
  }

  void Do(absl::Duration length, std::function<void(Hosts*)> cut, std::function<void(Hosts*)> heal) {
    steps_.push_back({now_, std::move(cut)});
    now_ = now_ + length;
    steps_.push_back({now_, std::move(heal)});
  }

  void Add() {
    const int server = first_, host = first_ + Below(kNodes), client = first_ + 1 + Below(kNodes - 1);
    const auto how = static_cast<Hosts::How>(Below(3));
    const absl::Duration length = Length();
    switch (Below(6)) {
      case 0:
        return Do(
            length, [=](Hosts* h) { h->DropOneWay(server, client); }, [=](Hosts* h) { h->HealOneWay(server, client); });
      case 1:
        return Do(
            length, [=](Hosts* h) { h->DropOneWay(client, server); }, [=](Hosts* h) { h->HealOneWay(client, server); });
      case 2:
        return Do(
            length, [=](Hosts* h) { h->Split(server, client); }, [=](Hosts* h) { h->Join(server, client); });
      default:
        return Do(
            length, [=](Hosts* h) { h->Cut(host, how); }, [=](Hosts* h) { h->Heal(host, how); });
    }
  }

  const int first_;
  std::mt19937_64 random_;
  const absl::Duration heartbeat_timeout_;
  SteadyTime now_;
  std::vector<Step> steps_;
};

class PartitionTest : public ::testing::TestWithParam<int> {};

TEST_P(PartitionTest, Cuts_Random_OneRoundAtATimeAndEveryJobEnds) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(kJobsAtOnce * kNodes, Hosts::Addresses::kIpv4);
  std::vector<std::unique_ptr<TickJob>> jobs;
  std::vector<absl::Duration> timeouts;
  for (int i = 0; i < kJobsAtOnce; ++i) {
    timeouts.push_back(absl::Seconds(i % 2 == 0 ? 2 : 3));
    TickJob::Settings settings{1 + i * kNodes, i % 3 == 0 ? "2:3" : "1:3", std::vector<TickJob::Node>(kNodes)};
    settings.heartbeat_timeout = timeouts.back();
    settings.stubborn = i % 2 == 1;
    jobs.push_back(std::make_unique<TickJob>(&hosts, settings));
  }
  for (const auto& job : jobs) {
    ASSERT_TRUE(Eventually([&] { return job->IsWhole(SteadyTime()); })) << job->Said();
  }
  std::vector<Cuts::Step> steps;
  const SteadyTime start = SteadyNow();
  for (int i = 0; i < kJobsAtOnce; ++i) {
    const uint64_t seed = 1000 * GetParam() + i;
    std::printf("job %d: seed %llu\n", i, static_cast<unsigned long long>(seed));
    Cuts cuts(1 + i * kNodes, seed, timeouts[i], start);
    std::move(cuts.steps().begin(), cuts.steps().end(), std::back_inserter(steps));
  }
  std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const Cuts::Step& step : steps) {
    PassUntil(step.at);
    step.what(&hosts);
  }
  const SteadyTime healed = SteadyNow();
  for (const auto& job : jobs) {
    ASSERT_TRUE(Eventually([&] { return job->IsWhole(healed); })) << job->Said();
    job->EndWell();
    job->ExpectOneWorldAtATime();
    std::printf("%d rounds\n", job->rounds());
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, PartitionTest, ::testing::Range(1, kBatches + 1));

TEST(BlipTest, Cut_OneSecondOfThree_ChangesNothing) {
  SKIP_WITHOUT_HOSTS();
  Hosts hosts(kNodes, Hosts::Addresses::kIpv4);
  TickJob job(&hosts, {1, "1:3", std::vector<TickJob::Node>(kNodes)});
  ASSERT_TRUE(Eventually([&] { return job.IsWhole(SteadyTime()); })) << job.Said();
  for (const int host : {2, 1, 3}) {
    const auto how = host == 3 ? Hosts::How::kLink : Hosts::How::kSilent;
    const SteadyTime begin = SteadyNow();
    hosts.Cut(host, how);
    PassUntil(begin + absl::Seconds(1));
    hosts.Heal(host, how);
    // All consequences have happened by then.
    const SteadyTime calm = SteadyNow() + absl::Seconds(4);
    ASSERT_TRUE(Eventually([&] { return job.IsWhole(calm); })) << job.Said();
  }
  job.EndWell();
  EXPECT_EQ(job.rounds(), 1) << job.Said();
  std::set<int> pids;
  for (const Tick& tick : job.Ticks()) pids.insert(tick.pid);
  EXPECT_EQ(pids.size(), kNodes) << job.Said();
}

}  // namespace
}  // namespace ddprun::testing
