#include "launcher/hang/hang_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/launcher/hang/job_builder.h"

namespace ddprun::launcher {
namespace {

using hang::v1::NodeEvidence;
using hang::v1::Rank;
using Ranks = std::vector<int32_t>;

constexpr absl::Duration kSecond = absl::Seconds(1);

// A job on simulated time: a HangWatch for each node, and ranks whose collectives advance unless one holds them up.
class SimulatedJob {
 public:
  struct Seen {
    absl::Duration at;
    std::string text;
    Ranks replace;
  };

  explicit SimulatedJob(int32_t nodes = 2, int32_t slots = 2, HangWatch::Settings settings = {})
      : nodes_(nodes), slots_(slots), watches_(nodes, HangWatch(settings)), lost_(nodes), moving_alone_(nodes) {
    StartRound(1);
  }

  void StartRound(uint64_t round) {
    ended_.clear();
    for (int32_t node = 0; node < nodes_; ++node) StartRound(node, round);
  }
  void StartRound(int32_t node, uint64_t round) {
    watches_[node].StartRound({round, node, nodes_, nodes_ * slots_, node * slots_, slots_,
                               absl::StrCat("node-", std::string(1, static_cast<char>('a' + node)))},
                              now_);
  }

  // Rank `rank` sleeps before the next collective, in which all others wait. `change` alters its evidence.
  void HoldUp(
      int32_t rank, std::function<void(RankBuilder*)> change = [](RankBuilder*) {}) {
    odd_ = rank;
    change_ = std::move(change);
    since_ = now_;
  }
  // All ranks enter the next collective, `rank` another one than the others. -1: none does, and it takes long.
  void WaitTogether(int32_t rank) {
    HoldUp(-1);
    differs_ = rank;
  }
  void Continue() { odd_.reset(); }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }  // timeout of all collectives
  // The rank enters all collectives with tensors of another size, and nothing hangs.
  void EnterOtherSizes(int32_t rank) { wrong_ = rank; }
  // The rank enters each collective 30 ms after the others. -1: none does.
  void Slow(int32_t rank) { slow_ = rank; }
  void Lose(int32_t node) { lost_[node] = true; }
  // Collectives of this node's own group advance, whatever happens to the others.
  void MoveAlone(int32_t node, bool moves) { moving_alone_[node] = moves; }
  void EndWorker(int32_t rank, const std::string& text) {
    ended_[rank] = text;
    Call(rank / slots_,
         [&](HangWatch* watch, HangEffects* effects) { watch->OnEnded(rank % slots_, text, now_, effects); });
  }
  void Suspend(absl::Duration duration) { now_ = now_ + duration; }

  void Run(absl::Duration duration) {
    const SteadyTime end = now_ + duration;
    int at_once = 0;
    while (true) {
      SteadyTime next = end;
      for (const HangWatch& watch : watches_) next = std::min(next, watch.NextDeadline());
      at_once = next > now_ ? 0 : at_once + 1;
      ASSERT_LT(at_once, 5) << "a deadline that is due again and again";
      now_ = std::max(now_, next);
      if (next >= end) return;
      if (!odd_) ++step_;
      for (int32_t node = 0; node < nodes_; ++node) {
        if (watches_[node].NextDeadline() > now_) continue;
        Call(node, [&](HangWatch* watch, HangEffects* effects) { watch->OnDeadline(now_, effects); });
      }
    }
  }

  // Effects on the node of group rank 0.
  std::vector<Seen> reports;
  std::vector<Seen> replaced;
  std::vector<Seen> continued;
  std::vector<Seen> mismatches;
  std::vector<Seen> stragglers;
  int collections = 0;  // on all nodes
  int glances = 0;
  int sent = 0;

  absl::Duration now() const { return now_.since_start(); }
  HangWatch& watch(int32_t node) { return watches_[node]; }
  SteadyTime time() const { return now_; }

