#include "rendezvous/core/ended_jobs.h"

#include <algorithm>
#include <utility>

#include "rendezvous/core/fence.h"
#include "rendezvous/core/goodput.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/membership.h"

namespace ddprun::rendezvous {

EndedJob EndedJob::FromRecord(const JobRecord& record, SteadyTime began, absl::Time start) {
  EndedJob ended;
  v1::Job& view = ended.view;
  view.set_job_id(record.job_id());
  view.set_owner(record.owner());
  view.set_state(record.verdict().succeeded() ? v1::Job::STATE_FINISHED : v1::Job::STATE_FAILED);
  view.set_reason(record.verdict().reason());
  view.set_round(record.round().number());
  view.set_restart_count(record.restarts_charged());
  *view.mutable_settings() = record.settings();
  view.set_node_count(record.told_size());
  view.set_world_size(record.round().world_size());
  *view.mutable_verdict() = record.verdict();
  if (record.has_goodput()) *view.mutable_goodput() = Goodput(record.goodput(), began).At(began);
  const absl::Duration age = ToDuration(record.age()), since_end = ToDuration(record.since_end());
  *view.mutable_begin() = FromTime(start + (began - age).since_start());
  *view.mutable_end() = FromTime(start + (began - since_end).since_start());
  *view.mutable_age() = FromDuration(age - since_end);
  ended.last_round = record.highest_round();
  ended.gone_are_all = NamesAll(record.round(), record.highest_round());
  ended.told = !record.told().empty();
  ended.node_ids.assign(record.told().begin(), record.told().end());
  ended.unreported = record.round().number() > 0 && record.round().nodes().empty();
  for (const RoundNodeRecord& node : record.round().nodes()) {
    if (!node.gone() && !ended.Has(node.node_id())) ended.unreported = true;
  }
  ended.AddAbsent(record.kicked(), record.others());
  for (const FencedNodeRecord& node : record.fenced()) {
    ended.gone.Add(node.node_id(), node.incarnation(), Fence::UnknownGone(record.settings(), began), node.session());
  }
  return ended;
}

bool EndedJob::Has(absl::string_view node_id) const {
  const auto it = std::lower_bound(node_ids.begin(), node_ids.end(), node_id,
                                   [](const std::string& a, absl::string_view b) { return absl::string_view(a) < b; });
  return it != node_ids.end() && *it == node_id;
}

void EndedJob::AddAbsent(const google::protobuf::RepeatedPtrField<KickedNodeRecord>& kicked,
                         const google::protobuf::RepeatedPtrField<std::string>& lost) {
  for (const KickedNodeRecord& node : kicked) node_ids.push_back(node.node_id());
  node_ids.insert(node_ids.end(), lost.begin(), lost.end());
  std::sort(node_ids.begin(), node_ids.end());
  node_ids.erase(std::unique(node_ids.begin(), node_ids.end()), node_ids.end());
}

bool EndedJob::Concerns(const Join& join) const {
  if (!told) return false;
  if (Has(join.node_id())) return true;
  // A node that was lost before the end: only this job can have assigned that round to it.
  return join.has_current() && join.current().round() <= last_round;
}

bool EndedJob::IsTrueNode(const Join& join) const {
  const std::string* session = gone.FindSession(join.node_id());
  return session == nullptr || Membership::IsOfSession(*session, join);
}

void EndedJobs::Add(EndedJob job) {
  nodes_ += job.node_ids.size();
  std::string id = job.view.job_id();
  order_.push_back(id);
  jobs_[id] = Entry{std::move(job), std::prev(order_.end())};
  while (jobs_.size() > 1 && (jobs_.size() > kMaxJobs || nodes_ > kMaxNodes)) {
    const std::string oldest = order_.front();
    forgotten_round_ = std::max(forgotten_round_, jobs_.find(oldest)->second.job.last_round);
    Remove(oldest);
  }
}

void EndedJobs::Remove(absl::string_view job_id) {
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) return;
  nodes_ -= it->second.job.node_ids.size();
  order_.erase(it->second.place);
  jobs_.erase(it);
}

void EndedJobs::OnStreamClosed(absl::string_view job_id, absl::string_view node_id, uint64_t incarnation) {
  const auto it = jobs_.find(job_id);
  if (it != jobs_.end()) it->second.job.gone.StreamClosed(node_id, incarnation);
}

bool EndedJobs::OnHeartbeat(absl::string_view job_id, const std::string& node_id, uint64_t incarnation,
                            SteadyTime now) {
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) return false;
  EndedJob& job = it->second.job;
  const SteadyTime gone = now + FenceTime(LongestTimeout(job.view.settings()));
  return job.gone.StillThere(node_id, incarnation, gone) || job.Has(node_id);
}

void EndedJobs::OnTold(const Join& join, SteadyTime now) {
  EndedJob& job = jobs_.find(join.job_id())->second.job;
  job.unheard.erase(join.node_id());
  if (job.gone.IsOvertaken(join.node_id(), join.incarnation()) || !job.IsTrueNode(join)) return;
  Fence::AddTold(join, LongestTimeout(job.view.settings()), now, &job.gone);
}

SteadyTime EndedJobs::UnheardUntil() const {
  SteadyTime until = SteadyTime::InfinitePast();
  for (const auto& [unused, entry] : jobs_) {
    for (const auto& [node_id, expected_until] : entry.job.unheard) until = std::max(until, expected_until);
  }
  return until;
}

const EndedJob* EndedJobs::Find(absl::string_view job_id) const {
  const auto it = jobs_.find(job_id);
  return it == jobs_.end() ? nullptr : &it->second.job;
}

uint64_t EndedJobs::RoundFloor(absl::string_view job_id) const {
  const EndedJob* job = Find(job_id);
  return std::max(forgotten_round_, job == nullptr ? 0 : job->last_round);
}

const EndedJob* EndedJobs::Next(absl::string_view after) const {
  const auto it = jobs_.upper_bound(after);
  return it == jobs_.end() ? nullptr : &it->second.job;
}

}  // namespace ddprun::rendezvous
