#include "launcher/hang/stragglers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/hang/job_view.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kLeastCollectives = 40;
constexpr int64_t kLeastLateUs = 3'000;  // clocks of hosts are known to about a millisecond
constexpr double kLeastShare = 0.05;     // part of a step
constexpr double kMostly = 0.75;
constexpr double kTimesTheSpread = 2;  // distance to the others, in terms of the distance between these
// NCCL's end of an operation is noticed up to 100 ms late.
constexpr int64_t kNoticedUs = 200'000;

// A collective that all members of a group have entered.
struct Entered {
  std::vector<int64_t> times;  // index: member
  int64_t base = 0;            // the lower median of times
  int64_t wait = 0;            // from that to the last one
};

template <typename T>
T Quantile(std::vector<T> values, double quantile) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(quantile * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Collectives that all members have entered, by number. An operation that ends long after the last member has entered
// it has waited for devices, whose work was enqueued ahead, and not for that member.
std::vector<Entered> EnteredByAll(const GroupView& group) {
  struct Found {
    std::vector<int64_t> times;
    int64_t ended = 0;  // 0: not known
  };
  std::map<int64_t, Found> found;
  for (size_t i = 0; i < group.members.size(); ++i) {
    for (const hang::v1::Collective& operation : group.members[i].group->collectives()) {
      if (operation.entered_us() <= 0) continue;
      Found& one = found[operation.number()];
      if (one.times.size() == i) one.times.push_back(operation.entered_us());
      const int64_t ended = operation.ended_us();
      if (ended > 0 && (one.ended == 0 || ended < one.ended)) one.ended = ended;
    }
  }
  std::vector<Entered> entered;
  for (auto& [number, one] : found) {
    if (one.times.size() < group.members.size()) continue;
    const int64_t last = *std::max_element(one.times.begin(), one.times.end());
    const int64_t base = Quantile(one.times, 0.5);
    if (one.ended > 0 && one.ended - last > last - base + kNoticedUs) continue;
    entered.push_back({std::move(one.times), base, last - base});
  }
  return entered;
}

struct Steps {
  double count = 0;
  double us = 0;  // length of each
};

// Collectives come in bursts, one for each step, or evenly. The longest intervals between them are pauses of other
// kinds.
Steps StepsOf(const std::vector<Entered>& entered) {
  std::vector<int64_t> intervals;
  for (size_t i = 1; i < entered.size(); ++i) intervals.push_back(entered[i].base - entered[i - 1].base);
  const int64_t longest = Quantile(intervals, 0.98);
  Steps steps;
  for (const int64_t interval : intervals) {
    if (interval > 2 * longest) continue;
    if (2 * interval >= longest) ++steps.count;
    steps.us += static_cast<double>(interval);
  }
  steps.us /= std::max(steps.count, 1.0);
  return steps;
}

struct Late {
  std::vector<size_t> members;  // indices of the group's members, sorted
  int64_t us = 0;
  double share = 0;
};

std::optional<Late> LateMembers(const GroupView& group) {
  const size_t size = group.members.size();
  const std::vector<Entered> entered = EnteredByAll(group);
  if (size < 2 || entered.size() < kLeastCollectives) return std::nullopt;
  std::vector<int64_t> waits;
  for (const Entered& one : entered) waits.push_back(one.wait);
  const int64_t longest = Quantile(waits, 0.95);
  std::vector<const Entered*> counted;
  for (const Entered& one : entered) {
    if (2 * one.wait >= longest && one.wait / 4 <= longest) counted.push_back(&one);
  }
  struct Lateness {
    int64_t us;
    size_t member;
  };
  std::vector<Lateness> late;
  for (size_t member = 0; member < size; ++member) {
    std::vector<int64_t> values;
    for (const Entered* one : counted) values.push_back(one->times[member] - one->base);
    late.push_back({Quantile(values, 0.5), member});
  }
  std::sort(late.begin(), late.end(), [](const Lateness& a, const Lateness& b) { return a.us < b.us; });
  size_t first = size - 1;
  for (size_t i = size - 1; i > size / 2; --i) {
    if (late[i].us - late[i - 1].us > late[first].us - late[first - 1].us) first = i;
  }
  const int64_t distance = late[first].us - late[first - 1].us;
  const int64_t spread = late[first - 1].us - late[0].us;
  if (distance < kLeastLateUs || static_cast<double>(distance) < kTimesTheSpread * static_cast<double>(spread)) {
    return std::nullopt;
  }
  Late found;
  for (size_t i = first; i < size; ++i) found.members.push_back(late[i].member);
  std::sort(found.members.begin(), found.members.end());
  std::vector<int64_t> values;
  for (const Entered* one : counted) {
    int64_t earliest = one->base + one->wait;
    for (const size_t member : found.members) earliest = std::min(earliest, one->times[member]);
    values.push_back(earliest - one->base);
  }
  const auto is_late = [distance](int64_t us) { return 2 * us >= distance; };
  const auto times = static_cast<double>(std::count_if(values.begin(), values.end(), is_late));
  const Steps steps = StepsOf(entered);
  found.us = Quantile(values, 0.5);
  found.share = static_cast<double>(found.us) / steps.us;
  // A rank can't be late by more than a step, in each of which the others wait for it.
  const bool is_straggler = times >= kMostly * static_cast<double>(values.size()) && 2 * times >= steps.count &&
                            found.share >= kLeastShare && found.share <= 1;
  return is_straggler ? std::optional(found) : std::nullopt;
}

// True if two members send to each other: stages of a pipeline.
bool HasStages(const JobView& job, const GroupView& group) {
  std::set<size_t> members;
  for (const Member& member : group.members) members.insert(member.rank);
  for (const size_t rank : members) {
    for (const hang::v1::Group& other : job.ranks[rank].evidence().groups()) {
      for (const hang::v1::Collective& operation : other.point_to_point()) {
        const auto peer = JobView::PeerOf(other, operation);
        const auto index = peer && peer->rank != job.ranks[rank].rank() ? job.Find(peer->rank) : std::nullopt;
        if (index && members.count(*index) > 0) return true;
      }
    }
  }
  return false;
}

bool AllAreKnown(const JobView& job, const GroupView& group) {
  const auto is_unknown = [](const Member& member) { return member.group == nullptr; };
  if (group.members.empty() || std::any_of(group.members.begin(), group.members.end(), is_unknown)) return false;
  const int members = group.members.front().group->members_size();
  const bool all_ranks = members == 0 && IsDefaultGroup(group.name);
  return group.members.size() >= static_cast<size_t>(all_ranks ? job.world_size : members);
}

}  // namespace