 private:
  Rank RankOf(int32_t rank) {
    RankBuilder builder(rank);
    builder.Done();
    builder.Group("default_pg").set_entered(step_);
    builder.Group("default_pg").mutable_collectives(0)->set_number(step_);
    if (rank == wrong_) builder.Group("default_pg").mutable_collectives(0)->set_tensors(0, "Float[11]");
    if (odd_ == rank) {
      change_(&builder);
    } else if (odd_) {
      builder.Enter(*odd_ == -1 && rank == differs_ ? "broadcast" : "all_reduce", "Float[10]", true);
      auto& operation = *builder.Group("default_pg").mutable_collectives(1);
      operation.set_age_ms(absl::ToInt64Milliseconds(now_ - since_));
      operation.set_timeout_ms(absl::ToInt64Milliseconds(timeout_));
    }
    return builder;
  }

  // Collectives of the last 20 s, five in each second, with the times of its host's clock.
  void AddHistory(int32_t rank, Rank* evidence) {
    constexpr int64_t kEveryUs = 200'000;
    hang::v1::Group& group = *evidence->mutable_groups(0);
    const hang::v1::Collective last = group.collectives(0);
    group.clear_collectives();
    for (int64_t number = absl::ToInt64Microseconds(now()) / kEveryUs - 100, i = 0; i < 100; ++i, ++number) {
      hang::v1::Collective& operation = *group.add_collectives() = last;
      operation.set_number(number);
      const int64_t late = rank == slow_ ? 30'000 : (number * 7 + rank * 13) % 5 * 1000;
      operation.set_entered_us(ClockOf(rank / slots_) - absl::ToInt64Microseconds(now()) + number * kEveryUs + late);
    }
  }

  // The hosts' clocks differ by three seconds.
  int64_t ClockOf(int32_t node) const {
    return 1'700'000'000'000'000 + 3'000'000 * node + absl::ToInt64Microseconds(now());
  }

  void Call(int32_t node, const std::function<void(HangWatch*, HangEffects*)>& call) {
    HangEffects effects;
    call(&watches_[node], &effects);
    for (const HangEffect& effect : effects) {
      const absl::Duration at = now_.since_start();
      if (std::holds_alternative<hang_effect::AskCounters>(effect)) {
        for (int32_t i = 0; i < slots_; ++i) {
          const int32_t rank = node * slots_ + i;
          if (ended_.count(rank) > 0) continue;
          const bool waits = odd_ && odd_ != rank;
          const std::string counters =
              absl::StrCat(step_, waits ? "+" : "", moving_alone_[node] ? absl::StrCat(" ", at / kSecond) : "");
          Call(node, [&](HangWatch* watch, HangEffects* more) { watch->OnCounters(i, counters, waits, now_, more); });
        }
      } else if (std::holds_alternative<hang_effect::AskCollectives>(effect)) {
        ++glances;
        NodeEvidence evidence;
        for (int32_t rank = node * slots_; rank < (node + 1) * slots_; ++rank) {
          *evidence.add_ranks() = RankOf(rank);
          evidence.mutable_ranks()->rbegin()->clear_process();
          if (!odd_) AddHistory(rank, &*evidence.mutable_ranks()->rbegin());
        }
        evidence.set_sent_us(ClockOf(node));
        Call(node, [&](HangWatch* watch, HangEffects* more) { watch->OnCollectives(evidence, now_, more); });
      } else if (std::holds_alternative<hang_effect::Collect>(effect)) {
        ++collections;
        NodeEvidence evidence;
        for (int32_t rank = node * slots_; rank < (node + 1) * slots_; ++rank) {
          if (ended_.count(rank) == 0) *evidence.add_ranks() = RankOf(rank);
        }
        Call(node, [&](HangWatch* watch, HangEffects* more) { watch->OnOwnEvidence(evidence, now_, more); });
      } else if (const auto* send = std::get_if<hang_effect::SendEvidence>(&effect)) {
        ++sent;
        EXPECT_NE(node, 0);
        if (lost_[node]) continue;
        NodeEvidence evidence = send->evidence;
        evidence.set_sent_us(ClockOf(node));
        Call(0, [&](HangWatch* watch, HangEffects* more) { watch->OnNodeEvidence(evidence, now_, more); });
      } else if (const auto* report = std::get_if<hang_effect::Report>(&effect)) {
        EXPECT_EQ(node, 0);
        reports.push_back({at, report->text, {}});
      } else if (const auto* replace = std::get_if<hang_effect::Replace>(&effect)) {
        EXPECT_EQ(node, 0);
        replaced.push_back({at, replace->text, replace->ranks});
      } else if (const auto* mismatch = std::get_if<hang_effect::ReportMismatch>(&effect)) {
        EXPECT_EQ(node, 0);
        mismatches.push_back({at, mismatch->text, {}});
      } else if (const auto* slow = std::get_if<hang_effect::ReportStragglers>(&effect)) {
        EXPECT_EQ(node, 0);
        stragglers.push_back({at, slow->text, {}});
      } else if (const auto* over = std::get_if<hang_effect::Continued>(&effect)) {
        EXPECT_EQ(node, 0);
        continued.push_back({at, over->text, {}});
      }
    }
  }

