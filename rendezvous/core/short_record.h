#ifndef DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_

#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// PURE: shortens a record that is too large for its store. Events are dropped, and texts of failures and verdicts are
// truncated to JobHistory::kMaxText. The record of an ended job keeps the nodes that received the verdict, but neither
// the nodes of the last round nor the fenced nodes, so a restarted server has to wait for unknown nodes
// (EndedJob::unreported). It is then smaller than any record of the running job, so a job that could start can also
// end.
JobRecord Shortened(JobRecord record);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_
