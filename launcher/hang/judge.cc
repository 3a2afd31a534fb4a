#include "launcher/hang/judge.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/hang/job_view.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Collective;
using hang::v1::Connection;
using hang::v1::Group;
using Activity = RankState::Activity;
using Kind = Verdict::Kind;

constexpr size_t kMaxListed = 3;  // ranks, connections and operations described in one line
constexpr uint32_t kBrokenBackoff = 3;
// Repetitions shorter than this predict nothing.
constexpr size_t kLeastRepetition = 2;
constexpr size_t kMaxRepetition = 64;
constexpr size_t kMaxHistory = 2000;
constexpr size_t kMaxVoters = 8;  // ranks of each side whose pasts are asked

// ---- operations ----

// Operations whose tensors must have the same types and numbers of elements on all ranks.
bool HasSameSizes(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {"all_reduce",        "allreduce",
                                                 "broadcast",         "reduce",
                                                 "all_gather",        "reduce_scatter",
                                                 "_allgather_base",   "_reduce_scatter_base",
                                                 "all_gather_single", "reduce_scatter_single"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// "Float[10, 4]" becomes "Float*40": another shape with as many elements does no harm.
std::string ElementsText(absl::string_view tensor) {
  const size_t open = tensor.find('[');
  if (open == absl::string_view::npos || !absl::EndsWith(tensor, "]")) return std::string(tensor);
  int64_t elements = 1;
  for (absl::string_view part :
       absl::StrSplit(tensor.substr(open + 1, tensor.size() - open - 2), ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
      return std::string(tensor);
    }
  }
  return absl::StrCat(tensor.substr(0, open), "*", elements);
}

// Equal on all ranks that take part in the same operation.
std::string Signature(const Collective& operation) {
  std::string text = operation.name();
  if (!HasSameSizes(operation.name())) return text;
  for (const std::string& tensor : operation.tensors()) absl::StrAppend(&text, " ", ElementsText(tensor));
  return text;
}

// ---- waiting ranks ----

// Operation in which a rank waits.
struct Position {
  const Collective* operation = nullptr;
  std::string group;
  const GroupView* view = nullptr;  // null: a send or receive
};

class Waits {
 public:
  explicit Waits(const JobView& job) : job_(job), waits_(job.ranks.size()), inside_(job.ranks.size()) {
    for (const GroupView& group : job.groups) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const Member& member : group.members) least = std::min(least, member.entered);
      for (const Member& member : group.members) {
        if (member.pending == nullptr) continue;
        auto& found = least < member.pending->number() ? waits_ : inside_;
        Keep({member.pending, group.name, &group}, &found[member.rank]);
      }
    }
    for (const PeerWait& wait : job.peer_waits) {
      Keep({wait.operation, wait.group, nullptr}, &(wait.answered ? inside_ : waits_)[wait.from]);
    }
  }

  // Positions of ranks that wait for a rank which has not entered the operation; unset for all others.
  const std::vector<std::optional<Position>>& waits() const { return waits_; }
  // Positions of ranks in an operation that all known members have entered.
  const std::vector<std::optional<Position>>& inside() const { return inside_; }

  // Ranks that these ones wait for.
  std::vector<bool> Blamed(const std::vector<bool>& by) const {
    std::vector<bool> blamed(by.size());
    for (const GroupView& group : job_.groups) {
      int64_t furthest = kNoneEntered;
      for (const Member& member : group.members) {
        if (by[member.rank] && member.pending) furthest = std::max(furthest, member.pending->number());
      }
      for (const Member& member : group.members) {
        if (member.entered < furthest) blamed[member.rank] = true;
      }
    }
    for (const PeerWait& wait : job_.peer_waits) {
      if (by[wait.from] && !wait.answered) blamed[wait.to] = true;
    }
    return blamed;
  }

  // The oldest operation in which a rank waits for one of `odd`.
  std::optional<Position> OldestFor(const std::vector<bool>& odd) const {
    std::optional<Position> oldest;
    for (const GroupView& group : job_.groups) {
      int64_t least = std::numeric_limits<int64_t>::max();
      for (const Member& member : group.members) {
        if (odd[member.rank]) least = std::min(least, member.entered);
      }
      for (const Member& member : group.members) {
        if (member.pending && least < member.pending->number() && !odd[member.rank]) {
          Keep({member.pending, group.name, &group}, &oldest);
        }
      }
    }
    for (const PeerWait& wait : job_.peer_waits) {
      if (odd[wait.to] && !odd[wait.from] && !wait.answered) Keep({wait.operation, wait.group, nullptr}, &oldest);
    }
    return oldest;
  }

 private:
  static void Keep(const Position& position, std::optional<Position>* oldest) {
    if (!*oldest || Age(*position.operation) > Age(*(*oldest)->operation)) *oldest = position;
  }

  const JobView& job_;
  std::vector<std::optional<Position>> waits_;
  std::vector<std::optional<Position>> inside_;
};

