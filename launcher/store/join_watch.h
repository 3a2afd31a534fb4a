#ifndef DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_
#define DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/core/missing_rank.h"
#include "launcher/store/registration.h"

namespace ddprun::launcher {

// Knows which ranks a round has and which of them have come to its store. Pure; not thread-safe.
//
// The ranks come from the launchers (NodeRegistration), the arrivals from the connections' first PING, which
// carries the client's pid. In any order. A rank counts as come when
//   1. a client at its node's address has its pid, or the pid of a process below it (`bash -c python ...`), or
//   2. a client has set the rank's key of the default Gloo group, or
//   3. pids fit nothing at its node's address (a wrapper on another host, a pid namespace) but there are at
//      least as many unknown clients there as ranks without one.
// Having come once is enough: an end is seen by the launchers, not here.
class JoinWatch {
 public:
  // A client process: the address it comes from and its pid, then its parent's, as far as they are known.
  struct Client {
    std::string address;
    std::vector<uint32_t> pids;
  };

  // Says which round this is. Registrations for another one are dropped, earlier or later. Ranks are
  // 0 .. world_size - 1.
  void BeginRound(uint64_t round, int world_size);

  // `address` is where this node's workers come from. Replaces what the same group rank said before.
  //   kFailedPrecondition  another round
  //   kInvalidArgument     ranks outside of the world
  //   kResourceExhausted   more nodes or pids than any round has
  absl::Status Register(NodeRegistration node, absl::string_view address);

  // A client has said its pid.
  void OnClient(Client client);
  // A client has set a key. `client` as in OnClient.
  void OnSet(const Client& client, absl::string_view key);

  // Whether a registered node at `address` has a worker with this pid: then its parents need not be known.
  bool IsWorker(absl::string_view address, uint32_t pid) const;

  int Joined() const;
  // In order of rank. Empty when all have come, or before BeginRound as long as nobody has registered.
  std::vector<MissingRank> Missing() const;
  // Which rank a client is, if its pid or its Gloo key tells.
  std::optional<int> RankOf(const Client& client) const;

  // The rank for which this key of the default Gloo group stands, if it is one.
  static std::optional<int> RankOfGlooKey(absl::string_view key);
  // The rank that sets `key`, where torch's naming tells: a Gloo key, or the NCCL id that rank 0 gives out.
  static std::optional<int> RankThatSets(absl::string_view key);

 private:
  struct Node {
    NodeRegistration registration;
    std::string address;
  };
  struct Arrival {
    std::vector<uint32_t> pids;
    std::optional<int> gloo_rank;
  };
  using Identity = std::pair<std::string, uint32_t>;  // address, pid
  struct Census {
    std::vector<bool> come;                         // by rank
    std::vector<std::optional<MissingRank>> ranks;  // by rank; nullopt: not registered
  };

  std::optional<int> RankByPid(absl::string_view address, const std::vector<uint32_t>& pids) const;
  Census Count() const;
  int ExpectedRanks() const;
  void RebuildRankIndex();

  std::optional<uint64_t> round_;
  int world_size_ = 0;                    // 0: not known yet
  absl::btree_map<int32_t, Node> nodes_;  // by group rank
  size_t registered_pids_ = 0;
  absl::flat_hash_map<Identity, int> rank_by_pid_;
  absl::flat_hash_map<Identity, Arrival> arrivals_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_
