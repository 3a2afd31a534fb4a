#include "rendezvous/wire/job_wire.h"

#include "base/secret.h"
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

v1::Training TrainingToProto(const TrainingView& training, bool ended) {
  v1::Training proto;
  proto.set_step(training.step);
  proto.set_steps_behind(training.behind);
  if (training.loss.has_value()) proto.set_loss(*training.loss);
  if (training.samples.has_value()) proto.set_samples(*training.samples);
  if (!ended) *proto.mutable_ago() = FromDuration(training.ago);
  for (const auto& [step, loss] : training.losses) {
    v1::LossPoint* point = proto.add_losses();
    point->set_step(step);
    point->set_loss(loss);
  }
  return proto;
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
  if (job.training.has_value()) *proto.mutable_training() = TrainingToProto(*job.training, IsEnd(job.state));
  for (const v1::Node& node : job.nodes) {
    v1::Node* shown = proto.add_nodes();
    *shown = node;
    shown->set_node_id(ShownId(node.node_id()));
    for (RankProgress& rank : *shown->mutable_progress()) Check(&rank, Fields::Fit());
  }
  return proto;
}

}  // namespace ddprun::rendezvous
