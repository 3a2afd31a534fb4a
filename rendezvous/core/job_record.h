#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/job_view.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/messages.h"

// The state of a job that outlives a server: a restarted server resumes the job from its record (protocol 4.4). Plain
// values. Times are ages and remaining waits, because no steady clock outlives a machine. A restarted server waits in
// full for workers that may still run (protocol 4.5).
namespace ddprun::rendezvous {

// A node of a round.
struct RoundNodeRecord {
  std::string node_id;
  std::string session;  // digest of its session secret (protocol 2.4)
  bool gone = false;    // it was lost or left since; if it may have workers still, it is among the fenced nodes

  friend bool operator==(const RoundNodeRecord&, const RoundNodeRecord&) = default;
};

// The latest round of a job, as its nodes were told.
struct RoundRecord {
  uint64_t number = 0;  // 0: none yet
  int32_t group_world_size = 0;
  int32_t world_size = 0;
  std::string master_addr;
  int32_t master_port = 0;
  std::string master_host;
  std::string store_secret;
  std::string reason;                        // why it began
  std::string leave_reason;                  // why its nodes have to stop their workers; empty: they need not
  std::optional<WorkerFailure> leave_cause;  // of that
  // By group rank. Empty: it was not given out by a server that keeps records, but taken up from what nodes reported;
  // or left out (short_record.h).
  std::vector<RoundNodeRecord> nodes;

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The last stream of a node that is gone, but may have workers.
struct FencedNodeRecord {
  std::string node_id;
  uint64_t incarnation = 0;
  std::string session;  // as RoundNodeRecord has it

  friend bool operator==(const FencedNodeRecord&, const FencedNodeRecord&) = default;
};

// The bounds of a resized job, in place of those of its settings.
struct JobSize {
  int32_t min_nodes = 1;
  int32_t max_nodes = 1;

  friend bool operator==(const JobSize&, const JobSize&) = default;
};

// The job id of the record of what is the server's: drained_hosts. No job can have it.
inline constexpr char kServerRecordId[] = "ddprun:server";

// The restarts charged so far (protocol 3.5), as of the time of the record.
struct RestartRecord {
  std::vector<absl::Duration> charge_ages;  // of charges within the restart window, oldest first
  std::optional<absl::Duration> last_age;   // of the last charge; unset: there was none
  int32_t series = 0;                       // charges in a row, for the backoff
  absl::Duration wait;                      // until the next round may begin
  int32_t last_rank = -1;                   // that failed last
  int64_t last_step = -1;                   // at which it did; -1: not known
  int32_t failures_at_step = 0;             // of that rank at that step in a row

  friend bool operator==(const RestartRecord&, const RestartRecord&) = default;
};

// A node that was left out, or is (protocol 3.9).
struct CooldownRecord {
  std::string node_id;
  int32_t times = 0;                        // that a cooldown began
  std::optional<absl::Duration> remaining;  // of the present one; unset: it is over

  friend bool operator==(const CooldownRecord&, const CooldownRecord&) = default;
};

// A node that was kicked: its launcher hears so again if it comes back (protocol 3.10).
struct KickedNodeRecord {
  std::string node_id;
  std::string actor;  // who kicked it

  friend bool operator==(const KickedNodeRecord&, const KickedNodeRecord&) = default;
};

// The phase that a job's time is counted in at present.
enum class GoodputPhase { kWaiting, kStarting, kTraining, kReForming, kEnded };

// Where a job's time went until the record was made. For people: nothing is decided by it.
struct GoodputRecord {
  GoodputView times;  // `training` with what was lost of it
  GoodputPhase phase = GoodputPhase::kWaiting;
  absl::Duration ago;         // since the record was made
  bool trained = false;       // a rank has reported a step
  int64_t highest_step = -1;  // of all rounds; -1: none
  absl::Duration step_time;   // zero: not known

  friend bool operator==(const GoodputRecord&, const GoodputRecord&) = default;
};

struct JobRecord {
  std::string job_id;
  JobSettings settings = DefaultSettings();
  std::string settings_host;  // whose settings they are
  std::string owner;          // name of the caller whose launcher joined first; empty: not known
  absl::Duration age;         // since its first node joined
  int32_t restarts_charged = 0;
  uint64_t highest_round = 0;  // given out or reported; at least round.number
  RoundRecord round;
  std::optional<JobSize> resized;
  std::vector<std::string> drained_hosts;  // sorted; of the server
  std::vector<FencedNodeRecord> fenced;    // sorted by node id
  RestartRecord restarts;
  std::vector<CooldownRecord> cooldowns;   // in the order in which their first ones began
  std::string failing_node;                // whose worker failed last as a first cause
  int32_t failing_rounds = 0;              // in a row
  std::vector<KickedNodeRecord> kicked;    // oldest first
  std::vector<std::string> others;         // ids of nodes beside the round's: spares, and lost ones
  uint64_t earlier_round = 0;              // the last one of the ended job of this id before; 0: none is known
  std::optional<Verdict> earlier_verdict;  // of that job
  std::optional<GoodputRecord> goodput;    // unset: not known
  std::vector<Event> events;               // as JobHistory has them; for people

  // Fields of an ended job.
  std::optional<Verdict> verdict;
  absl::Duration since_end;       // zero when the record is made
  std::vector<std::string> told;  // ids of the nodes that were told, sorted; empty: no node was

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// The record is `by` old by the wall clock. An impossible age, from a wrong clock, counts as zero.
inline void AddAge(absl::Duration by, JobRecord* record) {
  if (by < absl::ZeroDuration() || by > kMaxDuration) return;
  const auto take_off = [by](absl::Duration left) { return left > by ? left - by : absl::ZeroDuration(); };
  record->age += by;
  if (record->verdict) record->since_end += by;
  if (record->goodput) record->goodput->ago += by;
  for (absl::Duration& age : record->restarts.charge_ages) age += by;
  if (record->restarts.last_age) *record->restarts.last_age += by;
  record->restarts.wait = take_off(record->restarts.wait);
  for (CooldownRecord& node : record->cooldowns) {
    if (node.remaining) node.remaining = take_off(*node.remaining);
  }
}

// True if only nodes that the record names can have workers: the nodes of its round, which is the latest of all, and
// the fenced ones (protocol 4.5).
inline bool NamesAll(const RoundRecord& round, uint64_t highest_round) {
  return !round.nodes.empty() && round.number == highest_round;
}

// All that a server leaves behind.
struct SavedState {
  std::vector<JobRecord> jobs;   // ended ones in the order in which they ended
  uint64_t forgotten_round = 0;  // the highest of all jobs that are forgotten
  // The longest that one server has lived with these records. A launcher that ran workers before the first record, and
  // was not heard of for this long, has stopped them.
  absl::Duration longest_life;
  uint64_t earlier_servers = 0;  // that have had these records
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