std::vector<bool> IsSet(const std::vector<std::optional<Position>>& positions) {
  std::vector<bool> set(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) set[i] = positions[i].has_value();
  return set;
}

Indices Selected(const std::vector<bool>& selected) {
  Indices indices;
  for (size_t i = 0; i < selected.size(); ++i) {
    if (selected[i]) indices.push_back(i);
  }
  return indices;
}

std::vector<bool> Without(std::vector<bool> ranks, const std::vector<bool>& others) {
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = ranks[i] && !others[i];
  return ranks;
}

bool Contains(const Indices& indices, size_t index) {
  return std::binary_search(indices.begin(), indices.end(), index);
}

// ---- ranks that entered different operations ----

struct Entry {
  int64_t number = 0;
  size_t rank = 0;
  const Collective* operation = nullptr;
  const Group* group = nullptr;
};

struct Difference {
  int64_t number = 0;
  std::map<std::string, std::vector<Entry>> sides;  // keyed by signature, at least two
};

// Returns the first operation, from `first` on, that members have entered differently.
std::optional<Difference> FirstDifference(const GroupView& group, int64_t first) {
  std::vector<Entry> entries;
  for (const Member& member : group.members) {
    if (member.group == nullptr) continue;
    for (const Collective& operation : member.group->collectives()) {
      if (operation.number() >= first) entries.push_back({operation.number(), member.rank, &operation, member.group});
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.number, a.rank) < std::pair(b.number, b.rank);
  });
  for (auto at = entries.begin(); at != entries.end();) {
    Difference difference{at->number, {}};
    std::optional<size_t> last;  // several entries with one number are a coalesced operation: the first stands for all
    for (; at != entries.end() && at->number == difference.number; ++at) {
      if (at->rank != last) difference.sides[Signature(*at->operation)].push_back(*at);
      last = at->rank;
    }
    if (difference.sides.size() > 1) return difference;
  }
  return std::nullopt;
}

// Returns the signature that a rank's own past predicts: what followed the longest earlier repetition of the operations
// before `number`. Empty: no repetition.
std::string Predicted(const Group& group, int64_t number) {
  std::map<int64_t, std::string> past;
  for (const Collective& operation : group.collectives()) {
    if (operation.number() < number) past.emplace(operation.number(), Signature(operation));
    if (past.size() > kMaxHistory) past.erase(past.begin());
  }
  std::vector<std::string> history;
  for (auto& [at, signature] : past) history.push_back(std::move(signature));
  size_t best = kLeastRepetition - 1;
  std::string predicted;
  for (size_t end = history.size(); end-- > 1;) {
    size_t length = 0;
    while (length < std::min(end, kMaxRepetition) &&
           history[end - 1 - length] == history[history.size() - 1 - length]) {
      ++length;
    }
    if (length > best) {
      best = length;
      predicted = history[end];
    }
  }
  return predicted;
}

