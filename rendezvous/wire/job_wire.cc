#include "rendezvous/wire/job_wire.h"

#include "base/shown_id.h"
#include "proto/time.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {
namespace {

v1::Job::State StateToProto(JobState state) {
  switch (state) {
    case JobState::kWaiting: return v1::Job::STATE_WAITING;
    case JobState::kLastCall: return v1::Job::STATE_LAST_CALL;
    case JobState::kRunning: return v1::Job::STATE_RUNNING;
    case JobState::kStopping: return v1::Job::STATE_STOPPING;
    case JobState::kRecovering: return v1::Job::STATE_RECOVERING;
    case JobState::kFinished: return v1::Job::STATE_FINISHED;
    case JobState::kFailed: return v1::Job::STATE_FAILED;
  }
  return v1::Job::STATE_UNSPECIFIED;
}

}  // namespace

v1::Goodput ToProto(const GoodputView& times) {
  v1::Goodput proto;
  *proto.mutable_waiting() = FromDuration(times.waiting);
  *proto.mutable_starting() = FromDuration(times.starting);
  *proto.mutable_training() = FromDuration(times.training);
  *proto.mutable_re_forming() = FromDuration(times.re_forming);
  *proto.mutable_lost() = FromDuration(times.lost);
  return proto;
}

v1::Job ToProto(const JobView& job, absl::Time start) {
  v1::Job proto;
  proto.set_job_id(job.job_id);
  proto.set_owner(FitText(job.owner, kMaxNameBytes));
  proto.set_state(StateToProto(job.state));
  proto.set_reason(FitText(job.reason, kMaxTextBytes));
  proto.set_round(job.round);
  proto.set_restart_count(job.restart_count);
  *proto.mutable_settings() = job.settings;
  proto.set_node_count(job.node_count);
  proto.set_world_size(job.world_size);
  *proto.mutable_age() = FromDuration(job.age);
  *proto.mutable_begin() = FromTime(start + job.began.since_start());
  if (job.ended.has_value()) *proto.mutable_end() = FromTime(start + job.ended->since_start());
  if (job.verdict.has_value()) *proto.mutable_verdict() = Fitted(*job.verdict);
  if (job.goodput.has_value()) *proto.mutable_goodput() = ToProto(*job.goodput);
  for (const v1::Node& node : job.nodes) {
    v1::Node* shown = proto.add_nodes();
    *shown = node;
    shown->set_node_id(ShownId(node.node_id()));
    for (RankProgress& rank : *shown->mutable_progress()) Check(&rank, Fields::Fit());
  }
  return proto;
}

}  // namespace ddprun::rendezvous
