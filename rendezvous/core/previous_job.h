#ifndef DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_

#include <cstdint>
#include <optional>

#include "base/steady_time.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/participants.h"

namespace ddprun::rendezvous {

// PURE: what a job knows about the previous job of the same job id (protocol 5): rounds that still belong to it, and
// its verdict. Value type.
struct PreviousJob {
  // A node that reports this round or a higher one resumes the previous job, until the new job has a round.
  uint64_t resume_from = 1;
  int32_t restarts = 0;  // restarts charged to the previous job, which a resumed job keeps
  // Nodes that report a round up to this one receive `verdict`. 0: there is no verdict.
  uint64_t last_round = 0;
  std::optional<Verdict> verdict;

  // Returns the memory of an ended job. If no launcher received its verdict, nodes of its last round resume it.
  static PreviousJob Of(const EndedJob& ended) {
    if (ended.told) return {ended.last_round + 1, 0, ended.last_round, ended.view.verdict()};
    return {ended.last_round, ended.view.restart_count(), 0, std::nullopt};
  }
  // Returns the memory for a job that is resumed from its record.
  static PreviousJob Of(const JobRecord& record) {
    PreviousJob previous{record.round().number(), record.restarts_charged(), record.earlier_round()};
    if (record.has_earlier_verdict()) previous.verdict = record.earlier_verdict();
    return previous;
  }
  // Fills in the fields of the record that name the previous job.
  void Record(JobRecord* record) const {
    record->set_earlier_round(last_round);
    if (verdict) *record->mutable_earlier_verdict() = *verdict;
  }

  // True if a node that reports this round must receive the previous job's verdict.
  bool HadRound(uint64_t round) const { return round > 0 && round <= last_round; }
};

// The server's knowledge about a job id at the moment when a job of this id begins.
struct JobOrigin {
  uint64_t round_floor = 0;   // new rounds must be greater
  uint64_t max_reported = 0;  // highest round that a node may report if no round of the job is known (limits.h)
  FencedNodes gone;           // nodes of the previous job that may still have workers
  bool gone_are_all = false;  // see EndedJob::gone_are_all
  bool unreported = false;    // see EndedJob::unreported
  PreviousJob previous;

  // Returns the origin of a job that is resumed from its record.
  static JobOrigin Of(const JobRecord& record, SteadyTime server_began) {
    JobOrigin origin{.gone_are_all = NamesAll(record.round(), record.highest_round()),
                     .previous = PreviousJob::Of(record)};
    const SteadyTime gone = Fence::UnknownGone(record.settings(), server_began);
    for (const auto& node : record.fenced()) origin.gone.Add(node.node_id(), node.incarnation(), gone, node.session());
    return origin;
  }
};

// The server's part in its jobs. The objects that it points to must outlive the jobs.
struct JobServer {
  SteadyTime began;            // when this server began; nodes of earlier servers may still run then
  bool keeps_records = false;  // true if jobs emit Persist effects
  Lateness* lateness = nullptr;
  const DrainedHosts* drained = nullptr;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PREVIOUS_JOB_H_
