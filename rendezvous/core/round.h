#ifndef DDPRUN_RENDEZVOUS_CORE_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_ROUND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/participants.h"

namespace ddprun::rendezvous {

// PURE: a job's latest round, given out or taken up from reports: what its nodes were told, how many groups of it have
// succeeded, and why it was left. Also the highest round number that is taken. Thread-compatible.
class Round {
 public:
  // Rounds will be greater than `floor`. As long as nothing else is known, a node may report at most `max_reported`.
  explicit Round(uint64_t floor, uint64_t max_reported) : highest_(floor), max_reported_(max_reported) {}
  // As a server before this one recorded it.
  Round(RoundRecord record, uint64_t highest);

  // nullopt, or one line that says why no server can have given out round `number` (protocol 4.6).
  std::optional<std::string> CheckReported(uint64_t number) const;

  // A node reports that it was assigned round `number`, which is not assigned again. True if the round was not known.
  bool Learn(uint64_t number);

  // The next round begins on `group_world_size` nodes; `master` hosts its store. `nodes` are for its record: by group
  // rank, or none. `source`: whose training state all take.
  void Assign(const Node& master, int32_t group_world_size, int32_t world_size, std::string reason,
              std::vector<RoundNodeRecord> nodes = {}, std::optional<StateSource> source = std::nullopt);

  // The node of this group rank is in the server's process.
  void SetServerNode(int32_t group_rank) { server_node_ = group_rank; }

  // Resumes a round of an earlier server, as one of its nodes reports it.
  void Resume(const Assignment& assignment);

  // The node of this group rank is lost, or has left.
  void Gone(int32_t group_rank);

  // The group rank of a node of a recorded round; -1: it has none there, or there is no such record.
  int32_t RecordedRank(absl::string_view node_id) const;
  // The digest of its session secret; nullptr: the same.
  const std::string* RecordedSession(absl::string_view node_id) const;
  // True if the node can have this place in the recorded round, or there is no record.
  bool MayHavePlace(absl::string_view node_id, int32_t group_rank) const;

  // The assignment of a node of this round.
  Assignment PlaceOf(const Node& node, int32_t restart_count) const;

  // Its nodes have to stop their workers, because of this. `cause`: the worker's failure that is to blame, if any.
  // `at_step_end`: nothing is broken, they may finish their step.
  void Leave(std::string reason, std::optional<WorkerFailure> cause, bool at_step_end = false);
  // The message to a node that still runs round `number`, this one or an older one, whose workers are not kept.
  StopRound StopOf(uint64_t number, bool keep_workers) const;

  // Groups that succeeded count also after their nodes are gone.
  void AddSuccess() { ++succeeded_; }
  void TakeBackSuccess() { --succeeded_; }
  bool any_succeeded() const { return succeeded_ > 0; }
  bool all_succeeded() const { return succeeded_ == facts_.group_world_size; }

  uint64_t number() const { return facts_.number; }  // 0: none yet
  uint64_t highest() const { return highest_; }
  // By this server, or as its records say; 0: none yet.
  uint64_t last_assigned() const { return last_assigned_; }
  int32_t group_world_size() const { return facts_.group_world_size; }
  int32_t world_size() const { return facts_.world_size; }
  const std::string& reason() const { return facts_.reason; }
  const std::string& leave_reason() const { return facts_.leave_reason; }  // empty: not left
  const std::optional<WorkerFailure>& leave_cause() const { return facts_.leave_cause; }
  // True if the store of group rank 0 is still at the address that the nodes received.
  bool HasStoreAt(const std::string& address, int32_t port) const {
    return facts_.master_addr == address && facts_.master_port == port;
  }
  const RoundRecord& record() const { return facts_; }
  bool names_all() const { return NamesAll(facts_, highest_); }

 private:
  RoundRecord facts_;
  uint64_t highest_;
  uint64_t last_assigned_ = 0;
  // Not for the record: who did not receive its Assign before the server ended is given another one.
  std::optional<StateSource> source_;
  std::optional<int32_t> server_node_;  // servers with records are in no node's process
  bool at_step_end_ = false;
  uint64_t max_reported_ = 0;
  int32_t succeeded_ = 0;
  absl::flat_hash_map<std::string, int32_t> recorded_;  // group ranks of a round that a server before this one recorded
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ROUND_H_
