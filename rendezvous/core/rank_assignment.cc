#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"

namespace ddprun::rendezvous {
namespace {

// Removes the digits at the front of `text` and returns them without leading zeros.
absl::string_view TakeNumber(absl::string_view* text) {
  size_t end = 0;
  while (end < text->size() && absl::ascii_isdigit((*text)[end])) ++end;
  absl::string_view number = text->substr(0, end);
  text->remove_prefix(end);
  while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
  return number;
}

constexpr size_t kTombstone = static_cast<size_t>(-1);

bool Before(const RankRequest& a, const RankRequest& b) {
  const bool a_survives = a.previous_rank >= 0, b_survives = b.previous_rank >= 0;
  if (a_survives != b_survives) return a_survives;
  if (a_survives && a.previous_rank != b.previous_rank) return a.previous_rank < b.previous_rank;
  if (const int c = NaturalCompare(a.topology, b.topology); c != 0) return c < 0;
  if (const int c = NaturalCompare(a.host, b.host); c != 0) return c < 0;
  return a.join_order < b.join_order;
}

bool HasStrongerRequest(const RankRequest& a, const RankRequest& b) {
  const bool a_survives = a.previous_rank >= 0, b_survives = b.previous_rank >= 0;
  if (a_survives != b_survives) return a_survives;
  return a.join_order < b.join_order;
}

// Returns RankTable::order.
std::vector<size_t> Order(absl::Span<const RankRequest> requests) {
  const size_t n = requests.size();
  std::vector<size_t> order(n, kTombstone);
  for (size_t i = 0; i < n; ++i) {
    const auto& requested = requests[i].node_rank;
    if (!requested || *requested < 0 || static_cast<size_t>(*requested) >= n) continue;
    size_t& holder = order[*requested];
    if (holder == kTombstone || HasStrongerRequest(requests[i], requests[holder])) holder = i;
  }
  const bool all_fit = std::all_of(requests.begin(), requests.end(),
                                   [n](const RankRequest& r) { return r.previous_rank < static_cast<int64_t>(n); });
  std::vector<bool> placed(n, false);
  for (size_t holder : order) {
    if (holder != kTombstone) placed[holder] = true;
  }
  for (size_t i = 0; i < n && all_fit; ++i) {
    const int32_t kept = requests[i].previous_rank;
    if (kept < 0 || placed[i] || order[kept] != kTombstone) continue;
    order[kept] = i;
    placed[i] = true;
  }
  std::vector<size_t> others;
  for (size_t i = 0; i < n; ++i) {
    if (!placed[i]) others.push_back(i);
  }
  std::sort(others.begin(), others.end(), [&](size_t a, size_t b) { return Before(requests[a], requests[b]); });
  auto next = others.begin();
  for (size_t& holder : order) {
    if (holder == kTombstone) holder = *next++;
  }
  return order;
}

}  // namespace

int NaturalCompare(absl::string_view a, absl::string_view b) {
  absl::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (absl::ascii_isdigit(x[0]) && absl::ascii_isdigit(y[0])) {
      const absl::string_view m = TakeNumber(&x), n = TakeNumber(&y);
      if (m.size() != n.size()) return m.size() < n.size() ? -1 : 1;
      if (const int c = m.compare(n); c != 0) return c;
      continue;
    }
    if (x[0] != y[0]) return static_cast<unsigned char>(x[0]) < static_cast<unsigned char>(y[0]) ? -1 : 1;
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty() ? -1 : 1;
  return a.compare(b);
}

RankTable AssignRanks(absl::Span<const RankRequest> requests) {
  RankTable table;
  table.order = Order(requests);
  table.places.resize(requests.size());
  absl::flat_hash_map<absl::string_view, int32_t> role_sizes;
  for (size_t r = 0; r < table.order.size(); ++r) {
    const RankRequest& request = requests[table.order[r]];
    RankPlace& place = table.places[table.order[r]];
    place.group_rank = static_cast<int32_t>(r);
    place.base_rank = table.world_size;
    table.world_size += request.slots;
    int32_t& role_size = role_sizes[request.role];
    place.base_role_rank = role_size;
    role_size += request.slots;
  }
  for (size_t i = 0; i < requests.size(); ++i) table.places[i].role_world_size = role_sizes[requests[i].role];
  return table;
}

}  // namespace ddprun::rendezvous
