#ifndef DDPRUN_LAUNCHER_HANG_JOB_VIEW_H_
#define DDPRUN_LAUNCHER_HANG_JOB_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/text.h"
#include "launcher/hang/judge.h"
#include "launcher/hang/rank_state.h"
#include "proto/hang.pb.h"

// PURE. The evidence of all nodes, put together by rank and by group: what the judge looks at. The evidence may be
// hostile: ranks that do not exist and second copies are left out.
namespace ddprun::launcher {

using Indices = std::vector<size_t>;  // indices of JobView::ranks

inline constexpr int64_t kNoneEntered = std::numeric_limits<int64_t>::min();

inline absl::Duration Age(const hang::v1::Collective& operation) {
  return absl::Milliseconds(std::max<int64_t>(operation.age_ms(), 0));
}

struct Member {
  size_t rank = 0;                                // index of JobView::ranks
  const hang::v1::Group* group = nullptr;         // null: it has entered no collective of the group
  int64_t entered = kNoneEntered;                 // last one that its device may have begun
  const hang::v1::Collective* pending = nullptr;  // first one that has not completed
};

struct GroupView {
  std::string name;
  std::vector<Member> members;  // only ranks of which it is known what they have entered
  bool complete = true;         // false: ranks that have entered none of its collectives may be members, too
};

// A rank that waits for another one to send or receive.
struct PeerWait {
  size_t from = 0;
  size_t to = 0;
  const hang::v1::Collective* operation = nullptr;
  std::string group;
  bool answered = false;  // the other one is in the opposite operation
};

// Order of the operation that the rank's device runs, if one is pending: later ones have not begun.
inline int64_t OrderOfRunning(const hang::v1::Rank& rank) {
  int64_t running = std::numeric_limits<int64_t>::max();
  for (const hang::v1::Group& group : rank.groups()) {
    for (const auto* operations : {&group.collectives(), &group.point_to_point()}) {
      for (const hang::v1::Collective& operation : *operations) {
        if (operation.pending() && operation.order() > 0) running = std::min(running, operation.order());
      }
    }
  }
  return running;
}

inline Member MemberOf(size_t rank, const hang::v1::Group& group, int64_t running) {
  Member member{rank, &group, group.entered()};
  for (const hang::v1::Collective& operation : group.collectives()) {
    member.entered = std::max(member.entered, operation.number());
    if (operation.pending() && (!member.pending || operation.number() < member.pending->number())) {
      member.pending = &operation;
    }
  }
  if (member.pending && member.pending->order() > running) {
    member.entered = std::max(member.pending->number(), kNoneEntered + 1) - 1;
    member.pending = nullptr;
  }
  return member;
}

class JobView {
 public:
  explicit JobView(const JobEvidence& evidence) : world_size(std::max(evidence.world_size, 0)) {
    several_nodes = evidence.node_count > 1;
    for (const auto& node : evidence.nodes) {
      for (const hang::v1::Rank& rank : node.ranks()) {
        if (rank.rank() >= 0 && rank.rank() < world_size) ranks.emplace_back(&rank, OneLine(node.host(), 64));
      }
    }
    std::stable_sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
    const auto same = [](const RankState& a, const RankState& b) { return a.rank() == b.rank(); };
    ranks.erase(std::unique(ranks.begin(), ranks.end(), same), ranks.end());
    FindGroups();
    FindPeerWaits();
  }

  std::optional<size_t> Find(int32_t rank) const {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                     [](const RankState& state, int32_t number) { return state.rank() < number; });
    if (at == ranks.end() || at->rank() != rank) return std::nullopt;
    return at - ranks.begin();
  }

  // Ranks of which nothing is known.
  std::vector<int32_t> Unknown() const {
    std::vector<int32_t> unknown;
    size_t at = 0;
    for (int32_t rank = 0; rank < world_size; ++rank) {
      if (at < ranks.size() && ranks[at].rank() == rank) {
        if (ranks[at++].known()) continue;
      }
      unknown.push_back(rank);
    }
    return unknown;
  }

