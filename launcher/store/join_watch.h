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
#include "launcher/report/wait_text.h"
#include "launcher/store/registration.h"

namespace ddprun::launcher {

// Tracks which ranks of a round have joined its store. Pure; not thread-safe.
//
// Ranks are registered by launchers (NodeRegistration). Clients become known by the first PING of a connection, which
// carries the client's pid. A rank has joined when
//   1. a client at its node's address has its pid, or the pid of a descendant (`bash -c python ...`), or
//   2. a client has set the rank's key of the default Gloo group, or
//   3. pids at its node's address match no rank (a pid namespace), but there are at least as many unknown clients as
//      ranks without a client.
// A rank that has joined stays joined: the launchers observe a worker's exit, not this class.
//
// Each event visits only its own client or node, regardless of the world size. Only Missing() visits all ranks.
class JoinWatch {
 public:
  // A client process: its address and its pid, followed by the pids of its ancestors that are known.
  struct Client {
    std::string address;
    std::vector<uint32_t> pids;
  };

  // Sets the round and its world: ranks are 0 .. world_size - 1. Clients may arrive before. REQUIRES: called once.
  void BeginRound(uint64_t round, int world_size);
  bool has_round() const { return round_.has_value(); }

  // `address` is the address of this node's workers. A registration may be repeated.
  //   kFailedPrecondition  no round yet, or another round
  //   kInvalidArgument     ranks outside of the world
  //   kAlreadyExists       another node has registered some of these ranks
  absl::Status Register(const NodeRegistration& node, absl::string_view address);

  // A client has sent its pid.
  void OnClient(Client client);
  // A client has set a key. `client` as in OnClient.
  void OnSet(const Client& client, absl::string_view key);

  // True if a registered node at `address` has a worker with this pid: then its ancestors are not needed.
  bool IsWorker(absl::string_view address, uint32_t pid) const;

  int Joined() const { return known_ + presumed_; }
  // Missing ranks in ascending order; empty before BeginRound. Linear in the world size.
  std::vector<MissingRank> Missing() const;
  // Rank of a client, if its pid or its Gloo key identifies it.
  std::optional<int> RankOf(const Client& client) const;

  // Rank of this key of the default Gloo group; nullopt for other keys.
  static std::optional<int> RankOfGlooKey(absl::string_view key);
  // Rank that sets `key`, according to torch's naming: a Gloo key, or the NCCL id of rank 0.
  static std::optional<int> RankThatSets(absl::string_view key);

  // Number of clients and ranks visited by all events so far.
  int64_t visits_for_test() const { return visits_; }

 private:
  using Identity = std::pair<std::string, uint32_t>;  // address, pid
  struct Node {
    NodeRegistration registration;
    std::string address;
  };
  struct Arrival {
    std::vector<uint32_t> pids;
    std::optional<int> gloo_rank;
    std::optional<int> rank;
  };
  // State of an address. Rule 3 compares the two counts.
  struct Site {
    std::vector<Identity> strangers;  // clients of unknown rank on arrival; some may be identified by now
    int unknown_clients = 0;          // clients that are still unknown
    int open_ranks = 0;               // registered ranks not known to have joined

    int presumed() const { return unknown_clients >= open_ranks ? open_ranks : 0; }
  };

  // Calls `change` on the address's site and updates presumed_.
  template <typename Change>
  void ChangeSite(absl::string_view address, Change change);
  void MarkJoined(int rank);
  // Determines the rank of a client, if it is known by now.
  void Identify(const Identity& identity, Arrival* arrival);
  std::optional<int> RankByPid(absl::string_view address, const std::vector<uint32_t>& pids) const;

  std::optional<uint64_t> round_;
  absl::btree_map<int32_t, Node> nodes_;  // keyed by base rank
  std::vector<bool> joined_;              // rank -> joined by rule 1 or 2
  int known_ = 0;                         // number of ranks in joined_
  int presumed_ = 0;                      // number of ranks joined by rule 3
  absl::flat_hash_map<Identity, int> rank_by_pid_;
  absl::flat_hash_map<Identity, Arrival> arrivals_;
  absl::flat_hash_map<std::string, Site> sites_;
  int64_t visits_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_
