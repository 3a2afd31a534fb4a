#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PEERS_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PEERS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

// Description that a rank publishes of itself when a group is created.
struct Peer {
  std::string host;  // from gethostname
  int pid = 0;
  std::string address;  // Gloo's listening address, "ip:port"; empty without Gloo
  std::string gpu;      // UUID of this rank's GPU; empty: NCCL is not used, or the rank is not bound to one GPU
  // NCCL's name of the host, NCCL_HOSTID or else `host`: NCCL refuses two ranks with the same GPU and the same name.
  std::string nccl_host;
  std::string settings;  // settings that must be equal on all ranks, as a text for users

  std::string Encode() const;
  static absl::StatusOr<Peer> Decode(absl::string_view text);
  friend bool operator==(const Peer&, const Peer&) = default;
};

// Names and addresses of a group's ranks. A plain value; thread-compatible.
class Peers {
 public:
  Peers() = default;
  explicit Peers(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& operator[](int rank) const { return peers_[rank]; }

  // "rank 2 (host node-b, pid 4711)"; "rank 2" if nothing is known about it.
  std::string Name(int rank) const;
  // "rank 2 (...) and rank 3 (...)"; after the eighth, only the number of others.
  std::string Names(absl::Span<const int> ranks) const;

  // True if a rank's Gloo listens on `address`.
  bool Listens(absl::string_view address) const { return RankListeningAt(address).has_value(); }
  std::optional<int> RankListeningAt(absl::string_view address) const;

  // Error: InvalidArgument names two ranks that can't be in one group: their settings differ, or they have the same
  // GPU, which NCCL does not allow.
  absl::Status CheckCompatible() const;

 private:
  std::vector<Peer> peers_;
};

// Returns the peer address in Gloo's error message, as in "Connection closed by peer [10.0.0.7]:8812". Gloo prints the
// port with its bytes swapped (pair.cc), so both forms are returned: as printed, and swapped back.
std::vector<std::string> AddressesInText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_PEERS_H_