  std::vector<int32_t> Numbers(const Indices& indices) const {
    std::vector<int32_t> numbers;
    for (const size_t index : indices) numbers.push_back(ranks[index].rank());
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  // "rank 1", with its host if there are several nodes: "rank 1 (node-b)".
  std::string Name(const RankState& rank) const {
    return absl::StrCat("rank ", rank.rank(), several_nodes ? absl::StrCat(" (", rank.host(), ")") : "");
  }

  struct Peer {
    bool sends = false;
    int32_t rank = 0;
  };
  // Parses "send 0->1" and "recv 1<-0".
  static std::optional<Peer> PeerOf(const hang::v1::Group& group, const hang::v1::Collective& operation) {
    const bool sends = absl::StrContains(operation.name(), "->");
    const std::vector<absl::string_view> parts = absl::StrSplit(operation.name(), sends ? "->" : "<-");
    int32_t index = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &index) || index < 0) return std::nullopt;
    if (index < group.members_size()) return Peer{sends, group.members(index)};
    if (group.members_size() == 0 && IsDefaultGroup(group.name())) return Peer{sends, index};
    return std::nullopt;
  }

  const int32_t world_size;
  bool several_nodes = false;
  std::vector<RankState> ranks;  // sorted by number, at most one for each
  std::vector<GroupView> groups;
  std::vector<PeerWait> peer_waits;  // at most one for each rank

 private:
  // Groups with the same name are one group only if they have the same members.
  static std::string Key(const hang::v1::Group& group) {
    return absl::StrCat(group.name(), "\n", absl::StrJoin(group.members(), ","));
  }

  // True if a rank without entries of a group has entered none of its collectives, or can't take part in them any more.
  static bool HasEnteredNone(const RankState& rank) {
    return rank.ended() || rank.recorded() || rank.stopped() || rank.place() == RankState::Place::kElsewhere;
  }

  void FindGroups() {
    std::map<std::string, std::pair<const hang::v1::Group*, std::vector<Member>>> found;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int64_t running = OrderOfRunning(ranks[i].evidence());
      for (const hang::v1::Group& group : ranks[i].evidence().groups()) {
        auto& [first, members] = found[Key(group)];
        if (first == nullptr) first = &group;
        if (members.empty() || members.back().rank != i) members.push_back(MemberOf(i, group, running));
      }
    }
    for (auto& [key, group] : found) {
      auto& [first, members] = group;
      Indices all;
      if (first->members_size() > 0) {
        for (const int32_t rank : first->members()) {
          if (const auto index = Find(rank)) all.push_back(*index);
        }
      } else if (IsDefaultGroup(first->name())) {
        for (size_t i = 0; i < ranks.size(); ++i) all.push_back(i);
      }
      std::vector<bool> present(ranks.size());
      for (const Member& member : members) present[member.rank] = true;
      for (const size_t rank : all) {
        if (!present[rank] && HasEnteredNone(ranks[rank])) members.push_back({rank});
        present[rank] = true;
      }
      groups.push_back({first->name(), std::move(members), first->members_size() > 0 || IsDefaultGroup(first->name())});
    }
  }

  void FindPeerWaits() {
    struct Found {
      PeerWait wait;
      bool sends;
    };
    std::vector<Found> found;
    std::set<std::pair<size_t, std::pair<int32_t, bool>>> open;  // rank, its peer, sends: pending operations
    for (size_t i = 0; i < ranks.size(); ++i) {
      std::optional<Found> oldest;
      const int64_t running = OrderOfRunning(ranks[i].evidence());
      for (const hang::v1::Group& group : ranks[i].evidence().groups()) {
        for (const hang::v1::Collective& operation : group.point_to_point()) {
          const bool begun = operation.pending() && operation.order() <= running;
          const auto peer = begun ? PeerOf(group, operation) : std::nullopt;
          if (!peer || peer->rank == ranks[i].rank()) continue;
          open.insert({i, {peer->rank, peer->sends}});
          const auto to = Find(peer->rank);
          if (!to || !HasEnteredNone(ranks[*to])) continue;
          if (!oldest || Age(operation) > Age(*oldest->wait.operation)) {
            oldest = Found{{i, *to, &operation, group.name(), false}, peer->sends};
          }
        }
      }
      if (oldest) found.push_back(*std::move(oldest));
    }
    for (auto& [wait, sends] : found) {
      wait.answered = open.count({wait.to, {ranks[wait.from].rank(), !sends}}) > 0;
      peer_waits.push_back(std::move(wait));
    }
  }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_JOB_VIEW_H_
