#include "launcher/report/wait_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using Hosts = std::vector<std::string>;

rendezvous::Waiting Waiting(int32_t joined, int32_t min, int32_t max, Hosts hosts, double seconds) {
  auto waiting =
      TextProto<rendezvous::Waiting>(absl::StrCat("nodes_joined: ", joined, " min_nodes: ", min, " max_nodes: ", max));
  waiting.mutable_hosts()->Assign(hosts.begin(), hosts.end());
  *waiting.mutable_remaining() = FromDuration(absl::Seconds(seconds));
  return waiting;
}

rendezvous::Waiting LastCall(rendezvous::Waiting waiting) {
  waiting.set_last_call(true);
  return waiting;
}

// `parts` are divided by '|'; one that begins with '!' must be absent.
void ExpectText(const rendezvous::Waiting& waiting, const Hosts& expected_hosts, absl::string_view parts) {
  const std::string text = WaitingText(waiting, expected_hosts);
  for (absl::string_view part : absl::StrSplit(parts, '|')) {
    const bool present = !absl::ConsumePrefix(&part, "!");
    EXPECT_EQ(absl::StrContains(text, part), present) << part << "\n" << text;
  }
}

TEST(WaitingText, WaitingText_NodesMissing_NamesCountsHostsAndTime) {
  EXPECT_EQ(WaitingText(Waiting(1, 2, 2, {"node-a"}, 598), {}),
            "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m58s");
  ExpectText(Waiting(1, 3, 4, {"node-a"}, 5), {}, "2 more nodes;|1 of at least 3 joined|node-a|in 5s|!missing");
  ExpectText(Waiting(0, 1, 1, {}, HUGE_VAL), {}, "1 more node;|0 of 1 joined|!timing out|!(");
  ExpectText(LastCall(Waiting(2, 2, 4, {"a", "b"}, 27.5)), {}, "2 nodes joined|min 2, max 4|in 28s|(joined: a, b)");
  ExpectText(LastCall(Waiting(1, 1, 2, {"a"}, 3)), {}, "1 node joined|min 1, max 2|in 3s|(joined: a)");
  rendezvous::Waiting spare = Waiting(2, 1, 2, {"a", "b"}, HUGE_VAL);
  spare.set_spare(true);
  ExpectText(spare, {}, "hot spare|2 nodes|(joined: a, b)|standing by");
  rendezvous::Waiting again = Waiting(1, 2, 2, {"a"}, 5);
  again.set_reason("node b was lost");
  ExpectText(again, {}, "node b was lost: waiting for 1 more node;");
  Hosts many;
  for (int i = 0; i < rendezvous::kMaxHostsNamed; ++i) many.push_back(absl::StrCat("n", i));
  ExpectText(Waiting(500, 512, 512, many, 5), {}, "12 more nodes|n0, n1, |n7 and 492 more|!n8");
  ExpectText(Waiting(1, 2, 2, {"a\nb\x1b"}, 5), {}, "(joined: a b?)");
}

TEST(WaitingText, ExpectedHosts_TheMissingOnesAreNamed) {
  const Hosts four = {"node1", "node2", "node3", "node4"};
  ExpectText(Waiting(2, 4, 4, {"node4", "node1"}, 5), four, "waiting for node2, node3;|(joined: node4, node1)");
  ExpectText(Waiting(1, 2, 4, {"node1"}, 5), four, "1 more node;|1 of at least 2|node1; missing: node2, node3, node4)");
  ExpectText(LastCall(Waiting(2, 2, 4, {"node1", "node3"}, 3)), four, "(joined: node1, node3; missing: node2, node4)");
  // Some of the joined nodes are not named: the missing ones are unknown.
  ExpectText(Waiting(17, 18, 18, {"node1"}, 5), {"node1", "node2"}, "17 of 18|node1 and 16 more|!node2");
}

TEST(AbsentHosts, AbsentHosts_SomeJoined_AreTheOthers) {
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"a"}, 5), {"a", "b"}), Hosts{"b"});
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"a"}, 5), {}), Hosts{});
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"elsewhere"}, 5), {"a"}), Hosts{"a"});
}

TEST(MissingRanksText, MissingRanksText_RanksMissing_NamesRanksHostsAndWaiters) {
  const std::optional<int32_t> unknown;
  EXPECT_EQ(MissingRanksText({{3, 1, "b", 77}}, {0, 1, 2}, absl::Seconds(10)),
            "rank 3 on host b (local rank 1, pid 77) has not joined after 10 s; ranks 0-2 are waiting for it");
  const std::string one = MissingRanksText({{3, unknown, "b"}}, {2}, absl::Seconds(10));
  EXPECT_TRUE(absl::StrContains(one, "host b has") && absl::StrContains(one, "rank 2 is")) << one;
  EXPECT_EQ(MissingRanksText({{3}}, {}, absl::Seconds(10)), "rank 3 has not joined after 10 s");
  EXPECT_EQ(MissingRanksText({{5, unknown, "c"}, {2, unknown, "b"}, {3, unknown, "b"}}, {4, 0, 1}, absl::Seconds(20)),
            "ranks 2-3, 5 (on hosts b, c) have not joined after 20 s; ranks 0-1, 4 are waiting for them");
  const std::string same = MissingRanksText({{2, unknown, "b"}, {3, unknown, "b"}}, {0}, absl::Seconds(20));
  EXPECT_TRUE(absl::StrContains(same, "ranks 2-3 (on host b)")) << same;
}

TEST(FitLine, FitLine_TooLong_DropsParenthesesThenMiddle) {
  const std::string text = "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m50s (why)";
  EXPECT_EQ(FitLine(text, text.size()), text);
  EXPECT_EQ(FitLine(text, text.size() - 1),
            "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m50s");
  EXPECT_EQ(FitLine(text, 70), "waiting for 1 more node; 1 of 2 joined; timing out in 9m50s");
  EXPECT_EQ(FitLine(text, 40), "waiting for 1 more...timing out in 9m50s");
  EXPECT_EQ(FitLine("12345ä1234567890", 16), "12345...4567890") << "no torn character";
}

TEST(RemainingText, WholeSeconds_RoundedUp) {
  const std::pair<absl::Duration, const char*> kCases[] = {
      {absl::Seconds(598.5), "9m59s"},      {absl::Seconds(598), "9m58s"}, {absl::Milliseconds(1), "1s"},
      {absl::ZeroDuration(), "0s"},         {-absl::Seconds(3), "0s"},     {absl::Seconds(7205), "2h0m5s"},
      {absl::InfiniteDuration(), "forever"}};
  for (const auto& [duration, text] : kCases) EXPECT_EQ(RemainingText(duration), text);
}

TEST(ElapsedText, Precision_FitsTheLength) {
  const std::pair<absl::Duration, const char*> kCases[] = {{absl::ZeroDuration(), "0ms"},
                                                           {absl::Microseconds(350999), "350ms"},
                                                           {absl::Milliseconds(12399), "12.3s"},
                                                           {absl::Milliseconds(59999), "59.9s"},
                                                           {absl::Seconds(65), "1m5s"},
                                                           {absl::Seconds(90001), "25h0m1s"},
                                                           {-absl::Seconds(1), "0ms"}};
  for (const auto& [duration, text] : kCases) EXPECT_EQ(ElapsedText(duration), text);
}

}  // namespace
}  // namespace ddprun::launcher
