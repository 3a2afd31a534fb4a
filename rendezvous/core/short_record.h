#ifndef DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_

#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// PURE: what is kept of a job whose record is too large for its store. Events are left out, and texts of failures and
// verdicts are cut to JobHistory::kMaxText. An ended job keeps the nodes that were told, but not those of its last
// round and those that may have workers: the next server waits for all possible nodes (EndedJob::unreported).
// So it takes less than the job took while it ran, and a job that could begin can end.
JobRecord Shortened(JobRecord record);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_SHORT_RECORD_H_
