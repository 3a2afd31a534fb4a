#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/state.pb.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/messages.h"

// The record of a job: what a server with records stores before it acts, and from which a restarted server resumes the
// job (protocol 4.4). Plain values. Times are ages and remaining times, because steady clocks of two machines are
// unrelated; waits for workers that may still run (protocol 4.5) are not recorded, but start anew.
namespace ddprun::rendezvous {

// A node of the recorded round.
struct RoundNodeRecord {
  std::string node_id;
  std::string session;  // digest of the node's session secret (protocol 2.4)
  bool gone = false;    // lost or left since; if it may still have workers, JobRecord::fenced has it, too

  friend bool operator==(const RoundNodeRecord&, const RoundNodeRecord&) = default;
};

// The latest round of a job, as its nodes received it in Assign.
struct RoundRecord {
  uint64_t number = 0;  // 0: none yet
  int32_t group_world_size = 0;
  int32_t world_size = 0;
  std::string master_addr;
  int32_t master_port = 0;
  std::string master_host;
  std::string store_secret;
  std::string reason;                        // why the round began
  std::string leave_reason;                  // why the round was stopped; empty: it was not
  std::optional<WorkerFailure> leave_cause;  // worker's failure that caused the stop, if any
  // Nodes by group rank. Empty if the round was adopted from reports of nodes, so that not all are known, or if the
  // record was shortened (short_record.h).
  std::vector<RoundNodeRecord> nodes;

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// A node that is gone, but may have workers: a fenced node (protocol 4.5).
struct FencedNodeRecord {
  std::string node_id;
  uint64_t incarnation = 0;  // incarnation of its last stream
  std::string session;       // digest of its session secret (protocol 2.4)

  friend bool operator==(const FencedNodeRecord&, const FencedNodeRecord&) = default;
};

// Bounds on the number of nodes of a job.
struct JobSize {
  int32_t min_nodes = 1;
  int32_t max_nodes = 1;

  friend bool operator==(const JobSize&, const JobSize&) = default;
};

// Reserved job id of the record with the server's own state: drained_hosts and their events.
inline constexpr char kServerRecordId[] = "ddprun:server";

// The restarts charged so far (protocol 3.5), at the time of the record.
struct RestartRecord {
  std::vector<absl::Duration> charge_ages;  // ages of charges within the restart window, oldest first
  std::optional<absl::Duration> last_age;   // age of the last charge; unset: none
  int32_t series = 0;                       // number of charges in a row, for the backoff
  absl::Duration wait;                      // remaining restart backoff
  int32_t last_rank = -1;                   // rank of the last failure
  int64_t last_step = -1;                   // step of the last failure; -1: unknown
  int32_t failures_at_step = 0;             // failures of last_rank at last_step in a row

  friend bool operator==(const RestartRecord&, const RestartRecord&) = default;
};

// A node that has, or had, a cooldown (protocol 3.9).
struct CooldownRecord {
  std::string node_id;
  int32_t times = 0;                        // number of its cooldowns so far
  std::optional<absl::Duration> remaining;  // remaining time of the current cooldown; unset: none

  friend bool operator==(const CooldownRecord&, const CooldownRecord&) = default;
};

// A kicked node, whose launcher receives Finish again if it joins again (protocol 3.10).
struct KickedNodeRecord {
  std::string node_id;
  std::string actor;  // user who kicked the node

  friend bool operator==(const KickedNodeRecord&, const KickedNodeRecord&) = default;
};

struct JobRecord {
  std::string job_id;
  JobSettings settings = DefaultSettings();
  std::string settings_host;  // host whose Join determined `settings`
  std::string owner;          // authenticated user of the first launcher; empty: unknown
  absl::Duration age;         // time since the first node joined
  int32_t restarts_charged = 0;
  uint64_t highest_round = 0;  // highest round assigned or reported; at least round.number
  RoundRecord round;
  std::optional<JobSize> resized;
  std::vector<std::string> drained_hosts;  // set only in the server's own record; sorted
  std::vector<FencedNodeRecord> fenced;    // nodes that may still have workers, sorted by node id
  RestartRecord restarts;
  std::vector<CooldownRecord> cooldowns;     // in the order in which their first ones began
  std::string failing_node;                  // whose worker failed last as a first cause
  int32_t failing_rounds = 0;                // in a row
  std::vector<KickedNodeRecord> kicked;      // oldest first
  std::vector<std::string> others;           // ids of nodes beside the round's: spares, and lost ones
  uint64_t earlier_round = 0;                // the last one of the ended job of this id before; 0: none is known
  std::optional<Verdict> earlier_verdict;    // of that job
  std::optional<v1::GoodputRecord> goodput;  // unset: not known
  std::vector<Event> events;                 // as JobHistory has them; for people

  // Set for an ended job.
  std::optional<Verdict> verdict;
  absl::Duration since_end;       // time since the end; zero when the record is made
  std::vector<std::string> told;  // sorted ids of the nodes that received the verdict; empty: none did

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// Adds the age of the record, by the wall clock, to its ages, and subtracts it from its remaining times. A negative or
// impossibly large age, from a wrong clock, is ignored.
inline void AddAge(absl::Duration by, JobRecord* record) {
  if (by < absl::ZeroDuration() || by > kMaxDuration) return;
  const auto take_off = [by](absl::Duration left) { return left > by ? left - by : absl::ZeroDuration(); };
  record->age += by;
  if (record->verdict) record->since_end += by;
  if (record->goodput) *record->goodput->mutable_ago() = FromDuration(ToDuration(record->goodput->ago()) + by);
  for (absl::Duration& age : record->restarts.charge_ages) age += by;
  if (record->restarts.last_age) *record->restarts.last_age += by;
  record->restarts.wait = take_off(record->restarts.wait);
  for (CooldownRecord& node : record->cooldowns) {
    if (node.remaining) node.remaining = take_off(*node.remaining);
  }
}

// True if the record names all nodes that may have workers (protocol 4.5): the nodes of its round, if that is the
// highest one, and the fenced nodes.
inline bool NamesAll(const RoundRecord& round, uint64_t highest_round) {
  return !round.nodes.empty() && round.number == highest_round;
}

// All records that earlier servers left.
struct SavedState {
  std::vector<JobRecord> jobs;   // records of jobs; ended ones in order of their ends
  uint64_t forgotten_round = 0;  // highest round of all jobs whose records were deleted
  // Longest time that one server ran with these records. If it is long enough, it has recorded every round of launchers
  // that are still running, so that a job without a record has no workers (protocol 4.5).
  absl::Duration longest_life;
  uint64_t earlier_servers = 0;  // number of earlier servers with these records
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
