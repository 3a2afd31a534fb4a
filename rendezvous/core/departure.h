#ifndef DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
#define DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_

#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// How a node was removed from its job.
struct Going {
  enum class How { kLost, kLeft, kKicked };

  std::string what;          // sentence that names the node and the reason
  bool may_return = false;   // true if the node is silent, so that its launcher may still run
  int32_t signal = 0;        // signal that stopped the launcher (Leave.signal); 0: none
  bool at_step_end = false;  // its workers still run, so all workers may finish their step
  How how = How::kLost;
};

// PURE: the nodes that a job lost at the same moment, which are handled together (protocol 4.1). Texts name the first
// of them that had ranks, or the first of all if none had. Thread-compatible.
class Departure {
 public:
  void Add(const Node& node, Going going);

  bool empty() const { return nodes_ == 0; }
  bool had_ranks() const { return had_ranks_; }
  bool ends_round() const { return ends_round_; }  // true if a node with ranks had not succeeded
  // The loss as a first cause, which names the node of Text().
  const WorkerFailure& loss() const { return loss_; }
  // True if every node whose loss ended the round is silent or was kicked: it, or a node in its place, may join.
  bool may_all_return() const { return may_all_return_; }
  bool told_to_stop() const { return told_to_stop_; }
  bool at_step_end() const { return at_step_end_; }
  std::string Text() const;

 private:
  int nodes_ = 0;
  bool had_ranks_ = false;
  bool ends_round_ = false;
  bool may_all_return_ = true;
  bool told_to_stop_ = false;
  bool at_step_end_ = true;
  std::string what_;
  WorkerFailure loss_ = NewFailure();
};

// PURE: all nodes lost since the latest round began, and how long the job waits for others to replace them (protocol
// 4.2). Value type.
class DeparturesOfRound {
 public:
  // Maximum time that a job without restarts waits for silent nodes to return (protocol 4.2).
  static constexpr absl::Duration kReturnTime = absl::Seconds(30);

  void Add(const Departure& departure);
  // Reports that a command removed a node that the job needs: the job waits for nodes, whatever happened before.
  void AddCommand();

  // Returns how long a fixed-size job waits for missing nodes (protocol 3.1, 4.2); zero: it fails at once.
  absl::Duration WaitLimit(const JobSettings& settings) const;

  // The last loss of a node with ranks, as a first cause.
  const std::optional<WorkerFailure>& loss() const { return loss_; }
  // True if a signal stopped a node before it succeeded, and no command was reported since.
  bool told_to_stop() const { return told_to_stop_; }

 private:
  std::optional<WorkerFailure> loss_;
  bool may_all_return_ = true;  // see Departure, for all departures
  bool told_to_stop_ = false;
  bool by_command_ = false;
};

// PURE: a worker's failure that was reported while streams of running nodes were broken (protocol 4.1). If one of these
// nodes, the suspects, is lost, the failure was a consequence and is not charged; if all rejoin, it is charged.
// Thread-compatible.
class HeldFailure {
 public:
  // Holds the failure until it is decided, in place of an earlier one. Returns false, and holds nothing, if no running
  // node of the round is disconnected.
  bool Hold(const WorkerFailure& failure, const Membership& members);
  // Drops the failure, because a new round has begun.
  void Drop() { *this = HeldFailure(); }
  // Reports that a node is lost. Returns true and drops the failure if the node was a suspect.
  bool Lost(absl::string_view node_id);
  // Reports that a node rejoined. Returns and drops the failure if the node was the last suspect: it must be charged.
  std::optional<WorkerFailure> CameBack(absl::string_view node_id);

 private:
  WorkerFailure failure_ = NewFailure();
  absl::flat_hash_set<std::string> suspects_;  // node ids; empty: no failure is held
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