// Entries of the ranks at fault: the minority, else those that depart from the ranks' past, else all of them.
std::vector<Entry> OddEntries(const Difference& difference) {
  std::vector<const std::vector<Entry>*> sides;
  for (const auto& [signature, side] : difference.sides) sides.push_back(&side);
  std::sort(sides.begin(), sides.end(), [](const auto* a, const auto* b) { return a->size() > b->size(); });
  const std::vector<Entry>* right = sides[0]->size() > sides[1]->size() ? sides[0] : nullptr;
  if (right == nullptr) {
    std::map<std::string, size_t> votes;
    for (const auto* side : sides) {
      for (size_t i = 0; i < std::min(side->size(), kMaxVoters); ++i) {
        ++votes[Predicted(*(*side)[i].group, (*side)[i].number)];
      }
    }
    votes.erase("");
    // Ranks whose pasts contradict each other say nothing.
    if (votes.size() == 1) {
      const auto found = difference.sides.find(votes.begin()->first);
      if (found != difference.sides.end()) right = &found->second;
    }
  }
  std::vector<Entry> odd;
  for (const auto* side : sides) {
    if (side != right) odd.insert(odd.end(), side->begin(), side->end());
  }
  std::sort(odd.begin(), odd.end(), [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
  return odd;
}

std::optional<Mismatch> FindMismatch(const JobView& job) {
  std::optional<Mismatch> first;
  absl::Duration first_age;
  for (const GroupView& group : job.groups) {
    const auto difference = FirstDifference(group, kNoneEntered);
    if (!difference) continue;
    absl::Duration age;
    for (const auto& [signature, side] : difference->sides) age = std::max(age, Age(*side.front().operation));
    if (first && age <= first_age) continue;
    first_age = age;
    Indices odd;
    for (const Entry& entry : OddEntries(*difference)) odd.push_back(entry.rank);
    Indices others;
    std::vector<std::string> sides;
    for (const auto& [signature, side] : difference->sides) {
      Indices ranks;
      for (const Entry& entry : side) {
        ranks.push_back(entry.rank);
        if (!Contains(odd, entry.rank)) others.push_back(entry.rank);
      }
      if (sides.size() < kMaxListed) {
        sides.push_back(
            absl::StrCat(RanksText(job.Numbers(ranks)), " entered ", OperationText(*side.front().operation)));
      }
    }
    first = Mismatch{group.name, difference->number, job.Numbers(odd), job.Numbers(others),
                     absl::StrCat("ranks of ", GroupText(group.name),
                                  " entered different operations: ", absl::StrJoin(sides, ", "))};
  }
  return first;
}

// ---- connections ----

// Loopback addresses are different ones on each host.
std::string EndpointKey(const RankState& rank, absl::string_view endpoint) {
  const bool local =
      absl::StartsWith(endpoint, "127.") || absl::StartsWith(endpoint, "[::1]") || absl::StartsWith(endpoint, "::1:");
  return local ? absl::StrCat(rank.host(), " ", endpoint) : std::string(endpoint);
}

std::vector<BrokenLink> BrokenLinks(const JobView& job) {
  std::map<std::string, int32_t> owners;
  for (const RankState& rank : job.ranks) {
    for (const Connection& connection : rank.evidence().connections()) {
      owners.emplace(EndpointKey(rank, connection.own()), rank.rank());
    }
  }
  const bool all_known = job.Unknown().empty();
  std::vector<BrokenLink> links;
  for (const RankState& rank : job.ranks) {
    for (const Connection& connection : rank.evidence().connections()) {
      if (connection.backoff() < kBrokenBackoff || connection.unacknowledged() == 0) continue;
      const auto owner = owners.find(EndpointKey(rank, connection.peer()));
      // A peer outside of the job has nothing to do with collectives.
      if (owner == owners.end() && all_known) continue;
      links.push_back({rank.rank(), owner == owners.end() ? -1 : owner->second, OneLine(connection.peer(), 64),
                       connection.retransmits(), absl::Milliseconds(std::max<int64_t>(connection.silent_ms(), 0))});
    }
  }
  return links;
}

// ---- the verdict ----

class Judgement {
 public:
  explicit Judgement(const JobView& job) : job_(job), waits_(job), links_(BrokenLinks(job)) {}

  std::optional<Verdict> Find() const {
    if (auto verdict = Differ()) return verdict;
    const std::vector<bool> waiting = IsSet(waits_.waits());
    const std::vector<bool> inside = IsSet(waits_.inside());
    if (auto verdict = Behind(waiting, inside)) return verdict;
    if (auto verdict = Cycle(waiting)) return verdict;
    if (auto verdict = Inside(inside)) return verdict;
    if (Selected(waiting).empty()) {
      if (auto verdict = NotRecorded()) return verdict;
      return Idle();
    }
    return std::nullopt;
  }

 private:
  // Operation in which the rank is, for Phrase.
  std::string PositionText(size_t rank) const {
    const auto& position = waits_.waits()[rank] ? waits_.waits()[rank] : waits_.inside()[rank];
    return position ? absl::StrCat(OperationText(*position->operation), " of ", GroupText(position->group)) : "";
  }

  Verdict Make(Kind kind, Indices odd, const Indices& waiting, const std::optional<Position>& position,
               bool certain = true) const {
    std::sort(odd.begin(), odd.end());
    Verdict verdict;
    verdict.kind = kind;
    verdict.odd = job_.Numbers(odd);
    verdict.waiting = job_.Numbers(waiting);
    verdict.unknown = job_.Unknown();
    verdict.links = links_;
    if (position) {
      verdict.operation = OperationText(*position->operation);
      verdict.number = position->operation->number();
      verdict.group = position->group;
      verdict.timeout = absl::Milliseconds(std::max<int64_t>(position->operation->timeout_ms(), 0));
      if (verdict.timeout > absl::ZeroDuration()) verdict.left = verdict.timeout - Age(*position->operation);
    }
    // One idle rank among several is enough to stop all of them; a debugger means that a person is looking. Ranks that
    // are in a collective may poll.
    const bool in_collectives = kind == Kind::kDiffer || kind == Kind::kCycle || odd.empty();
    verdict.activity = in_collectives ? Activity::kIdle : Activity::kBusy;
    for (const Activity activity : {Activity::kUnknown, Activity::kIdle, Activity::kGone}) {
      if (std::any_of(odd.begin(), odd.end(), [&](size_t rank) { return job_.ranks[rank].activity() == activity; })) {
        verdict.activity = activity;
      }
    }
    for (const RankState& rank : job_.ranks) {
      if (rank.activity() == Activity::kDebugger) verdict.activity = Activity::kDebugger;
    }
    for (const size_t rank : odd) {
      if (verdict.details.size() < kMaxListed) {
        verdict.details[job_.ranks[rank].rank()] = job_.ranks[rank].Phrase(PositionText(rank));
      }
      const RankState& state = job_.ranks[rank];
      const bool idle =
          state.activity() == Activity::kIdle || (kind == Kind::kDiffer && state.waits_for_device() && !state.ended());
      if (certain && idle && verdict.activity != Activity::kDebugger) verdict.replaceable.push_back(state.rank());
    }
    return verdict;
  }

  // All have entered the operation, but not the same one. One that has completed on all ranks did no harm.
  std::optional<Verdict> Differ() const {
    std::map<const GroupView*, int64_t> first;
    for (const auto& position : waits_.inside()) {
      if (!position || position->view == nullptr) continue;
      const auto [at, added] = first.emplace(position->view, position->operation->number());
      if (!added) at->second = std::min(at->second, position->operation->number());
    }
    for (const GroupView& group : job_.groups) {
      const auto found = first.find(&group);
      const auto difference = found == first.end() ? std::nullopt : FirstDifference(group, found->second);
      if (!difference) continue;
      const std::vector<Entry> odd = OddEntries(*difference);
      Indices odd_ranks;
      for (const Entry& entry : odd) odd_ranks.push_back(entry.rank);
      Indices others;
      const Collective* operation = nullptr;
      for (const auto& [signature, side] : difference->sides) {
        for (const Entry& entry : side) {
          if (Contains(odd_ranks, entry.rank)) continue;
          others.push_back(entry.rank);
          operation = entry.operation;
        }
      }
      if (operation == nullptr) operation = odd.front().operation;
      Verdict verdict =
          Make(Kind::kDiffer, odd_ranks, others, Position{operation, group.name, &group}, !others.empty());
      for (const Entry& entry : odd) {
        const RankState& rank = job_.ranks[entry.rank];
        const auto detail = verdict.details.find(rank.rank());
        if (detail == verdict.details.end()) continue;
        const bool elsewhere = rank.place() == RankState::Place::kElsewhere;
        detail->second = absl::StrCat("entered ", OperationText(*entry.operation), others.empty() ? "" : " instead",
                                      elsewhere ? absl::StrCat("; it ", detail->second) : rank.Where());
      }
      return verdict;
    }
    return std::nullopt;
  }

  // Some have not entered it.
  std::optional<Verdict> Behind(const std::vector<bool>& waiting, const std::vector<bool>& inside) const {
    const std::vector<bool> blamed = waits_.Blamed(waiting);
    std::vector<bool> odd = Without(blamed, waiting);
    if (Selected(odd).empty()) {
      // In a cycle, a rank that only has such operations pending while its main thread is elsewhere is the cause.
      for (size_t i = 0; i < blamed.size(); ++i) {
        odd[i] = blamed[i] && job_.ranks[i].place() == RankState::Place::kElsewhere;
      }
    }
    const Indices found = Selected(odd);
    if (found.empty()) return std::nullopt;
    if (!links_.empty() && Selected(Without(odd, inside)).empty()) return std::nullopt;
    const auto position = waits_.OldestFor(odd);
    if (!position) return std::nullopt;
    Indices here;
    Indices elsewhere;
    for (const size_t rank : Selected(Without(waiting, odd))) {
      const auto& own = waits_.waits()[rank];
      const bool same = position->view ? own->view == position->view : own->operation == position->operation;
      (same ? here : elsewhere).push_back(rank);
    }
    const bool ended = std::all_of(found.begin(), found.end(), [&](size_t rank) { return job_.ranks[rank].ended(); });
    Verdict verdict = Make(ended ? Kind::kEnded : Kind::kBehind, found, here, position);
    verdict.waiting_elsewhere = job_.Numbers(elsewhere);
    return verdict;
  }

  // Ranks wait for each other: those left after removing, again and again, all for which no rank waits.
  std::optional<Verdict> Cycle(const std::vector<bool>& waiting) const {
    std::vector<bool> cycle = waiting;
    for (int i = 0; i < 64; ++i) {
      std::vector<bool> blamed = waits_.Blamed(cycle);
      for (size_t rank = 0; rank < cycle.size(); ++rank) blamed[rank] = blamed[rank] && cycle[rank];
      if (blamed == cycle) break;
      cycle = std::move(blamed);
    }
    const Indices odd = Selected(cycle);
    if (odd.empty()) return std::nullopt;
    Verdict verdict =
        Make(Kind::kCycle, odd, Selected(Without(waiting, cycle)), waits_.waits()[odd.front()], /*certain=*/false);
    for (const size_t rank : odd) {
      const auto detail = verdict.details.find(job_.ranks[rank].rank());
      if (detail == verdict.details.end()) break;
      std::vector<bool> alone(cycle.size());
      alone[rank] = true;
      detail->second = absl::StrCat("waits in ", PositionText(rank), " for ",
                                    RanksText(job_.Numbers(Selected(waits_.Blamed(alone)))), job_.ranks[rank].Where());
    }
    return verdict;
  }

  // All are inside the same operation: a rank in it can't continue, or the network.
  std::optional<Verdict> Inside(const std::vector<bool>& inside) const {
    std::optional<Position> oldest;
    for (const auto& position : waits_.inside()) {
      if (position && (!oldest || Age(*position->operation) > Age(*oldest->operation))) oldest = position;
    }
    if (!oldest) return std::nullopt;
    if (auto verdict = Outside(*oldest)) return verdict;
    Indices waiting = Selected(inside);
    Indices stopped;
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      if (job_.ranks[i].stopped() && !job_.ranks[i].ended()) stopped.push_back(i);
    }
    if (!stopped.empty()) {
      const auto is_stopped = [&](size_t rank) { return Contains(stopped, rank); };
      waiting.erase(std::remove_if(waiting.begin(), waiting.end(), is_stopped), waiting.end());
      return Make(Kind::kStopped, stopped, waiting, oldest);
    }
    if (!links_.empty()) {
      std::set<size_t> ends;
      for (const BrokenLink& link : links_) {
        for (const int32_t rank : {link.from, link.to}) {
          if (const auto index = Find(rank)) ends.insert(*index);
        }
      }
      return Make(Kind::kLink, Indices(ends.begin(), ends.end()), waiting, oldest, /*certain=*/false);
    }
    Verdict verdict = Make(Kind::kInside, {}, waiting, oldest, /*certain=*/false);
    // Members that have completed it are named, not blamed.
    for (const Member& member : oldest->view ? oldest->view->members : std::vector<Member>()) {
      if (inside[member.rank] || verdict.details.size() == kMaxListed) continue;
      const RankState& rank = job_.ranks[member.rank];
      verdict.details[rank.rank()] = absl::StrCat("has completed it and ", rank.Phrase(PositionText(member.rank)));
    }
    return verdict;
  }

  // Gloo does not record the members of a group. If all ranks but one are in collectives, that one keeps the job
  // waiting, although it has never entered this group's.
  std::optional<Verdict> Outside(const Position& position) const {
    if (position.view == nullptr || position.view->complete) return std::nullopt;
    Indices here;
    Indices elsewhere;
    Indices odd;
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      const RankState& rank = job_.ranks[i];
      if (const auto& own = waits_.inside()[i]; own || rank.place() == RankState::Place::kInCollective) {
        (own && own->view == position.view ? here : elsewhere).push_back(i);
      } else if (rank.place() == RankState::Place::kElsewhere || rank.stopped()) {
        odd.push_back(i);
      }
    }
    const size_t known = here.size() + elsewhere.size() + odd.size();
    if (odd.size() != 1 || known != static_cast<size_t>(job_.world_size)) return std::nullopt;
    for (const Member& member : position.view->members) {
      if (member.rank == odd.front()) return std::nullopt;
    }
    Verdict verdict = Make(Kind::kBehind, odd, here, position, /*certain=*/false);
    verdict.waiting_elsewhere = job_.Numbers(elsewhere);
    return verdict;
  }

  // No recorder has a pending operation, as with Gloo's send and receive and before PyTorch 2.8: native stacks tell
  // which ranks wait.
  std::optional<Verdict> NotRecorded() const {
    Indices waiting;
    Indices odd;
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      const RankState& rank = job_.ranks[i];
      if (rank.place() == RankState::Place::kInCollective) waiting.push_back(i);
      if (rank.place() == RankState::Place::kElsewhere || rank.stopped()) odd.push_back(i);
    }
    if (waiting.empty() || odd.empty()) return std::nullopt;
    return Make(Kind::kBehind, odd, waiting, std::nullopt, /*certain=*/false);
  }

  // No rank is in a collective. After the training, ranks end at different times.
  std::optional<Verdict> Idle() const {
    Indices all;
    bool entered = false;
    for (size_t i = 0; i < job_.ranks.size(); ++i) {
      const RankState& rank = job_.ranks[i];
      if (rank.activity() != Activity::kIdle && rank.activity() != Activity::kDebugger) return std::nullopt;
      entered = entered || rank.evidence().groups_size() > 0;
      all.push_back(i);
    }
    if (!entered || all.size() != static_cast<size_t>(job_.world_size)) return std::nullopt;
    return Make(Kind::kIdle, all, {}, std::nullopt, /*certain=*/false);
  }

  std::optional<size_t> Find(int32_t rank) const { return job_.Find(rank); }

  const JobView& job_;
  const Waits waits_;
  const std::vector<BrokenLink> links_;
};

