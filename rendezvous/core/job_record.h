#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/state.pb.h"
#include "rendezvous/core/messages.h"

// The record of a job: what a server with records stores before it acts, and from which a restarted server resumes the
// job (protocol 4.4). Waits for workers that may still run (protocol 4.5) are not recorded, but start anew. The core
// fills and reads the messages of proto/state.proto, which describes their fields; here is what all records have in
// common. Pure functions.
namespace ddprun::rendezvous {

using v1::CooldownRecord;
using v1::FencedNodeRecord;
using v1::JobRecord;
using v1::KickedNodeRecord;
using v1::RestartRecord;
using v1::RoundNodeRecord;
using v1::RoundRecord;

// Reserved job id of the record with the server's own state: drained_hosts and their events.
inline constexpr char kServerRecordId[] = "ddprun:server";

JobRecord NewRecord(std::string job_id, JobSettings settings);

// Serializes a record, after making its texts fit (Fields::Fit).
std::string ToBytes(JobRecord record);

// Parses the output of ToBytes. Counts and texts from launchers and times from clocks are clamped to their bounds, so
// that one wrong value does not make the whole record unreadable.
//   DATA_LOSS  malformed in another part, or written by a newer server.
absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes);

// Makes the record older by the time since it was stored, as the wall clock has it. An impossible time, from a wrong
// clock, counts as zero.
void AddAge(absl::Duration by, JobRecord* record);

// Shortens a record that is too large for its store. Events are dropped, and texts of failures and verdicts are
// truncated to JobHistory::kMaxText. The record of an ended job keeps the nodes that received the verdict, but neither
// the nodes of the last round nor the fenced nodes, so a restarted server has to wait for unknown nodes
// (EndedJob::unreported). It is then smaller than any record of the running job, so a job that could start can also
// end.
JobRecord Shortened(JobRecord record);

// True if the record names all nodes that may have workers (protocol 4.5): the nodes of its round, if that is the
// highest one, and the fenced nodes.
inline bool NamesAll(const RoundRecord& round, uint64_t highest_round) {
  return !round.nodes().empty() && round.number() == highest_round;
}

// A log line about a record that RecordFromBytes refused and that was moved to `place`.
std::string DescribeSetAside(absl::string_view job_id, const absl::Status& problem, absl::string_view place);

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
