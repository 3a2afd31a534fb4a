#include "launcher/report/wait_text.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

// Where nobody knows who is to come.
std::string WaitingText(const rendezvous::Waiting& waiting) { return launcher::WaitingText(waiting, {}); }

rendezvous::Waiting Waiting(int32_t joined, int32_t min, int32_t max, std::vector<std::string> hosts,
                            absl::Duration remaining) {
  rendezvous::Waiting waiting;
  waiting.nodes_joined = joined;
  waiting.min_nodes = min;
  waiting.max_nodes = max;
  waiting.hosts = std::move(hosts);
  waiting.remaining = remaining;
  return waiting;
}

TEST(WaitingText, TooFewNodes) {
  EXPECT_EQ(WaitingText(Waiting(1, 2, 2, {"node-a"}, absl::Seconds(598))),
            "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m58s");
  EXPECT_EQ(WaitingText(Waiting(1, 3, 4, {"node-a"}, absl::Seconds(5))),
            "waiting for 2 more nodes; 1 of at least 3 joined (joined: node-a); timing out in 5s");
  EXPECT_EQ(WaitingText(Waiting(0, 1, 1, {}, absl::InfiniteDuration())), "waiting for 1 more node; 0 of 1 joined");
}

TEST(WaitingText, LastCall) {
  rendezvous::Waiting waiting = Waiting(2, 2, 4, {"a", "b"}, absl::Milliseconds(27500));
  waiting.last_call = true;
  EXPECT_EQ(WaitingText(waiting), "2 nodes joined (min 2, max 4); starting in 28s unless more join (joined: a, b)");
  waiting = Waiting(1, 1, 2, {"a"}, absl::Seconds(3));
  waiting.last_call = true;
  EXPECT_EQ(WaitingText(waiting), "1 node joined (min 1, max 2); starting in 3s unless more join (joined: a)");
}

TEST(WaitingText, Spare) {
  rendezvous::Waiting waiting = Waiting(2, 1, 2, {"a", "b"}, absl::InfiniteDuration());
  waiting.spare = true;
  EXPECT_EQ(WaitingText(waiting),
            "hot spare: the job runs on 2 nodes (joined: a, b); standing by to replace a lost node");
}

TEST(WaitingText, Reason_ComesInFront) {
  rendezvous::Waiting waiting = Waiting(1, 2, 2, {"a"}, absl::Seconds(5));
  waiting.reason = "node b was lost";
  EXPECT_EQ(WaitingText(waiting),
            "node b was lost: waiting for 1 more node; 1 of 2 joined (joined: a); timing out in 5s");
}

TEST(WaitingText, ManyHosts_AreCut) {
  std::vector<std::string> hosts;
  for (int i = 0; i < rendezvous::kMaxHostsNamed; ++i) hosts.push_back(absl::StrCat("n", i));
  EXPECT_EQ(
      WaitingText(Waiting(500, 512, 512, hosts, absl::Seconds(5))),
      "waiting for 12 more nodes; 500 of 512 joined (joined: n0, n1, n2, n3, n4, n5, n6, n7 and 492 more); timing "
      "out in 5s");
}

TEST(WaitingText, ExpectedHosts_ThoseThatHaveNotComeAreNamed) {
  const std::vector<std::string> expected = {"node1", "node2", "node3", "node4"};
  EXPECT_EQ(launcher::WaitingText(Waiting(2, 4, 4, {"node4", "node1"}, absl::Seconds(598)), expected),
            "waiting for node2, node3; 2 of 4 joined (joined: node4, node1); timing out in 9m58s");
  EXPECT_EQ(
      launcher::WaitingText(Waiting(1, 2, 4, {"node1"}, absl::Seconds(5)), expected),
      "waiting for 1 more node; 1 of at least 2 joined (joined: node1; missing: node2, node3, node4); timing out in "
      "5s");
  rendezvous::Waiting waiting = Waiting(2, 2, 4, {"node1", "node3"}, absl::Seconds(3));
  waiting.last_call = true;
  EXPECT_EQ(
      launcher::WaitingText(waiting, expected),
      "2 nodes joined (min 2, max 4); starting in 3s unless more join (joined: node1, node3; missing: node2, node4)");
}

TEST(WaitingText, ExpectedHosts_AreOfNoUseWhereNotAllThatCameAreNamed) {
  EXPECT_EQ(launcher::WaitingText(Waiting(17, 18, 18, {"node1"}, absl::Seconds(5)), {"node1", "node2"}),
            "waiting for 1 more node; 17 of 18 joined (joined: node1 and 16 more); timing out in 5s");
}

TEST(AbsentHosts, AreThoseThatHaveNotJoined) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"a"}, absl::Seconds(5)), {"a", "b"}), Hosts{"b"});
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"a"}, absl::Seconds(5)), {}), Hosts{});
  EXPECT_EQ(AbsentHosts(Waiting(1, 2, 2, {"elsewhere"}, absl::Seconds(5)), {"a"}), Hosts{"a"});
}

TEST(WaitingText, HostileNames_StayOnOneLine) {
  EXPECT_EQ(WaitingText(Waiting(1, 2, 2, {"a\nb\x1b"}, absl::Seconds(5))),
            "waiting for 1 more node; 1 of 2 joined (joined: a b?); timing out in 5s");
}

TEST(MissingRanksText, OneRank) {
  EXPECT_EQ(MissingRanksText({{3, 1, "b", 77}}, {0, 1, 2}, absl::Seconds(10)),
            "rank 3 on host b (local rank 1, pid 77) has not joined after 10 s; ranks 0-2 are waiting for it");
  EXPECT_EQ(MissingRanksText({{3, std::nullopt, "b"}}, {2}, absl::Seconds(10)),
            "rank 3 on host b has not joined after 10 s; rank 2 is waiting for it");
  EXPECT_EQ(MissingRanksText({{3}}, {}, absl::Seconds(10)), "rank 3 has not joined after 10 s");
}

TEST(MissingRanksText, SeveralRanks) {
  EXPECT_EQ(MissingRanksText({{5, std::nullopt, "c"}, {2, std::nullopt, "b"}, {3, std::nullopt, "b"}}, {4, 0, 1},
                             absl::Seconds(20)),
            "ranks 2-3, 5 (on hosts b, c) have not joined after 20 s; ranks 0-1, 4 are waiting for them");
  EXPECT_EQ(MissingRanksText({{2, std::nullopt, "b"}, {3, std::nullopt, "b"}}, {0}, absl::Seconds(20)),
            "ranks 2-3 (on host b) have not joined after 20 s; rank 0 is waiting for them");
}

TEST(FitLine, DropsWhatIsInParentheses_ThenTheMiddle) {
  const std::string text = "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m50s (why)";
  EXPECT_EQ(FitLine(text, text.size()), text);
  EXPECT_EQ(FitLine(text, text.size() - 1),
            "waiting for 1 more node; 1 of 2 joined (joined: node-a); timing out in 9m50s");
  EXPECT_EQ(FitLine(text, 70), "waiting for 1 more node; 1 of 2 joined; timing out in 9m50s");
  EXPECT_EQ(FitLine(text, 40), "waiting for 1 more...timing out in 9m50s");
  EXPECT_EQ(FitLine("12345ä1234567890", 16), "12345...4567890") << "no torn character";
}

}  // namespace
}  // namespace ddprun::launcher