  const int32_t nodes_;
  const int32_t slots_;
  std::vector<HangWatch> watches_;
  SteadyTime now_;
  int64_t step_ = 1;
  absl::Duration timeout_ = absl::Minutes(10);
  std::optional<int32_t> odd_;
  int32_t differs_ = -1;
  int32_t wrong_ = -1;
  int32_t slow_ = -1;
  std::function<void(RankBuilder*)> change_;
  SteadyTime since_;
  std::map<int32_t, std::string> ended_;
  std::vector<bool> lost_;
  std::vector<bool> moving_alone_;
};

// ---- hangs ----

TEST(HangWatchTest, OnDeadline_RankHangs_IsReportedOnceAndReplacedAfterAMinute) {
  for (const int32_t nodes : {1, 2, 3}) {
    for (int32_t rank = 0; rank < 2 * nodes; ++rank) {
      SimulatedJob job(nodes);
      job.Run(absl::Minutes(10));
      EXPECT_EQ(job.collections, 0);
      EXPECT_LE(job.glances, 3 * nodes) << "little is asked while counters move";
      job.HoldUp(rank);
      job.Run(absl::Hours(1));
      ASSERT_EQ(job.reports.size(), 1u) << nodes << " nodes, rank " << rank;
      const absl::Duration took = job.reports[0].at - absl::Minutes(10);
      EXPECT_GE(took, absl::Seconds(30));
      EXPECT_LE(took, absl::Seconds(51));
      EXPECT_TRUE(absl::StrContains(job.reports[0].text, absl::StrCat(" for rank ", rank))) << job.reports[0].text;
      ASSERT_EQ(job.replaced.size(), 1u);
      EXPECT_EQ(job.replaced[0].replace, Ranks{rank});
      EXPECT_FALSE(absl::StrContains(job.replaced[0].text, '\n'));
      EXPECT_GE(job.replaced[0].at - absl::Minutes(10), absl::Minutes(1));
      EXPECT_LE(job.replaced[0].at - absl::Minutes(10), absl::Minutes(2));
      EXPECT_TRUE(job.continued.empty());
    }
  }
}

TEST(HangWatchTest, OnDeadline_HangEndsByItself_IsSaidAndItsLengthIsLearned) {
  SimulatedJob job;
  job.Run(absl::Minutes(5));
  job.HoldUp(1);
  job.Run(absl::Seconds(75));
  job.Continue();
  job.Run(absl::Minutes(5));
  ASSERT_EQ(job.reports.size(), 1u);
  ASSERT_EQ(job.continued.size(), 1u);
  EXPECT_TRUE(absl::StartsWith(job.continued[0].text, "continued after 1m")) << job.continued[0].text;

  // Three times as long is no alarm, in the next round neither.
  job.StartRound(2);
  job.Run(absl::Minutes(1));
  job.HoldUp(2);
  job.Run(absl::Seconds(180));
  EXPECT_EQ(job.reports.size(), 1u);
  job.Run(absl::Seconds(150));
  EXPECT_EQ(job.reports.size(), 2u);
}

TEST(HangWatchTest, OnDeadline_OneHangFollowsAnother_BothAreReported) {
  SimulatedJob job;
  job.Run(absl::Minutes(1));
  job.HoldUp(1);
  job.Run(absl::Minutes(2));
  job.HoldUp(3);  // rank 1 has entered the collective, and rank 3 is late for it
  job.Run(absl::Minutes(8));
  ASSERT_EQ(job.reports.size(), 2u);
  EXPECT_EQ(job.continued.size(), 1u);
  EXPECT_TRUE(absl::StrContains(job.reports[0].text, " for rank 1"));
  EXPECT_TRUE(absl::StrContains(job.reports[1].text, " for rank 3"));
}

TEST(HangWatchTest, OnDeadline_FixedLimit_ReplacesTheLearnedOne) {
  SimulatedJob job(2, 2, {absl::Seconds(20)});
  job.Run(absl::Minutes(1));
  job.HoldUp(3);
  job.Run(absl::Minutes(1));
  ASSERT_EQ(job.reports.size(), 1u);
  EXPECT_LE(job.reports[0].at - absl::Minutes(1), absl::Seconds(40));
  ASSERT_EQ(job.replaced.size(), 1u);
  EXPECT_EQ(job.replaced[0].at, job.reports[0].at) << "a limit that the user gave needs no minute more";
}

TEST(HangWatchTest, OnDeadline_ShortTimeout_LimitIsHalfOfIt) {
  SimulatedJob job;
  job.Run(absl::Minutes(1));
  job.set_timeout(absl::Seconds(40));
  job.HoldUp(1);
  job.Run(absl::Seconds(28));
  EXPECT_EQ(job.reports.size(), 1u);
}

TEST(HangWatchTest, OnDeadline_RankWorks_IsReportedWhenHalfOfTheTimeoutIsOver) {
  SimulatedJob job;
  job.Run(absl::Minutes(1));
  job.HoldUp(2, [](RankBuilder* rank) { rank->Cpu(0.9); });
  job.Run(absl::Seconds(295));
  EXPECT_TRUE(job.reports.empty());
  job.Run(absl::Minutes(2));
  EXPECT_EQ(job.reports.size(), 1u);
  job.Run(absl::Hours(2));
  EXPECT_EQ(job.reports.size(), 1u);
  EXPECT_TRUE(job.replaced.empty()) << "ranks that work are not killed";
  EXPECT_LT(job.collections, 2 * 140) << "at most once a minute and node";
}

TEST(HangWatchTest, OnDeadline_Debugger_IsNeverReported) {
  SimulatedJob job(2, 2, {absl::Seconds(20)});
  job.Run(absl::Minutes(1));
  job.HoldUp(
      2, [](RankBuilder* rank) { (*rank)->mutable_process()->add_frames()->set_file("/usr/lib/python3.11/pdb.py"); });
  job.Run(absl::Hours(3));
  EXPECT_TRUE(job.reports.empty());
  EXPECT_TRUE(job.replaced.empty());
}

TEST(HangWatchTest, OnEnded_OthersWaitForAWorkerThatHasEnded_ItsEndIsReported) {
  for (const int32_t rank : {1, 3}) {
    SimulatedJob job;
    job.Run(absl::Minutes(1));
    job.HoldUp(rank);
    job.EndWorker(rank, "exited with code 0");
    job.Run(absl::Minutes(2));
    ASSERT_EQ(job.reports.size(), 1u);
    EXPECT_TRUE(absl::StrContains(job.reports[0].text, ", which exited with code 0")) << job.reports[0].text;
    EXPECT_TRUE(job.replaced.empty());
  }
}

TEST(HangWatchTest, OnEnded_HungWorkerIsKilled_HangHasNotEndedByItself) {
  for (const int32_t rank : {1, 3}) {
    SimulatedJob job;
    for (int round = 1; round < 4; ++round) {
      job.Run(absl::Minutes(1));
      job.HoldUp(rank);
      job.Run(absl::Minutes(2));
      EXPECT_EQ(job.reports.size(), round) << "learned from a hang: rank " << rank;
      job.EndWorker(rank, "killed");
      job.Run(absl::Seconds(20));
      EXPECT_TRUE(job.continued.empty());
      job.Continue();
      job.StartRound(round + 1);
    }
  }
}

// ---- mismatches that hang ----

TEST(HangWatchTest, OnCollectives_RanksWaitInDifferentOperations_IsReportedAtOnceAndAgainWithStacks) {
  for (const int32_t nodes : {1, 2, 3}) {
    for (int32_t rank = 0; rank < 2 * nodes; ++rank) {
      SimulatedJob job(nodes);
      job.Run(absl::Minutes(10));
      const int before = job.glances;
      job.WaitTogether(rank);
      job.Run(absl::Milliseconds(1200));
      ASSERT_EQ(job.reports.size(), 1u) << nodes << " nodes, rank " << rank;
      EXPECT_TRUE(absl::StrContains(job.reports[0].text, " entered broadcast #")) << job.reports[0].text;
      EXPECT_TRUE(absl::StrContains(job.reports[0].text, absl::StrCat("rank ", rank, nodes == 1 ? "" : " (node-")));
      EXPECT_FALSE(absl::StrContains(job.reports[0].text, "File ")) << "no stack was read";
      job.Run(absl::Seconds(25));
      ASSERT_EQ(job.reports.size(), 2u);
      EXPECT_TRUE(absl::StrContains(job.reports[1].text, "File \"/home/user/train.py\""));
      job.Run(absl::Hours(1));
      EXPECT_EQ(job.reports.size(), 2u);
      EXPECT_EQ(job.glances - before, nodes) << "once in a pause";
      job.Continue();
      job.Run(absl::Minutes(1));
      EXPECT_EQ(job.continued.size(), 1u);
    }
  }
}

TEST(HangWatchTest, OnCollectives_LastRankEntersAnotherOperationLate_IsReportedOnlyThen) {
  for (const int32_t rank : {0, 1, 3}) {
    SimulatedJob job;
    job.Run(absl::Minutes(1));
    job.HoldUp(rank, [](RankBuilder* odd) { odd->Cpu(0.9); });
    job.Run(absl::Minutes(3));
    EXPECT_TRUE(job.reports.empty()) << "a rank that has not entered says nothing";
    job.WaitTogether(rank);
    job.Run(absl::Milliseconds(1200));
    EXPECT_EQ(job.reports.size(), 1u) << rank;
  }
}

TEST(HangWatchTest, OnCollectives_RankDoesNotAnswerOrNodeIsLost_NothingIsReported) {
  SimulatedJob job;
  job.Run(absl::Minutes(1));
  job.Lose(1);
  job.WaitTogether(0);
  job.Run(absl::Seconds(5));
  EXPECT_TRUE(job.reports.empty());
}

TEST(HangWatchTest, OnDeadline_SlowCollectives_AreAskedForRarely) {
  SimulatedJob job;
  while (job.now() < absl::Hours(2)) {
    job.WaitTogether(-1);
    job.Run(absl::Seconds(3));
    job.Continue();
    job.Run(absl::Seconds(1));
  }
  EXPECT_TRUE(job.reports.empty());
  EXPECT_GT(job.glances, 2 * 30);
  const int comparisons = 2 + static_cast<int>(absl::Hours(2) / HangWatch::kMaxComparison);
  EXPECT_LE(job.glances, 2 * (30 + HangWatch::kGlances + comparisons));
}

TEST(HangWatchTest, OnDeadline_ShortFixedLimit_LittleIsAskedWhileCountersMove) {
  SimulatedJob job(2, 2, {absl::Seconds(4)});
  job.Run(absl::Minutes(10));
  EXPECT_GT(job.glances, 2 * 5);
  EXPECT_LE(job.glances, 2 * 12) << "compared each minute at most";
}

// ---- several nodes ----

TEST(HangWatchTest, OnDeadline_NodeMovesOnItsOwn_IsNoHang) {
  SimulatedJob job;
  job.MoveAlone(1, true);
  job.Run(absl::Minutes(2));
  job.HoldUp(0);
  job.Run(absl::Hours(2));
  EXPECT_TRUE(job.reports.empty());
  job.MoveAlone(1, false);
  job.Run(absl::Minutes(5));
  EXPECT_EQ(job.reports.size(), 1u);
}

TEST(HangWatchTest, OnDeadline_LostNode_IsUnknownAndOthersAreNamedLate) {
  SimulatedJob job;
  job.Run(absl::Minutes(2));
  job.Lose(1);
  job.HoldUp(0);
  job.Run(absl::Minutes(4));
  EXPECT_TRUE(job.reports.empty()) << "the lost node may move";
  job.Run(absl::Minutes(5));
  ASSERT_EQ(job.reports.size(), 1u);
  EXPECT_TRUE(absl::StrContains(job.reports[0].text, "rank 1 waits in "));
  EXPECT_TRUE(absl::StrContains(job.reports[0].text, "for rank 0 (node-a), which "));
  EXPECT_TRUE(absl::StrContains(job.reports[0].text, "; nothing is known about ranks 2-3 (node-b)\n"))
      << job.reports[0].text;
  EXPECT_TRUE(job.replaced.empty());
}

TEST(HangWatchTest, OnDeadline_LostNodeHoldsTheJobUp_NoOtherRankIsBlamed) {
  SimulatedJob job;
  job.Lose(1);
  job.Run(absl::Minutes(2));
  job.HoldUp(2);
  job.Run(absl::Minutes(20));
  ASSERT_EQ(job.reports.size(), 1u);
  const std::string line = job.reports[0].text.substr(0, job.reports[0].text.find('\n'));
  EXPECT_TRUE(absl::EndsWith(line, "ranks 0-1 are in all_reduce #" + line.substr(line.find('#') + 1))) << line;
  EXPECT_TRUE(absl::EndsWith(line, "; nothing is known about ranks 2-3")) << line;
}

TEST(HangWatchTest, OnNodeEvidence_NotOfThisRound_IsIgnored) {
  SimulatedJob job;
  job.Run(absl::Minutes(1));
  job.HoldUp(3);
  job.Run(absl::Seconds(20));
  for (const auto& [round, node] : {std::pair(2, 1), std::pair(1, 0), std::pair(1, 2), std::pair(1, -1)}) {
    NodeEvidence moves;
    moves.set_round(round);
    moves.set_group_rank(node);
    HangEffects effects;
    job.watch(0).OnNodeEvidence(moves, job.time(), &effects);
    job.watch(1).OnNodeEvidence(moves, job.time(), &effects);
    EXPECT_TRUE(effects.empty());
  }
  job.Run(absl::Minutes(1));
  EXPECT_EQ(job.reports.size(), 1u);
}

TEST(HangWatchTest, EndRound_Hang_NothingMoreIsDone) {
  SimulatedJob job(1);
  job.Run(absl::Minutes(1));
  job.HoldUp(1);
  job.Run(absl::Seconds(20));
  job.watch(0).EndRound();
  EXPECT_EQ(job.watch(0).NextDeadline(), SteadyTime::InfiniteFuture());
  HangEffects effects;
  job.watch(0).OnCounters(0, "x", true, job.time(), &effects);
  job.watch(0).OnEnded(0, "x", job.time(), &effects);
  job.watch(0).OnOwnEvidence({}, job.time(), &effects);
  job.watch(0).OnCollectives({}, job.time(), &effects);
  job.watch(0).OnDeadline(job.time() + absl::Hours(1), &effects);
  EXPECT_TRUE(effects.empty());
}

TEST(HangWatchTest, OnDeadline_WorkersNeverAnswer_NothingIsCollected) {
  HangWatch watch({});
  watch.StartRound({1, 0, 1, 2, 0, 2, "node-a"}, SteadyTime());
  HangEffects effects;
  for (int i = 0; i < 1000; ++i) watch.OnDeadline(watch.NextDeadline(), &effects);
  for (const HangEffect& effect : effects) {
    EXPECT_TRUE(std::holds_alternative<hang_effect::AskCounters>(effect) ||
                std::holds_alternative<hang_effect::Sample>(effect));
  }
}

TEST(HangWatchTest, OnDeadline_RanksEnterDifferentSizes_IsReportedOnceThoughNothingHangs) {
  for (const int32_t rank : {0, 1, 3}) {
    SimulatedJob job;
    job.Run(absl::Minutes(1));
    job.EnterOtherSizes(rank);
    job.Run(absl::Hours(6));
    ASSERT_EQ(job.mismatches.size(), 1u);
    EXPECT_LE(job.mismatches[0].at, absl::Minutes(7));
    EXPECT_TRUE(absl::StrContains(job.mismatches[0].text, absl::StrCat("rank ", rank, " entered all_reduce #")));
    EXPECT_TRUE(job.reports.empty());
    EXPECT_EQ(job.collections, 0);
    EXPECT_TRUE(job.stragglers.empty());
  }
}

TEST(HangWatchTest, OnDeadline_Straggler_IsReportedOnceAndAgainIfItIsAnother) {
  for (const int32_t rank : {0, 1, 3}) {
    SimulatedJob job;
    job.Run(absl::Hours(3));
    job.Slow(rank);
    job.Run(absl::Minutes(11));
    ASSERT_EQ(job.stragglers.size(), 1u) << rank;
    EXPECT_TRUE(absl::StartsWith(job.stragglers[0].text,
                                 absl::StrCat("rank ", rank, " (node-", rank < 2 ? "a" : "b", ") enters collectives ")))
        << job.stragglers[0].text;
    job.Run(absl::Hours(6));
    job.Slow(-1);
    job.Run(absl::Hours(1));
    job.Slow(rank);
    job.Run(absl::Hours(1));
    EXPECT_EQ(job.stragglers.size(), 1u) << "known";
    job.Slow(2);
    job.Run(absl::Minutes(11));
    EXPECT_EQ(job.stragglers.size(), 2u);
    EXPECT_TRUE(job.reports.empty());
    EXPECT_TRUE(job.mismatches.empty());
  }
}

TEST(HangWatchTest, OnDeadline_RankIsLateInOneComparison_IsNoStraggler) {
  SimulatedJob job;
  job.Slow(3);
  job.Run(absl::Minutes(3));
  job.Slow(-1);
  job.Run(absl::Hours(3));
  EXPECT_TRUE(job.stragglers.empty());
}

TEST(HangWatchTest, OnDeadline_NodeIsLost_NoStragglerIsNamed) {
  SimulatedJob job;
  job.Slow(1);
  job.Lose(1);
  job.Run(absl::Hours(3));
  EXPECT_TRUE(job.stragglers.empty());
}

TEST(HangWatchTest, OnDeadline_GroupIsBeingMadeAgain_IsNoMismatch) {
  SimulatedJob job;
  job.EnterOtherSizes(1);
  job.Run(absl::Minutes(3));  // the first comparison
  job.EnterOtherSizes(-1);
  job.Run(absl::Hours(6));
  EXPECT_TRUE(job.mismatches.empty());
}

TEST(HangWatchTest, OnDeadline_OneNodeEntersOtherSizes_IsReportedSoonAfterTheFirstComparison) {
  SimulatedJob job(1, 3);
  job.EnterOtherSizes(1);
  job.Run(HangWatch::kFirstComparison + 2 * HangWatch::kSuspect);
  EXPECT_EQ(job.mismatches.size(), 1u);
}

// ---- healthy jobs ----

TEST(HangWatchTest, OnDeadline_LauncherWasSuspended_IsNoHang) {
  SimulatedJob job;
  job.Run(absl::Minutes(2));
  for (int i = 0; i < 20; ++i) {
    job.Suspend(absl::Minutes(10));
    job.Run(absl::Minutes(3));
  }
  EXPECT_TRUE(job.reports.empty());
}

// Pauses as healthy jobs have them, over a day: evaluations and checkpoints of one rank, downloads, compilation in
// children, a busy host, breakpoints; and short waits in which all ranks are idle, each at most three times as long as
// one before it.
TEST(HangWatchTest, OnDeadline_HealthyDay_NothingIsReported) {
  const std::vector<std::function<void(RankBuilder*)>> kinds = {
      [](RankBuilder* rank) { rank->Cpu(0.97); },
      [](RankBuilder* rank) { rank->Cpu(0.12); },
      [](RankBuilder* rank) { (*rank)->set_io(80e6); },
      [](RankBuilder* rank) { (*rank)->set_net(3e6); },
      [](RankBuilder* rank) { rank->Cpu(0.02)->set_waited(0.7); },
      [](RankBuilder* rank) { (*rank)->mutable_process()->add_native("#2 cudaDeviceSynchronize (libcudart.so)"); },
      [](RankBuilder* rank) { (*rank)->mutable_process()->add_frames()->set_file("/venv/IPython/terminal.py"); },
  };
  for (int seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    SimulatedJob job;
    absl::Duration longest = absl::Seconds(10);
    std::string log;
    int pauses = 0;
    while (job.now() < absl::Hours(24)) {
      job.Run(absl::Seconds(30 + random() % 600));
      const bool idle = random() % 3 == 0;
      const int32_t rank = static_cast<int32_t>(random() % 4);
      const absl::Duration began = job.now();
      if (idle) {
        // The limit is three times what was seen, which may be one interval less than the pause.
        const absl::Duration length =
            std::min(std::max(absl::Seconds(29), 3 * (longest - absl::Seconds(15))), absl::Minutes(4));
        job.HoldUp(rank);
        job.Run(length);
        longest = std::max(longest, length);
      } else {
        job.HoldUp(rank, kinds[random() % kinds.size()]);
        job.Run(absl::Seconds(random() % 290));
      }
      if (random() % 2 == 0) {
        // Work, then a short wait for something else.
        job.HoldUp(rank);
        job.Run(idle ? absl::ZeroDuration() : absl::Seconds(15));
      }
      job.Continue();
      absl::StrAppend(&log, "\n", absl::FormatDuration(began), " to ", absl::FormatDuration(job.now()),
                      idle ? " idle, rank " : " at work, rank ", rank);
      ++pauses;
      if (!job.reports.empty()) break;
    }
    ASSERT_TRUE(job.reports.empty()) << "seed " << seed << ": " << job.reports[0].text << log;
    EXPECT_GT(pauses, 50);
    EXPECT_GT(job.collections, 100);
    EXPECT_TRUE(job.replaced.empty());
    EXPECT_TRUE(job.mismatches.empty());
    EXPECT_TRUE(job.stragglers.empty()) << job.stragglers[0].text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