// ---- text ----

std::string Plural(const std::vector<int32_t>& ranks, absl::string_view one, absl::string_view several) {
  return std::string(ranks.size() == 1 ? one : several);
}

std::string Seconds(absl::Duration duration) { return RemainingText(absl::Floor(duration, absl::Seconds(1))); }

// "rank 1 (node-b), which sleeps at train.py:31 in load; rank 4, which ... and 3 more (ranks 5-7)".
std::string OddText(const Verdict& verdict, const JobView& job, absl::string_view separator) {
  std::vector<std::string> listed;
  std::vector<int32_t> more;
  for (const int32_t rank : verdict.odd) {
    const auto index = job.Find(rank);
    const auto detail = verdict.details.find(rank);
    if (!index || detail == verdict.details.end()) {
      more.push_back(rank);
    } else {
      listed.push_back(absl::StrCat(job.Name(job.ranks[*index]), separator, detail->second));
    }
  }
  return absl::StrCat(absl::StrJoin(listed, "; "),
                      more.empty() ? "" : absl::StrCat(" and ", more.size(), " more (", RanksText(more), ")"));
}

// "between node-a and node-b (rank 0 and rank 1; 7 retransmissions, nothing received for 33s)".
std::string LinksText(const Verdict& verdict, const JobView& job) {
  std::vector<std::string> texts;
  for (const BrokenLink& link : verdict.links) {
    if (texts.size() == kMaxListed) {
      texts.push_back(absl::StrCat(verdict.links.size() - kMaxListed, " more"));
      break;
    }
    const auto from = job.Find(link.from);
    const auto to = job.Find(link.to);
    if (!from) continue;
    texts.push_back(absl::StrCat("from ", job.Name(job.ranks[*from]), " to ", to ? job.Name(job.ranks[*to]) : link.peer,
                                 " (", Counted(link.retransmits, "retransmission"), ", nothing received for ",
                                 Seconds(link.silent), ")"));
  }
  return absl::StrJoin(texts, ", ");
}

