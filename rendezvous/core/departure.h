#ifndef DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
#define DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_

#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// How a node went.
struct Going {
  enum class How { kLost, kLeft, kKicked };

  std::string what;          // a sentence that names the node
  bool may_return = false;   // it is silent: its launcher may still run
  int32_t signal = 0;        // that told it to stop (Leave::signal)
  bool at_step_end = false;  // its workers are still there: those of other nodes may finish their step
  How how = How::kLost;
};

// PURE: nodes that are gone since the same moment (protocol 4.1). Messages name the first node that had ranks, or the
// first node if none had. Thread-compatible.
class Departure {
 public:
  void Add(const Node& node, Going going);

  bool empty() const { return nodes_ == 0; }
  bool had_ranks() const { return had_ranks_; }
  bool ends_round() const { return ends_round_; }  // one with ranks had not succeeded yet
  const WorkerFailure& loss() const { return loss_; }
  // Of those that end the round.
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

// PURE: the departures since the latest round began, and how long the job waits because of them. Value type.
class DeparturesOfRound {
 public:
  // A silent node is awaited for this long where a lost one ends the job, as launchers try to reconnect for this long.
  static constexpr absl::Duration kReturnTime = absl::Seconds(30);

  void Add(const Departure& departure);
  // A command took away a node that the job needs: the job waits for another one, as before its first round.
  void AddCommand();

  // The time that a job of fixed size waits for missing nodes (protocol 3.1, 4.2).
  absl::Duration WaitLimit(const JobSettings& settings) const;

  // The last departure of a node with ranks, as a first cause.
  const std::optional<WorkerFailure>& loss() const { return loss_; }
  // True if a node was told to stop before it succeeded, and no command replaced it since.
  bool told_to_stop() const { return told_to_stop_; }

 private:
  std::optional<WorkerFailure> loss_;
  bool may_all_return_ = true;  // all nodes that went before they succeeded
  bool told_to_stop_ = false;
  bool by_command_ = false;
};

// PURE: a worker failed while the stream of running nodes was broken. If one of those is lost, the failure followed
// from the loss; if all come back, it counts (protocol 4.1). Thread-compatible.
class HeldFailure {
 public:
  // False, and nothing is held: there is no node to suspect. Replaces what was held before.
  bool Hold(const WorkerFailure& failure, const Membership& members);
  // A new round has begun.
  void Drop() { *this = HeldFailure(); }
  // A node is lost. Returns true and drops the failure if the node was suspected.
  bool Lost(absl::string_view node_id);
  // A node reconnected. Returns and drops the failure if this was the last suspected node.
  std::optional<WorkerFailure> CameBack(absl::string_view node_id);

 private:
  WorkerFailure failure_ = NewFailure();
  absl::flat_hash_set<std::string> suspects_;  // node ids; empty: nothing is held
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
