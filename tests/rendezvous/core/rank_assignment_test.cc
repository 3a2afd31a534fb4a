#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace ddprun::rendezvous {
namespace {

RankRequest Newcomer(absl::string_view host, uint64_t join_order) {
  RankRequest r;
  r.host = host;
  r.join_order = join_order;
  return r;
}

TEST(AssignRanksTest, AssignRanks_NoNodes_IsEmpty) {
  const RankTable table = AssignRanks({});
  EXPECT_EQ(table.world_size, 0);
  EXPECT_TRUE(table.places.empty());
}

TEST(AssignRanksTest, Newcomers_ComeByTopologyThenHostThenJoin) {
  std::vector<RankRequest> r = {Newcomer("node66", 0), Newcomer("node7", 1), Newcomer("node7", 2), Newcomer("a", 3)};
  EXPECT_EQ(AssignRanks(r).order, (std::vector<size_t>{3, 1, 2, 0}));
  r[3].topology = "switch10";
  r[0].topology = "switch2";
  EXPECT_EQ(AssignRanks(r).order, (std::vector<size_t>{1, 2, 0, 3}));
}

TEST(AssignRanksTest, PreviousAndRequestedRanks_DecideTheOrder) {
  constexpr int kNone = -1;
  struct Case {
    const char* what;
    struct Node {
      const char* host;
      int previous, requested;
    };
    std::vector<Node> nodes;  // in the order of joining
    std::vector<size_t> order;
  };
  const Case cases[] = {
      {"survivors of more nodes close up before newcomers",
       {{"z", 1, kNone}, {"y", 3, kNone}, {"a", kNone, kNone}},
       {0, 1, 2}},
      {"survivors whose ranks exist keep them", {{"z", 1, kNone}, {"y", 2, kNone}, {"a", kNone, kNone}}, {2, 0, 1}},
      {"also if there are more nodes",
       {{"z", 1, kNone}, {"y", 2, kNone}, {"b", kNone, kNone}, {"a", kNone, kNone}},
       {3, 0, 1, 2}},
      {"the requested rank of a survivor goes to the one that requested it",
       {{"a", 0, kNone}, {"b", 1, kNone}, {"c", kNone, 1}},
       {0, 2, 1}},
      {"requests are met exactly",
       {{"a", kNone, 2}, {"b", kNone, kNone}, {"c", kNone, kNone}, {"d", kNone, 0}},
       {3, 1, 0, 2}},
      {"a request beyond the nodes is none", {{"a", kNone, 2}, {"b", kNone, kNone}}, {0, 1}},
      {"of equal requests the earlier one is met", {{"a", kNone, 1}, {"b", kNone, 1}, {"c", kNone, 1}}, {1, 0, 2}},
      {"of equal requests a survivor's is met", {{"a", kNone, 1}, {"b", kNone, 1}, {"c", 0, 1}}, {0, 2, 1}}};
  for (const Case& c : cases) {
    std::vector<RankRequest> requests;
    for (const Case::Node& node : c.nodes) {
      requests.push_back(Newcomer(node.host, requests.size()));
      requests.back().previous_rank = node.previous;
      if (node.requested != kNone) requests.back().node_rank = node.requested;
    }
    EXPECT_EQ(AssignRanks(requests).order, c.order) << c.what;
  }
}

// New nodes have as many slots as those that they replace.
TEST(AssignRanksTest, NodesReplaced_RanksOfTheOthersStay) {
  for (int gone = 1; gone < 32; ++gone) {
    SCOPED_TRACE(gone);
    std::vector<RankRequest> r;
    for (int i = 0; i < 5; ++i) {
      r.push_back(Newcomer("a", i));
      r.back().slots = 2;
      r.back().role = i < 2 ? "ps" : "trainer";
      r.back().previous_rank = (gone >> i) % 2 == 0 ? i : -1;
    }
    const RankTable table = AssignRanks(r);
    for (int i = 0; i < 5; ++i) {
      if (r[i].previous_rank < 0) continue;
      EXPECT_EQ(table.places[i].group_rank, i);
      EXPECT_EQ(table.places[i].base_rank, 2 * i);
    }
  }
}

// The example of torchelastic's test_assign_worker_ranks: slots 4, 1, 2, 3, 5 and two roles.
TEST(AssignRanksTest, SlotsAndRoles_AddUp) {
  std::vector<RankRequest> r;
  const int slots[] = {4, 1, 2, 3, 5};
  const char* roles[] = {"ps", "trainer", "trainer", "trainer", "ps"};
  for (int i = 0; i < 5; ++i) {
    r.push_back(Newcomer("h", i));
    r.back().slots = slots[i];
    r.back().role = roles[i];
  }
  const RankTable table = AssignRanks(r);
  EXPECT_EQ(table.world_size, 15);
  const int base[] = {0, 4, 5, 7, 10}, role_base[] = {0, 0, 1, 3, 4}, role_world[] = {9, 6, 6, 6, 9};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(table.places[i].group_rank, i);
    EXPECT_EQ(table.places[i].base_rank, base[i]);
    EXPECT_EQ(table.places[i].base_role_rank, role_base[i]);
    EXPECT_EQ(table.places[i].role_world_size, role_world[i]);
  }
}

