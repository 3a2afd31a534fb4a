#ifndef DDPRUN_RENDEZVOUS_CORE_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_ROUND_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/participants.h"

namespace ddprun::rendezvous {

// PURE: the latest round of a job, which this server assigned or recovered from a record or reports: its assignment,
// how many of its groups have succeeded, and why it was stopped. It also keeps the highest round number that is in use.
// Thread-compatible.
class Round {
 public:
  // Begins without a round. The first one will be greater than `floor`. Until then, a node may report a round of at
  // most `max_reported` (protocol 4.6).
  explicit Round(uint64_t floor, uint64_t max_reported) : highest_(floor), max_reported_(max_reported) {}
  // Restores the round that an earlier server recorded. `highest`: the highest round number in use.
  Round(RoundRecord record, uint64_t highest);

  // Checks a reported round number. Returns nullopt, or one line that says why no server can have assigned that round
  // (protocol 4.6).
  std::optional<std::string> CheckReported(uint64_t number) const;

  // Marks a reported round number as used, so that it is never assigned again. Returns true if it is the highest so
  // far.
  bool Learn(uint64_t number);

  // Begins the next round with `group_world_size` nodes. `master`: node with the store. `nodes`: for the record, by
  // group rank; empty without records. `source`: rank whose training state all workers take (protocol 3.8).
  void Assign(const Node& master, int32_t group_world_size, int32_t world_size, std::string reason,
              google::protobuf::RepeatedPtrField<RoundNodeRecord> nodes = {},
              std::optional<StateSource> source = std::nullopt);

  // Sets the group rank of the node that is in the server's process.
  void SetServerNode(int32_t group_rank) { server_node_ = group_rank; }

  // Adopts a round of an earlier server, as one of its nodes reports it.
  void Resume(const Assignment& assignment);

  // Marks the node of this group rank as gone in the record.
  void Gone(int32_t group_rank);

  // Returns the node's group rank in the round of an earlier server's record; -1: not in it, or there is no such
  // record.
  int32_t RecordedRank(absl::string_view node_id) const;
  // Returns the digest of the session secret of a node of that recorded round, or nullptr.
  const std::string* RecordedSession(absl::string_view node_id) const;
  // False if that recorded round has another node, or none, at this group rank.
  bool MayHavePlace(absl::string_view node_id, int32_t group_rank) const;

  // Returns the assignment of a node of this round.
  Assignment PlaceOf(const Node& node, int32_t restart_count) const;

  // Stops the round because of `reason`: from now on StopOf returns it. `cause`: the worker's failure that caused the
  // stop, if any. `at_step_end`: nothing is broken, so workers may finish their step.
  void Leave(std::string reason, std::optional<WorkerFailure> cause, bool at_step_end = false);
  // Returns the message to a node that still runs round `number`, this or an older one. `keep_workers`: workers of this
  // round may re-form; those of older rounds must exit.
  StopRound StopOf(uint64_t number, bool keep_workers) const;

  // Count the groups that have succeeded, which includes those of nodes that are gone since.
  void AddSuccess() { ++succeeded_; }
  void TakeBackSuccess() { --succeeded_; }
  bool any_succeeded() const { return succeeded_ > 0; }
  bool all_succeeded() const { return succeeded_ == facts_.group_world_size(); }

  uint64_t number() const { return facts_.number(); }  // number of this round; 0: none yet
  uint64_t highest() const { return highest_; }
  // Returns the last round that this server or its records assigned; 0: none.
  uint64_t last_assigned() const { return last_assigned_; }
  int32_t group_world_size() const { return facts_.group_world_size(); }
  int32_t world_size() const { return facts_.world_size(); }
  const std::string& reason() const { return facts_.reason(); }
  const std::string& leave_reason() const { return facts_.leave_reason(); }  // empty: not stopped
  std::optional<WorkerFailure> leave_cause() const {
    return facts_.has_leave_cause() ? std::make_optional(facts_.leave_cause()) : std::nullopt;
  }
  // True if the round's store is at this address.
  bool HasStoreAt(const std::string& address, int32_t port) const {
    return facts_.master_addr() == address && facts_.master_port() == port;
  }
  const RoundRecord& record() const { return facts_; }
  bool names_all() const { return NamesAll(facts_, highest_); }

 private:
  RoundRecord facts_;
  uint64_t highest_;
  uint64_t last_assigned_ = 0;
  // Node whose training state the others take over, for Assign. Not in the record: a restarted server does not send an
  // Assign of this round again; a node that missed it is assigned another round.
  std::optional<StateSource> source_;
  std::optional<int32_t> server_node_;  // not in the record: servers with records are never in a node's process
  bool at_step_end_ = false;
  uint64_t max_reported_ = 0;
  int32_t succeeded_ = 0;
  absl::flat_hash_map<std::string, int32_t>
      recorded_;  // group ranks by node id, if an earlier server recorded this round
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ROUND_H_
