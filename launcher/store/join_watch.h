#ifndef DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_
#define DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/report/missing_rank.h"
#include "launcher/store/registration.h"

namespace ddprun::launcher {

// Knows which ranks a round has and which of them have joined its store. Pure; not thread-safe.
//
// The ranks come from the launchers (NodeRegistration), the clients from the first PING of a connection, which
// carries the client's pid. A rank has joined when
//   1. a client at its node's address has its pid, or the pid of a process below it (`bash -c python ...`), or
//   2. a client has set the rank's key of the default Gloo group, or
//   3. pids fit nothing at its node's address (a pid namespace) but there are at least as many unknown clients
//      there as ranks without one.
// Joining once is enough: the launchers see a worker's end, not this class.
//
// Ranks are counted as clients and registrations come: an event looks at its own client or its own node, however
// large the world is. Only Missing() walks through all ranks.
class JoinWatch {
 public:
  // A client process: the address it comes from and its pid, then its parent's, as far as they are known.
  struct Client {
    std::string address;
    std::vector<uint32_t> pids;
  };

  // The round and its world: ranks are 0 .. world_size - 1. Clients may come before. REQUIRES: called once.
  void BeginRound(uint64_t round, int world_size);
  bool has_round() const { return round_.has_value(); }

  // `address` is where this node's workers come from. The same registration may be repeated.
  //   kFailedPrecondition  no round yet, or another round
  //   kInvalidArgument     ranks outside of the world
  //   kAlreadyExists       another node has registered some of these ranks
  absl::Status Register(const NodeRegistration& node, absl::string_view address);

  // A client has said its pid.
  void OnClient(Client client);
  // A client has set a key. `client` as in OnClient.
  void OnSet(const Client& client, absl::string_view key);

  // Whether a registered node at `address` has a worker with this pid: then its parents need not be known.
  bool IsWorker(absl::string_view address, uint32_t pid) const;

  int Joined() const { return known_ + presumed_; }
  // In order of rank; empty before BeginRound. Linear in the world.
  std::vector<MissingRank> Missing() const;
  // Which rank a client is, if its pid or its Gloo key tells.
  std::optional<int> RankOf(const Client& client) const;

  // The rank for which this key of the default Gloo group stands, if it is one.
  static std::optional<int> RankOfGlooKey(absl::string_view key);
  // The rank that sets `key`, where torch's naming tells: a Gloo key, or the NCCL id that rank 0 gives out.
  static std::optional<int> RankThatSets(absl::string_view key);

  // How many clients and ranks all events so far have looked at.
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
  // What is known of an address. Rule 3 compares the two.
  struct Site {
    std::vector<Identity> strangers;  // clients whose rank was not known when they came; maybe by now
    int unknown_clients = 0;          // of them, those whose rank is not known still
    int open_ranks = 0;               // registered, and not known to have joined

    int presumed() const { return unknown_clients >= open_ranks ? open_ranks : 0; }
  };

  // Calls `change` on the address's site and brings presumed_ up to date.
  template <typename Change>
  void ChangeSite(absl::string_view address, Change change);
  void MarkJoined(int rank);
  // Finds the rank of a client, if it can be known by now.
  void Identify(const Identity& identity, Arrival* arrival);
  std::optional<int> RankByPid(absl::string_view address, const std::vector<uint32_t>& pids) const;

  std::optional<uint64_t> round_;
  absl::btree_map<int32_t, Node> nodes_;  // by base rank
  std::vector<bool> joined_;              // by rank: by rule 1 or 2
  int known_ = 0;                         // of joined_
  int presumed_ = 0;                      // by rule 3
  absl::flat_hash_map<Identity, int> rank_by_pid_;
  absl::flat_hash_map<Identity, Arrival> arrivals_;
  absl::flat_hash_map<std::string, Site> sites_;
  int64_t visits_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_JOIN_WATCH_H_
