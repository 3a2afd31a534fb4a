#include "launcher/store/join_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

// Arrivals beyond this are dropped: a hostile peer can send a new pid on every connection.
constexpr size_t kMinArrivals = 65536;

// Key prefixes in torch 2.6 to 2.15 of the group created by init_process_group.
constexpr absl::string_view kGlooPrefix = "/default_pg/0//cpu//0/";
constexpr absl::string_view kNcclPrefix = "/default_pg/0//cuda//";

int64_t EndOf(const NodeRegistration& node) { return node.base_rank + static_cast<int64_t>(node.pids.size()); }

std::string RanksText(const NodeRegistration& node) {
  return absl::StrCat("host ", node.host, " registered ranks ", node.base_rank, "-", EndOf(node) - 1);
}

}  // namespace

void JoinWatch::BeginRound(uint64_t round, int world_size) {
  round_ = round;
  joined_.assign(std::max(world_size, 0), false);
  for (auto& [identity, arrival] : arrivals_) Identify(identity, &arrival);
}

absl::Status JoinWatch::Register(const NodeRegistration& node, absl::string_view address) {
  if (!round_) return absl::FailedPreconditionError(absl::StrCat("host ", node.host, " registered before the round"));
  if (node.round != *round_) {
    return absl::FailedPreconditionError(
        absl::StrCat("host ", node.host, " registered for round ", node.round, "; this is round ", *round_));
  }
  if (node.base_rank < 0 || node.pids.empty() || EndOf(node) > static_cast<int64_t>(joined_.size())) {
    return absl::InvalidArgumentError(absl::StrCat(RanksText(node), "; the world size is ", joined_.size()));
  }
  const auto next = nodes_.upper_bound(node.base_rank);
  if (next != nodes_.begin()) {
    const Node& before = std::prev(next)->second;
    if (before.registration == node && before.address == address) return absl::OkStatus();
    if (EndOf(before.registration) > node.base_rank) {
      return absl::AlreadyExistsError(absl::StrCat(RanksText(node), "; ", RanksText(before.registration), " already"));
    }
  }
  if (next != nodes_.end() && next->first < EndOf(node)) {
    return absl::AlreadyExistsError(
        absl::StrCat(RanksText(node), "; ", RanksText(next->second.registration), " already"));
  }
  for (size_t i = 0; i < node.pids.size(); ++i) {
    const int rank = node.base_rank + static_cast<int>(i);
    ++visits_;
    if (node.pids[i] != 0) rank_by_pid_.emplace(Identity(address, node.pids[i]), rank);
    if (!joined_[rank]) ChangeSite(address, [](Site& site) { ++site.open_ranks; });
  }
  nodes_.emplace(node.base_rank, Node{node, std::string(address)});
  for (const Identity& stranger : std::exchange(sites_[address].strangers, {})) {
    Arrival& arrival = arrivals_.at(stranger);
    Identify(stranger, &arrival);
    if (!arrival.rank) sites_[address].strangers.push_back(stranger);
  }
  return absl::OkStatus();
}

template <typename Change>
void JoinWatch::ChangeSite(absl::string_view address, Change change) {
  Site& site = sites_[address];
  presumed_ -= site.presumed();
  change(site);
  presumed_ += site.presumed();
}

void JoinWatch::MarkJoined(int rank) {
  if (joined_[rank]) return;
  joined_[rank] = true;
  ++known_;
  const auto next = nodes_.upper_bound(rank);
  if (next == nodes_.begin()) return;
  const Node& node = std::prev(next)->second;
  if (rank < EndOf(node.registration)) ChangeSite(node.address, [](Site& site) { --site.open_ranks; });
}

void JoinWatch::Identify(const Identity& identity, Arrival* arrival) {
  ++visits_;
  if (arrival->rank) return;
  std::optional<int> rank = RankByPid(identity.first, arrival->pids);
  if (!rank) rank = arrival->gloo_rank;
  if (!rank || *rank >= static_cast<int>(joined_.size())) return;
  arrival->rank = rank;
  ChangeSite(identity.first, [](Site& site) { --site.unknown_clients; });
  MarkJoined(*rank);
}

void JoinWatch::OnClient(Client client) {
  if (client.pids.empty()) return;
  if (arrivals_.size() >= std::max<size_t>(kMinArrivals, 4 * joined_.size())) return;
  const Identity identity(std::move(client.address), client.pids[0]);
  const auto [it, is_new] =
      arrivals_.try_emplace(identity, Arrival{std::move(client.pids), std::nullopt, std::nullopt});
  if (!is_new) return;
  ChangeSite(identity.first, [](Site& site) { ++site.unknown_clients; });
  Identify(identity, &it->second);
  if (!it->second.rank) sites_[identity.first].strangers.push_back(identity);
}

void JoinWatch::OnSet(const Client& client, absl::string_view key) {
  if (client.pids.empty()) return;
  const std::optional<int> rank = RankOfGlooKey(key);
  if (!rank.has_value()) return;
  const auto arrival = arrivals_.find(Identity(client.address, client.pids[0]));
  if (arrival == arrivals_.end()) return;
  arrival->second.gloo_rank = rank;
  Identify(arrival->first, &arrival->second);
}

bool JoinWatch::IsWorker(absl::string_view address, uint32_t pid) const {
  return rank_by_pid_.contains(Identity(address, pid));
}

std::optional<int> JoinWatch::RankByPid(absl::string_view address, const std::vector<uint32_t>& pids) const {
  for (uint32_t pid : pids) {
    const auto it = rank_by_pid_.find(Identity(address, pid));
    if (it != rank_by_pid_.end()) return it->second;
  }
  return std::nullopt;
}

std::optional<int> JoinWatch::RankOf(const Client& client) const {
  if (client.pids.empty()) return std::nullopt;
  const auto arrival = arrivals_.find(Identity(client.address, client.pids[0]));
  return arrival == arrivals_.end() ? RankByPid(client.address, client.pids) : arrival->second.rank;
}

std::vector<MissingRank> JoinWatch::Missing() const {
  std::vector<MissingRank> missing;
  auto node = nodes_.begin();
  for (int rank = 0; rank < static_cast<int>(joined_.size()); ++rank) {
    while (node != nodes_.end() && EndOf(node->second.registration) <= rank) ++node;
    if (joined_[rank]) continue;
    MissingRank one;
    one.rank = rank;
    if (node != nodes_.end() && node->first <= rank) {
      const NodeRegistration& of = node->second.registration;
      const auto site = sites_.find(node->second.address);
      if (site != sites_.end() && site->second.presumed() > 0) continue;
      one.local_rank = rank - of.base_rank;
      one.host = of.host;
      one.pid = of.pids[rank - of.base_rank];
    }
    missing.push_back(std::move(one));
  }
  return missing;
}

std::optional<int> JoinWatch::RankOfGlooKey(absl::string_view key) {
  int rank = 0;
  if (!absl::ConsumePrefix(&key, kGlooPrefix) || !absl::SimpleAtoi(key, &rank)) return std::nullopt;
  if (rank < 0 || rank >= kMaxRanks || absl::StrCat(rank) != key) return std::nullopt;
  return rank;
}

std::optional<int> JoinWatch::RankThatSets(absl::string_view key) {
  uint32_t communicator = 0;
  absl::string_view rest = key;
  if (absl::ConsumePrefix(&rest, kNcclPrefix) && absl::SimpleAtoi(rest, &communicator)) return 0;
  return RankOfGlooKey(key);
}

}  // namespace ddprun::launcher
