#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

enum class NodeState {
  kIdle,       // no computing workers, and a listening store: the node can be assigned ranks
  kRunning,    // workers of Node::round run
  kSucceeded,  // all workers of Node::round exited with 0
  kStopping,   // workers of Node::round are being stopped; Ready follows
};

// One node of a job: the state of one launcher process. Only Membership changes the fields below "Set by Membership".
struct Node {
  // The node's first Join, with the incarnation of its newest Join and its current store. The settings, session secret,
  // `current` and survivors are cleared.
  Join join;
  uint64_t round = 0;  // last round that the node was assigned, by this server or according to its Join; 0: none
  // Ranks in the job's latest round, if group_rank is set.
  int32_t base_rank = 0;
  int32_t base_role_rank = 0;
  int32_t role_world_size = 0;
  bool keeps_workers = false;    // its survivors of the round before take part in that round
  bool may_claim_touch = false;  // its Join reported in_touch, or it was sent an Assign since (protocol 4.5)
  bool told_left_out = false;    // was sent ExcludedFromRound on its current stream

  // Set by Membership.
  std::string session;               // digest of Join.session_secret of its first Join (protocol 2.4)
  absl::Duration heartbeat_timeout;  // timeout of this node: the job's, or longer (beat_plan.h)
  uint64_t join_order = 0;
  std::optional<int32_t> node_rank;  // requested group rank, if it has one and no newer node took it
  bool in_touch = false;             // Join.in_touch of its newest stream
  NodeState state = NodeState::kIdle;
  int32_t group_rank = -1;          // group rank in the job's latest round; -1: not in that round
  std::vector<Survivor> survivors;  // suspended workers of an idle node (protocol 3.8)
  bool plain = false;               // its workers can't re-form, so they can't keep their processes (protocol 3.8)
  bool connected = true;
  SteadyTime last_heard;     // time of its last message; if not connected: when its stream broke
  SteadyTime quiet_since;    // start of its silence: last_heard, or a later instruction that it must answer
  absl::Duration allowance;  // extra time because the server was late at quiet_since (lateness.h)
  std::list<std::unique_ptr<Node>>::iterator self;    // position in Membership::nodes()
  SteadyTime expires = SteadyTime::InfiniteFuture();  // key in Membership's heard_ or broken_; infinite: in neither
  uint64_t turn = 0;                                  // order of nodes with equal `expires`

  bool ready() const { return state == NodeState::kIdle && connected; }
  bool in_round() const { return group_rank >= 0; }
  bool may_have_workers() const { return state == NodeState::kRunning || state == NodeState::kStopping; }
};

// The nodes of one job: when each was last heard from, when it will count as lost, and how many are in which state.
// Pointers to nodes are valid until Remove. Every function is O(log n) unless its comment says otherwise, and counters
// are kept, so that Job can ask after every event whether a round can start. Thread-compatible.
class Membership {
 public:
  using Nodes = std::list<std::unique_ptr<Node>>;

  // `lateness` must outlive this object; nullptr: the server is never late.
  Membership(absl::Duration heartbeat_timeout, absl::Duration reconnect_grace, const Lateness* lateness = nullptr)
      : heartbeat_timeout_(heartbeat_timeout), reconnect_grace_(reconnect_grace), lateness_(lateness) {}

  // Adds the node of a Join. Another node that requested the same group rank loses its request. REQUIRES: no node has
  // this node id.
  Node* Add(const Join& join, SteadyTime now);
  void Remove(Node* node);

  // Returns the digest of the Join's session secret.
  static std::string SessionOf(const Join& join);
  // True if `session` is the digest of the session secret of this Join (protocol 2.4).
  static bool IsOfSession(absl::string_view session, const Join& join);

  Node* Find(absl::string_view node_id) const;
  // Returns the node that requested this group rank, or nullptr.
  Node* FindByRequestedRank(int32_t node_rank) const;