// "nothing is known about ranks 4-7 (node-b)".
std::string UnknownText(const Verdict& verdict, const JobView& job) {
  std::set<std::string> hosts;
  for (const int32_t rank : verdict.unknown) {
    if (const auto index = job.Find(rank)) hosts.insert(job.ranks[*index].host());
  }
  hosts.erase("");
  return absl::StrCat("nothing is known about ", RanksText(verdict.unknown),
                      job.several_nodes && !hosts.empty()
                          ? absl::StrCat(" (", HostsText(std::vector<std::string>(hosts.begin(), hosts.end())), ")")
                          : "");
}

std::string FirstLine(const Verdict& verdict, const JobView& job) {
  const std::string where =
      verdict.operation.empty() ? "a collective" : absl::StrCat(verdict.operation, " of ", GroupText(verdict.group));
  const std::string waiting = RanksText(verdict.waiting);
  const std::string all = verdict.waiting.size() == static_cast<size_t>(job.world_size)
                              ? "all ranks are"
                              : absl::StrCat(waiting, Plural(verdict.waiting, " is", " are"));
  std::string text;
  switch (verdict.kind) {
    case Kind::kBehind:
    case Kind::kEnded:
    case Kind::kStopped:
      text = absl::StrCat(waiting, Plural(verdict.waiting, " waits in ", " wait in "), where, " for ",
                          OddText(verdict, job, ", which "));
      break;
    case Kind::kDiffer:
      text = verdict.waiting.empty() ? absl::StrCat("the ranks do not agree about operation ", verdict.number, " of ",
                                                    GroupText(verdict.group), ": ", OddText(verdict, job, " "))
                                     : absl::StrCat(waiting, " entered ", where, ", but ", OddText(verdict, job, " "));
      break;
    case Kind::kCycle:
      text = absl::StrCat(RanksText(verdict.odd), " wait for each other: ", OddText(verdict, job, " "));
      if (!verdict.waiting.empty()) {
        absl::StrAppend(&text, "; ", waiting, Plural(verdict.waiting, " waits", " wait"), " for them");
      }
      break;
    case Kind::kLink:
      text = absl::StrCat(all, " in ", where, ", but data does not arrive ", LinksText(verdict, job));
      break;
    case Kind::kInside:
      text = absl::StrCat(all, " in ", where, ", which does not end");
      if (all == "all ranks are") absl::StrAppend(&text, ": the network, a device or the library");
      for (const auto& [rank, detail] : verdict.details) {
        if (const auto index = job.Find(rank)) absl::StrAppend(&text, "; ", job.Name(job.ranks[*index]), " ", detail);
      }
      break;
    case Kind::kIdle:
      text = absl::StrCat(RanksText(verdict.odd), Plural(verdict.odd, " is", " are"),
                          " idle: ", OddText(verdict, job, " "));
      break;
  }
  if (!verdict.waiting_elsewhere.empty()) {
    absl::StrAppend(&text, "; ", RanksText(verdict.waiting_elsewhere),
                    Plural(verdict.waiting_elsewhere, " waits", " wait"), " in other operations");
  }
  if (verdict.kind == Kind::kInside || verdict.kind == Kind::kLink) {
    std::vector<int32_t> unrecorded;
    for (const RankState& rank : job.ranks) {
      if (rank.known() && !rank.recorded()) unrecorded.push_back(rank.rank());
    }
    if (!unrecorded.empty()) absl::StrAppend(&text, "; the collectives of ", RanksText(unrecorded), " are unknown");
  }
  if (!verdict.unknown.empty()) absl::StrAppend(&text, "; ", UnknownText(verdict, job));
  return text;
}

}  // namespace

