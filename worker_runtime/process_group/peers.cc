#include "worker_runtime/process_group/peers.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

constexpr size_t kNamesShown = 8;

std::string Join(absl::string_view host, int port) {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

std::string Peer::Encode() const {
  return absl::StrCat(host, "\t", pid, "\t", address, "\t", gpu, "\t", settings, "\t", nccl_host);
}

absl::StatusOr<Peer> Peer::Decode(absl::string_view text) {
  // The last one is the user's text.
  const std::vector<absl::string_view> fields = absl::StrSplit(text, absl::MaxSplits('\t', 5));
  Peer peer;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[1], &peer.pid)) {
    return absl::InternalError(absl::StrCat("can't parse a rank's description: \"", text, "\""));
  }
  peer.host = std::string(fields[0]);
  peer.address = std::string(fields[2]);
  peer.gpu = std::string(fields[3]);
  peer.settings = std::string(fields[4]);
  peer.nccl_host = std::string(fields[5]);
  return peer;
}

std::string Peers::Name(int rank) const {
  if (rank < 0 || rank >= size() || peers_[rank].host.empty()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (host ", peers_[rank].host, ", pid ", peers_[rank].pid, ")");
}

std::string Peers::Names(absl::Span<const int> ranks) const {
  std::string names;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == kNamesShown) return absl::StrCat(names, " and ", ranks.size() - i, " more");
    const bool last = i + 1 == ranks.size();
    absl::StrAppend(&names, i == 0 ? "" : last ? " and " : ", ", Name(ranks[i]));
  }
  return names;
}

std::optional<int> Peers::RankListeningAt(absl::string_view address) const {
  if (address.empty()) return std::nullopt;
  for (int rank = 0; rank < size(); ++rank) {
    if (peers_[rank].address == address) return rank;
  }
  return std::nullopt;
}

absl::Status Peers::CheckCompatible() const {
  std::map<std::pair<std::string, std::string>, int> ranks;  // the first rank on each GPU
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.settings != peers_[0].settings) {
      return absl::InvalidArgumentError(absl::StrCat(Name(0), " uses ", peers_[0].settings, ", and ", Name(rank), " ",
                                                     peer.settings, ": all ranks must use the same"));
    }
    if (peer.gpu.empty()) continue;
    const auto [first, is_new] = ranks.emplace(std::pair(peer.gpu, peer.nccl_host), rank);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Name(first->second), " and ", Name(rank), " use the same GPU (UUID ", peer.gpu,
        "), and NCCL needs one for each rank: start at most one worker for each GPU of a node, or use gloo; for tests "
        "and small models, ranks can share a GPU if each has another value of NCCL_HOSTID"));
  }
  return absl::OkStatus();
}

std::vector<std::string> AddressesInText(absl::string_view text) {
  const size_t end = text.rfind("]:");
  if (end == absl::string_view::npos) return {};
  const size_t begin = text.rfind('[', end);
  if (begin == absl::string_view::npos) return {};
  const absl::string_view host = text.substr(begin + 1, end - begin - 1);
  size_t digits = end + 2;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(end + 2, digits - end - 2), &port) || port <= 0 || port > 0xffff) return {};
  const int swapped = ((port & 0xff) << 8) | (port >> 8);
  return {Join(host, port), Join(host, swapped)};
}

}  // namespace ddprun