class RandomRequests {
 public:
  explicit RandomRequests(uint64_t seed) : random_(seed) {
    const int n = 1 + random_() % 20;
    std::vector<int> ranks;
    for (int i = 0; i < (seed % 2 == 0 ? n : 2 * n); ++i) ranks.push_back(i);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    for (int i = 0; i < n; ++i) {
      names.push_back(absl::StrCat("node", random_() % 30));
      names.push_back(random_() % 2 == 0 ? "" : absl::StrCat("sw", random_() % 12));
    }
    for (int i = 0; i < n; ++i) {
      RankRequest r = Newcomer(names[2 * i], i);
      r.topology = names[2 * i + 1];
      r.slots = 1 + random_() % 8;
      r.role = random_() % 3 == 0 ? "a" : "b";
      if (random_() % 2 == 0) r.previous_rank = ranks[i];
      if (random_() % 3 == 0) r.node_rank = random_() % (n + 2);
      requests.push_back(r);
    }
  }
  std::vector<std::string> names;
  std::vector<RankRequest> requests;
  std::mt19937_64 random_;
};

void CheckRanks(const std::vector<RankRequest>& requests, const RankTable& table) {
  const size_t n = requests.size();
  ASSERT_EQ(table.order.size(), n);
  int base = 0;
  std::map<absl::string_view, int> role_base;
  std::vector<bool> seen(n, false);
  for (size_t r = 0; r < n; ++r) {
    const size_t i = table.order[r];
    ASSERT_FALSE(seen[i]) << "no permutation";
    seen[i] = true;
    EXPECT_EQ(table.places[i].group_rank, static_cast<int>(r));
    EXPECT_EQ(table.places[i].base_rank, base);
    EXPECT_EQ(table.places[i].base_role_rank, role_base[requests[i].role]);
    base += requests[i].slots;
    role_base[requests[i].role] += requests[i].slots;
  }
  EXPECT_EQ(table.world_size, base);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(table.places[i].role_world_size, role_base[requests[i].role]);
}