std::optional<Stragglers> FindStragglers(const JobEvidence& evidence) {
  const JobView job(evidence);
  std::set<size_t> waiting;
  std::vector<std::pair<const GroupView*, Late>> found;
  for (const GroupView& group : job.groups) {
    if (!AllAreKnown(job, group) || HasStages(job, group)) continue;
    std::optional<Late> late = LateMembers(group);
    if (!late) continue;
    for (size_t i = 0; i < group.members.size(); ++i) {
      if (!std::binary_search(late->members.begin(), late->members.end(), i)) waiting.insert(group.members[i].rank);
    }
    found.emplace_back(&group, *std::move(late));
  }
  std::set<int32_t> ranks;
  std::set<std::string> hosts;
  const std::pair<const GroupView*, Late>* most = nullptr;
  for (const auto& one : found) {
    for (const size_t member : one.second.members) {
      const size_t rank = one.first->members[member].rank;
      if (waiting.count(rank) > 0) continue;
      ranks.insert(job.ranks[rank].rank());
      hosts.insert(job.ranks[rank].host());
      if (most == nullptr || one.second.share > most->second.share) most = &one;
    }
  }
  if (most == nullptr) return std::nullopt;
  Stragglers stragglers{{ranks.begin(), ranks.end()}, absl::Microseconds(most->second.us), most->second.share, ""};
  const bool one = ranks.size() == 1;
  const GroupView& group = *most->first;
  stragglers.text = absl::StrFormat(
      "%s%s %s collectives%s %.*f ms after the others, %.0f%% of each step: the job waits for %s",
      RanksText(stragglers.ranks),
      job.several_nodes ? absl::StrCat(" (", HostsText(std::vector<std::string>(hosts.begin(), hosts.end())), ")") : "",
      one ? "enters" : "enter", IsDefaultGroup(group.name) ? "" : absl::StrCat(" of ", GroupText(group.name)),
      stragglers.late < absl::Milliseconds(10) ? 1 : 0, absl::ToDoubleMilliseconds(stragglers.late),
      100 * stragglers.share, one ? "it" : "them");
  return stragglers;
}

}  // namespace ddprun::launcher
