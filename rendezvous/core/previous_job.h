#ifndef DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_

#include <cstdint>
#include <optional>

#include "base/steady_time.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/fenced_nodes.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/lateness.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/participants.h"

namespace ddprun::rendezvous {

// PURE: the previous job of a job id, as the next job of that id remembers it. Value type.
struct PreviousJob {
  // A reported round from this one on resumes the previous job, as long as no round was assigned.
  uint64_t resume_from = 1;
  int32_t restarts = 0;  // charged to the job that is resumed
  // Nodes that report one of the rounds up to this one receive the verdict. 0: there is no verdict.
  uint64_t last_round = 0;
  std::optional<Verdict> verdict;

  // An ended job whose verdict no launcher received is resumed by nodes that still run its last round.
  static PreviousJob Of(const EndedJob& ended) {
    if (ended.told) return {ended.last_round + 1, 0, ended.last_round, ended.view.verdict};
    return {ended.last_round, ended.view.restart_count, 0, std::nullopt};
  }
  // The record's job is the one that is resumed.
  static PreviousJob Of(const JobRecord& record) {
    return {record.round.number, record.restarts_charged, record.earlier_round, record.earlier_verdict};
  }
  void Record(JobRecord* record) const {
    record->earlier_round = last_round;
    record->earlier_verdict = verdict;
  }

  bool HadRound(uint64_t round) const { return round > 0 && round <= last_round; }
};

// The server's knowledge of a job id before a job of this id begins.
struct JobOrigin {
  uint64_t round_floor = 0;   // rounds will be greater
  uint64_t max_reported = 0;  // the highest round that a node may report while nothing else is known of the job
  FencedNodes gone;           // nodes of the previous job that may still have workers
  bool gone_are_all = false;  // no other nodes have workers, except those that are unreported
  bool unreported = false;    // nodes of the previous job's last round have not come to this server
  PreviousJob previous;

  // The origin of a job that is resumed from the record.
  static JobOrigin Of(const JobRecord& record, SteadyTime server_began) {
    JobOrigin origin{.gone_are_all = NamesAll(record.round, record.highest_round), .previous = PreviousJob::Of(record)};
    const SteadyTime gone = Fence::UnknownGone(record.settings, server_began);
    for (const auto& node : record.fenced) origin.gone.Add(node.node_id, node.incarnation, gone, node.session);
    return origin;
  }
};

// The server of a job. The objects that it points to outlive the job.
struct JobServer {
  SteadyTime began;            // nodes of an earlier server may look for that one until then
  bool keeps_records = false;  // all that has to outlive the server is handed out in Persist effects
  Lateness* lateness = nullptr;
  const DrainedHosts* drained = nullptr;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_