void CheckOrder(const std::vector<RankRequest>& requests, const RankTable& table) {
  std::map<int, int> requested;
  for (const RankRequest& r : requests) {
    if (r.node_rank) ++requested[*r.node_rank];
  }
  const bool all_fit = std::all_of(requests.begin(), requests.end(), [&](const RankRequest& r) {
    return r.previous_rank < static_cast<int>(requests.size());
  });
  std::vector<const RankRequest*> without;
  for (size_t r = 0; r < table.order.size(); ++r) {
    const RankRequest& request = requests[table.order[r]];
    const bool met = request.node_rank && *request.node_rank == static_cast<int>(r);
    if (requested[r] > 0) {
      EXPECT_TRUE(met) << "the requested rank " << r << " was not met";
    }
    if (all_fit && !met && request.previous_rank >= 0 && requested[request.previous_rank] == 0) {
      EXPECT_EQ(request.previous_rank, static_cast<int>(r)) << "its rank moved";
      continue;
    }
    if (!met) without.push_back(&request);
  }
  for (size_t i = 1; i < without.size(); ++i) {
    const RankRequest &a = *without[i - 1], &b = *without[i];
    EXPECT_FALSE(a.previous_rank < 0 && b.previous_rank >= 0) << "a newcomer before a survivor";
    if (a.previous_rank >= 0 && b.previous_rank >= 0) {
      EXPECT_LT(a.previous_rank, b.previous_rank);
    }
    if (a.previous_rank < 0 && b.previous_rank < 0) {
      EXPECT_LE(NaturalCompare(a.topology, b.topology), 0);
    }
  }
}

TEST(AssignRanksTest, RandomRequests_KeepTheRules) {
  std::printf("seeds 1 to 5000\n");
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    RandomRequests random(seed);
    const RankTable table = AssignRanks(random.requests);
    CheckRanks(random.requests, table);
    CheckOrder(random.requests, table);
    // The order of the requests does not matter.
    std::vector<RankRequest> shuffled = random.requests;
    std::shuffle(shuffled.begin(), shuffled.end(), random.random_);
    const RankTable again = AssignRanks(shuffled);
    for (size_t r = 0; r < table.order.size(); ++r) {
      EXPECT_EQ(random.requests[table.order[r]].join_order, shuffled[again.order[r]].join_order);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(NaturalCompareTest, NaturalCompare_Digits_CompareAsNumbers) {
  const std::vector<std::string> sorted = absl::StrSplit(
      " 1 02 10 a a1b2 a1b10 node node- node7 node66 node066b node100 node100-ib node18446744073709551616 "
      "node99999999999999999999999",
      ' ');
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) {
      const int c = NaturalCompare(sorted[i], sorted[j]);
      EXPECT_EQ(c < 0, i < j) << sorted[i] << " and " << sorted[j];
      EXPECT_EQ(c == 0, i == j) << sorted[i] << " and " << sorted[j];
    }
  }
}

TEST(NaturalCompareTest, NaturalCompare_LeadingZeros_Differ) {
  EXPECT_NE(NaturalCompare("a01", "a1"), 0);
  EXPECT_EQ(NaturalCompare("a01", "a1") < 0, NaturalCompare("a1", "a01") > 0);
  EXPECT_LT(NaturalCompare("a01", "a2"), 0);
  EXPECT_LT(NaturalCompare("a01b", "a1c"), 0);
  EXPECT_EQ(NaturalCompare("a00", "a00"), 0);
}

TEST(NaturalCompareTest, BytesAboveAscii_ComeLast) { EXPECT_LT(NaturalCompare("z", "\xc3\xa4"), 0); }

TEST(NaturalCompareTest, RandomNames_AreTotallyOrdered) {
  std::mt19937 random(7);
  std::vector<std::string> names;
  for (int i = 0; i < 120; ++i) {
    std::string name;
    for (int length = random() % 6; length > 0; --length) name += "ab019-"[random() % 6];
    names.push_back(name);
  }
  for (const auto& a : names) {
    for (const auto& b : names) {
      EXPECT_EQ(NaturalCompare(a, b) < 0, NaturalCompare(b, a) > 0) << a << " " << b;
      EXPECT_EQ(NaturalCompare(a, b) == 0, a == b) << a << " " << b;
      for (const auto& c : names) {
        if (NaturalCompare(a, b) < 0 && NaturalCompare(b, c) < 0) {
          ASSERT_LT(NaturalCompare(a, c), 0) << a << " " << b << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