  // Reports that a message of the node arrived.
  void Heard(Node* node, SteadyTime now);
  // Sets the heartbeat timeout that the node uses.
  void SetHeartbeatTimeout(Node* node, absl::Duration timeout);
  // Restarts the node's timeout, because it is sent an instruction that it must answer.
  void Expect(Node* node, SteadyTime now);
  void Disconnected(Node* node, SteadyTime now);
  void Reconnected(Node* node, SteadyTime now);
  void SetState(Node* node, NodeState state);
  void SetGroupRank(Node* node, int32_t group_rank);
  void SetInTouch(Node* node, bool in_touch);
  // Stores what an idle node reports about its workers of node->round (protocol 3.8).
  void SetSurvivors(Node* node, const google::protobuf::RepeatedPtrField<Survivor>& survivors, bool can_reform);

  // Returns a node that counts as lost at `now`, or nullptr: its stream has been broken for the reconnect grace, or it
  // sent nothing for the heartbeat timeout, or for IdleTimeout if it has no workers. Nodes in the server's process are
  // never silent.
  Node* Expired(SteadyTime now) const;
  // Returns when Expired will next return a node, if no more messages arrive; infinite: never.
  SteadyTime NextExpiry() const;
  // Returns how long the node may be silent: the heartbeat timeout, or IdleTimeout if it has no workers.
  absl::Duration Patience(const Node& node) const;
  // True if the node sent nothing for the heartbeat timeout, even if it has no workers: it must not be assigned a
  // round.
  bool IsQuiet(const Node& node, SteadyTime now) const;

  size_t size() const { return nodes_.size(); }
  const Nodes& nodes() const { return nodes_; }  // in order of their joins
  // Returns the hosts of the first `most` nodes.
  std::vector<std::string> FirstHosts(size_t most) const;
  bool HasHost(absl::string_view host) const { return by_host_.contains(host); }
  // Returns the nodes on these hosts in order of their joins. O(n log n) in the number of hosts and of nodes on them.
  std::vector<Node*> OnHosts(const std::set<std::string>& hosts) const;
  std::vector<std::string> SortedIds() const;
  size_t ready() const { return ready_; }
  // Number of nodes of the latest round that are not ready().
  size_t unready_in_round() const { return unready_in_round_; }
  // True if no node has workers and all nodes of the latest round are ready.
  bool all_stopped() const { return unready_in_round_ == 0 && with_workers_ == 0; }
  // Number of nodes that are in touch (protocol 4.5).
  size_t in_touch() const { return in_touch_; }
  // Number of nodes in touch outside the latest round: they belong to it, but did not receive it (protocol 4.5).
  size_t untold() const { return untold_; }
  size_t with_survivors() const { return with_survivors_; }
  // Number of nodes of the latest round whose workers can't re-form.
  size_t plain_in_round() const { return plain_in_round_; }

 private:
  // Orders nodes by `expires`, then by `turn`.
  struct Sooner {
    bool operator()(const Node* a, const Node* b) const {
      return a->expires != b->expires ? a->expires < b->expires : a->turn < b->turn;
    }
  };
  using Order = std::set<Node*, Sooner>;

  Order* OrderOf(const Node& node) { return node.connected ? &heard_ : &broken_; }
  SteadyTime MissedAt(const Node& node, absl::Duration patience) const;
  void Hear(Node* node, SteadyTime now);
  void TakeOut(Node* node);
  // Inserts the node into its order, after a change that affects its expiry. REQUIRES: TakeOut was called before the
  // change.
  void PutIn(Node* node);
  // Adds `by` (1 or -1) to the counters to which the node contributes. Call with -1 before and 1 after every change.
  void Count(const Node& node, int by);

  const absl::Duration heartbeat_timeout_;
  const absl::Duration reconnect_grace_;
  const Lateness* const lateness_;
  Nodes nodes_;
  absl::flat_hash_map<absl::string_view, Node*> by_id_;  // keys point into the nodes
  absl::flat_hash_map<std::string, std::vector<Node*>> by_host_;
  absl::flat_hash_map<int32_t, Node*> by_requested_rank_;
  Order heard_;   // connected nodes, except those in the server's process
  Order broken_;  // nodes whose stream is broken
  uint64_t turns_ = 0;
  uint64_t joins_ = 0;
  size_t ready_ = 0;
  size_t unready_in_round_ = 0;
  size_t with_workers_ = 0;
  size_t in_touch_ = 0;
  size_t untold_ = 0;
  size_t with_survivors_ = 0;
  size_t plain_in_round_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_H_
