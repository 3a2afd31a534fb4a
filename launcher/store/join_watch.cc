#include "launcher/store/join_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNodes = 65536;
// Arrivals beyond this are not noted: a hostile peer can say a new pid on every connection.
constexpr size_t kMinArrivals = 65536;

// Names of torch 2.6 to 2.15 for the group that init_process_group makes.
constexpr absl::string_view kGlooPrefix = "/default_pg/0//cpu//0/";
constexpr absl::string_view kNcclPrefix = "/default_pg/0//cuda//";

}  // namespace

void JoinWatch::BeginRound(uint64_t round, int world_size) {
  round_ = round;
  world_size_ = world_size;
  absl::erase_if(nodes_, [&](const auto& entry) {
    const NodeRegistration& node = entry.second.registration;
    return node.round != round || node.base_rank + static_cast<int64_t>(node.pids.size()) > world_size;
  });
  RebuildRankIndex();
}

absl::Status JoinWatch::Register(NodeRegistration node, absl::string_view address) {
  if (round_.has_value() && node.round != *round_) {
    return absl::FailedPreconditionError(
        absl::StrCat("host ", node.host, " registered for round ", node.round, "; this is round ", *round_));
  }
  const int64_t end = node.base_rank + static_cast<int64_t>(node.pids.size());
  if (node.group_rank < 0 || node.base_rank < 0 || end > (world_size_ > 0 ? world_size_ : kMaxRanks)) {
    return absl::InvalidArgumentError(absl::StrCat("host ", node.host, " registered ranks ", node.base_rank, "-",
                                                   end - 1, " of a world of ", world_size_));
  }
  const auto old = nodes_.find(node.group_rank);
  const size_t old_pids = old == nodes_.end() ? 0 : old->second.registration.pids.size();
  if (registered_pids_ - old_pids + node.pids.size() > kMaxRanks ||
      (old == nodes_.end() && nodes_.size() >= kMaxNodes)) {
    return absl::ResourceExhaustedError("too many nodes have registered");
  }
  const int32_t group_rank = node.group_rank;
  nodes_[group_rank] = {std::move(node), std::string(address)};
  RebuildRankIndex();
  return absl::OkStatus();
}

void JoinWatch::RebuildRankIndex() {
  rank_by_pid_.clear();
  registered_pids_ = 0;
  for (const auto& [group_rank, node] : nodes_) {
    const std::vector<uint32_t>& pids = node.registration.pids;
    registered_pids_ += pids.size();
    for (size_t i = 0; i < pids.size(); ++i) {
      if (pids[i] == 0) continue;
      rank_by_pid_.emplace(Identity(node.address, pids[i]), node.registration.base_rank + static_cast<int>(i));
    }
  }
}

void JoinWatch::OnClient(Client client) {
  if (client.pids.empty()) return;
  if (arrivals_.size() >= std::max<size_t>(kMinArrivals, 4 * static_cast<size_t>(world_size_))) return;
  Identity identity(std::move(client.address), client.pids[0]);
  arrivals_.try_emplace(std::move(identity), Arrival{std::move(client.pids), std::nullopt});
}

void JoinWatch::OnSet(const Client& client, absl::string_view key) {
  if (client.pids.empty()) return;
  const std::optional<int> rank = RankOfGlooKey(key);
  if (!rank.has_value()) return;
  const auto arrival = arrivals_.find(Identity(client.address, client.pids[0]));
  if (arrival != arrivals_.end()) arrival->second.gloo_rank = rank;
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
  if (const auto rank = RankByPid(client.address, client.pids); rank.has_value()) return rank;
  const auto arrival = arrivals_.find(Identity(client.address, client.pids[0]));
  return arrival == arrivals_.end() ? std::nullopt : arrival->second.gloo_rank;
}

int JoinWatch::ExpectedRanks() const {
  if (world_size_ > 0) return world_size_;
  int ranks = 0;
  for (const auto& [group_rank, node] : nodes_) {
    ranks = std::max(ranks, node.registration.base_rank + static_cast<int>(node.registration.pids.size()));
  }
  return ranks;
}

JoinWatch::Census JoinWatch::Count() const {
  Census census;
  census.come.resize(ExpectedRanks());
  census.ranks.resize(ExpectedRanks());

  absl::flat_hash_map<std::string, int> strangers;  // by address: clients of which nothing tells the rank
  for (const auto& [identity, arrival] : arrivals_) {
    std::optional<int> rank = RankByPid(identity.first, arrival.pids);
    if (!rank.has_value()) rank = arrival.gloo_rank;
    if (!rank.has_value()) ++strangers[identity.first];
    if (rank.has_value() && *rank < static_cast<int>(census.come.size())) census.come[*rank] = true;
  }

  absl::flat_hash_map<std::string, std::vector<int>> unseen;  // by address: ranks without a client
  for (const auto& [group_rank, node] : nodes_) {
    const NodeRegistration& of = node.registration;
    for (size_t i = 0; i < of.pids.size(); ++i) {
      const int rank = of.base_rank + static_cast<int>(i);
      census.ranks[rank] = MissingRank{rank, static_cast<int>(i), of.host, of.pids[i]};
      if (!census.come[rank]) unseen[node.address].push_back(rank);
    }
  }
  for (const auto& [address, ranks] : unseen) {
    const auto here = strangers.find(address);
    if (here == strangers.end() || here->second < static_cast<int>(ranks.size())) continue;
    for (int rank : ranks) census.come[rank] = true;
  }
  return census;
}

int JoinWatch::Joined() const {
  const Census census = Count();
  return static_cast<int>(std::count(census.come.begin(), census.come.end(), true));
}

std::vector<MissingRank> JoinWatch::Missing() const {
  const Census census = Count();
  std::vector<MissingRank> missing;
  for (size_t rank = 0; rank < census.come.size(); ++rank) {
    if (census.come[rank]) continue;
    // Before BeginRound a rank that nobody speaks for may not exist.
    if (!census.ranks[rank].has_value() && world_size_ == 0) continue;
    MissingRank unknown;
    unknown.rank = static_cast<int>(rank);
    missing.push_back(census.ranks[rank].value_or(unknown));
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
