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
#include "rendezvous/core/lateness.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

enum class NodeState {
  kIdle,       // no workers, a fresh store port: can be given ranks
  kRunning,    // workers of `round`
  kSucceeded,  // all workers of `round` ended well
  kStopping,   // workers of `round` are being stopped; a Ready follows
};

// One launcher of a job. Only Membership changes the fields below the line.
struct Node {
  // The node's first Join, with the incarnation, address and store of the newest one. It has no settings, no session
  // secret, and nothing about a round.
  Join join;
  uint64_t round = 0;  // the last one it was given, or says that it was given; 0: none
  // In the job's latest round, if group_rank is set.
  int32_t base_rank = 0;
  int32_t base_role_rank = 0;
  int32_t role_world_size = 0;
  bool keeps_workers = false;    // in that round, its survivors of the one before go on
  bool may_claim_touch = false;  // it says that it is in touch, or may come to say so since its last Assign
  bool told_left_out = false;    // on its present stream, and has not answered yet

  // ----
  std::string session;               // digest of its first Join's session_secret
  absl::Duration heartbeat_timeout;  // of this node: the job's, or longer (beat_plan.h)
  uint64_t join_order = 0;
  std::optional<int32_t> node_rank;  // requested group rank
  bool in_touch = false;             // as Join::in_touch of its newest stream
  NodeState state = NodeState::kIdle;
  int32_t group_rank = -1;          // in the job's latest round; -1: it is not in it
  std::vector<Survivor> survivors;  // of an idle node; of its last round
  bool plain = false;               // it said so of its last round's workers: they can't keep their processes
  bool connected = true;
  SteadyTime last_heard;     // of a node that is not connected: when its stream broke
  SteadyTime quiet_since;    // of a connected one: last heard, or told to do something after that
  absl::Duration allowance;  // by how much longer it may be quiet because the server was late then
  std::list<std::unique_ptr<Node>>::iterator self;
  SteadyTime expires = SteadyTime::InfiniteFuture();  // where one of the two orders has it; infinite: none has
  uint64_t turn = 0;                                  // among those that expire in the same moment

  bool ready() const { return state == NodeState::kIdle && connected; }
  bool in_round() const { return group_rank >= 0; }
  bool may_have_workers() const { return state == NodeState::kRunning || state == NodeState::kStopping; }
};

// The nodes of one job: who is there, when each was last heard, and how many can take part in a round. Thread-
// compatible. Pointers to nodes are valid until Remove. Everything is O(log n).
class Membership {
 public:
  using Nodes = std::list<std::unique_ptr<Node>>;

  // `lateness` is the server's and outlives this; null: the server is never late.
  Membership(absl::Duration heartbeat_timeout, absl::Duration reconnect_grace, const Lateness* lateness = nullptr)
      : heartbeat_timeout_(heartbeat_timeout), reconnect_grace_(reconnect_grace), lateness_(lateness) {}

  // REQUIRES: no such node is there. Another node that holds the same requested rank loses it.
  Node* Add(const Join& join, SteadyTime now);
  void Remove(Node* node);

  // The digest of the Join's session secret.
  static std::string SessionOf(const Join& join);
  // True if `session` is the digest of the session secret of this Join (protocol 2.4).
  static bool IsOfSession(absl::string_view session, const Join& join);

  Node* Find(absl::string_view node_id) const;
  // Who requested this group rank, or nullptr.
  Node* FindByRequestedRank(int32_t node_rank) const;

  void Heard(Node* node, SteadyTime now);
  // Sets the timeout that the node was sent, or may still use.
  void SetHeartbeatTimeout(Node* node, absl::Duration timeout);
  // The node receives an instruction, and has its whole timeout from now to be heard.
  void Expect(Node* node, SteadyTime now);
  void Disconnected(Node* node, SteadyTime now);
  void Reconnected(Node* node, SteadyTime now);
  void SetState(Node* node, NodeState state);
  void SetGroupRank(Node* node, int32_t group_rank);
  void SetInTouch(Node* node, bool in_touch);
  // Takes an idle node's report on the workers that it had in node->round.
  void SetSurvivors(Node* node, const google::protobuf::RepeatedPtrField<Survivor>& survivors, bool can_reform);

  // A node that counts as lost at `now`: its stream has been broken for the reconnect grace, or nothing was heard
  // of it for the heartbeat timeout, or IdleTimeout if it has no workers (nodes of the server's own process are never
  // silent). nullptr: none.
  Node* Expired(SteadyTime now) const;
  SteadyTime NextExpiry() const;
  // For how long the node may be silent.
  absl::Duration Patience(const Node& node) const;
  // Nothing was heard of it for the heartbeat timeout, workers or not: it may be gone.
  bool IsQuiet(const Node& node, SteadyTime now) const;

  size_t size() const { return nodes_.size(); }
  const Nodes& nodes() const { return nodes_; }  // in the order in which they joined
  std::vector<std::string> FirstHosts(size_t most) const;
  bool HasHost(absl::string_view host) const { return by_host_.contains(host); }
  // In the order in which they joined. O(n log n) for so many hosts and nodes on them.
  std::vector<Node*> OnHosts(const std::set<std::string>& hosts) const;
  std::vector<std::string> SortedIds() const;
  size_t ready() const { return ready_; }
  // Nodes of the latest round that can't be given ranks now.
  size_t unready_in_round() const { return unready_in_round_; }
  // True if the job waits for no connected node.
  bool all_stopped() const { return unready_in_round_ == 0 && with_workers_ == 0; }
  // Nodes that no round was given out without since the last one that they know of.
  size_t in_touch() const { return in_touch_; }
  // Nodes in touch that do not know of the latest round, to which they belong.
  size_t untold() const { return untold_; }
  size_t with_survivors() const { return with_survivors_; }
  // Nodes of the latest round that can't keep their workers.
  size_t plain_in_round() const { return plain_in_round_; }

 private:
  // By when they expire; of those of the same moment, who was put there first.
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
  // After any change that decides when it expires. REQUIRES: TakeOut was called before the change.
  void PutIn(Node* node);
  void Count(const Node& node, int by);

  const absl::Duration heartbeat_timeout_;
  const absl::Duration reconnect_grace_;
  const Lateness* const lateness_;
  Nodes nodes_;
  absl::flat_hash_map<absl::string_view, Node*> by_id_;  // keys lie in the nodes
  absl::flat_hash_map<std::string, std::vector<Node*>> by_host_;
  absl::flat_hash_map<int32_t, Node*> by_requested_rank_;
  Order heard_;   // connected, but for those of the server's own process
  Order broken_;  // the others
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