std::optional<Verdict> Judge(const JobEvidence& evidence) {
  const JobView job(evidence);
  std::optional<Verdict> verdict = Judgement(job).Find();
  if (verdict && verdict->kind != Kind::kDiffer) {
    const auto mismatch = FindMismatch(job);
    const bool before = mismatch && (mismatch->group != verdict->group || mismatch->number < verdict->number);
    if (before) verdict->mismatch = mismatch->text;
  }
  return verdict;
}

std::string HangText(const Verdict& verdict, const JobEvidence& evidence, absl::Duration stood) {
  const JobView job(evidence);
  std::vector<std::string> lines = {absl::StrCat("no progress for ", Seconds(stood), ": ", FirstLine(verdict, job))};
  const auto add_stacks = [&](int32_t rank, absl::string_view name) {
    const auto index = job.Find(rank);
    if (!index) return;
    const RankState& state = job.ranks[*index];
    for (std::string& line : state.StackLines(name.empty() ? job.Name(state) : name)) lines.push_back(std::move(line));
  };
  for (size_t i = 0; i < std::min(verdict.odd.size(), kMaxListed); ++i) add_stacks(verdict.odd[i], "");
  if (!verdict.waiting.empty()) {
    const std::string one = absl::StrCat("rank ", verdict.waiting.front());
    add_stacks(verdict.waiting.front(),
               verdict.waiting.size() == 1 ? "" : absl::StrCat(RanksText(verdict.waiting), ", for example ", one));
  }
  if (verdict.mismatch) lines.push_back(absl::StrCat("  before that, ", *verdict.mismatch));
  if (verdict.left && *verdict.left > absl::ZeroDuration()) {
    lines.push_back(absl::StrCat("  the operation's timeout ends the job in ", Seconds(*verdict.left)));
  }
  return absl::StrJoin(lines, "\n");
}

std::optional<Mismatch> FindMismatch(const JobEvidence& evidence) { return FindMismatch(JobView(evidence)); }

}  // namespace ddprun::launcher
