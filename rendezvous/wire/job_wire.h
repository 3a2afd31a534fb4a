#ifndef DDPRUN_RENDEZVOUS_WIRE_JOB_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_JOB_WIRE_H_

#include "absl/time/time.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/job_view.h"

namespace ddprun::rendezvous {

// Convert the state of a job for display: ids of nodes are replaced by their shown form (base/secret.h). `start`: the
// wall-clock time at SteadyTime's start. Thread-safe.
v1::Job ToProto(const JobView& job, absl::Time start);
v1::Goodput ToProto(const GoodputView& times);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_JOB_WIRE_H_
