#ifndef DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
#define DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/job_record.h"
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

// PURE: the nodes that a job has lost or kicked. If their launchers join again, even after a restart of the server or
// after the end of the job, they receive the verdict. Thread-compatible.
class DepartedNodes {
 public:
  // Maximum numbers of nodes; the oldest are forgotten. A record can hold kMaxLost spares in addition.
  static constexpr int kMaxKicked = 1000;
  static constexpr int kMaxLost = 256;

  // Restores what Record wrote. `unreported`: see EndedJob::unreported, for the previous job of this id.
  DepartedNodes(const JobRecord& record, bool unreported)
      : kicked_(record.kicked()), lost_(record.others()), unreported_(unreported) {}

  void AddLost(const std::string& node_id) {
    if (lost_.size() >= kMaxLost) lost_.erase(lost_.begin());
    *lost_.Add() = node_id;
  }
  void AddKicked(const std::string& node_id, const std::string& actor) {
    if (kicked_.size() == kMaxKicked) kicked_.erase(kicked_.begin());
    KickedNodeRecord* const node = kicked_.Add();
    node->set_node_id(node_id);
    node->set_actor(actor);
  }
  // Reports that a node joined. Returns true if it was lost before, or was a spare in the record.
  bool OnJoin(const std::string& node_id) {
    unheard_.erase(node_id);
    const auto it = std::find(lost_.begin(), lost_.end(), node_id);
    if (it == lost_.end()) return false;
    lost_.erase(it);
    return true;
  }
  // Returns the user who kicked the node; nullptr if it was not kicked.
  const std::string* KickedBy(absl::string_view node_id) const {
    const auto it = std::find_if(kicked_.begin(), kicked_.end(), [&](const auto& k) { return k.node_id() == node_id; });
    return it == kicked_.end() ? nullptr : &it->actor();
  }

  // Expects a disconnected or lost node to rejoin for the verdict, because its workers have succeeded or the job ends.
  // It may do so until 7/6 of the job's longest heartbeat timeout after its last message (protocol 5).
  void ExpectForVerdict(const Node& node, const JobSettings& settings) {
    unheard_[node.join.node_id()] = node.last_heard + FenceTime(LongestTimeout(settings));
  }
  // Stops expecting these nodes, because a new round begins without them.
  void OnAssign() { unheard_.clear(); }
  // Marks the job as ended before all nodes of its round have reported.
  void SetUnreported() { unreported_ = true; }

  // Fill in the fields of the record, or of the ended job, that name absent nodes.
  void Record(JobRecord* record) const {
    *record->mutable_kicked() = kicked_;
    *record->mutable_others() = lost_;
  }
  void FillIn(EndedJob* ended) const {
    ended->unreported = unreported_;
    ended->unheard = unheard_;
    ended->AddAbsent(kicked_, lost_);
  }

 private:
  google::protobuf::RepeatedPtrField<KickedNodeRecord> kicked_;  // oldest first
  google::protobuf::RepeatedPtrField<std::string> lost_;  // node ids, oldest first; restored ids may be those of spares
  std::map<std::string, SteadyTime> unheard_;             // see EndedJob::unheard
  bool unreported_ = false;                               // see EndedJob::unreported
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DEPARTURE_H_
