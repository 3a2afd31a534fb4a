#include "rendezvous/core/registry.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {

namespace {

// Number of jobs above which jobs that wait at the same time are probably meant to be different ones.
constexpr size_t kMaxJobsCompared = 8;

}  // namespace

Registry::Registry(SteadyTime began, bool keeps_records, uint64_t max_reported)
    : began_(began), keeps_records_(keeps_records), max_reported_(max_reported) {}
Registry::~Registry() = default;

void Registry::Restore(const SavedState& saved) {
  ended_.Forgotten(saved.forgotten_round);
  longest_life_ = saved.longest_life;
  for (const JobRecord& record : saved.jobs) {
    if (record.job_id() != kServerRecordId) continue;
    drained_.insert(record.drained_hosts().begin(), record.drained_hosts().end());
    host_history_ = JobHistory({record.events().begin(), record.events().end()});
  }
  for (const JobRecord& record : saved.jobs) {
    if (record.job_id() == kServerRecordId) continue;
    if (record.has_verdict()) {
      ended_.Add(EndedJob::FromRecord(record, began_, start_));
    } else if (record.round().number() == 0) {
      ended_.Forgotten(record.highest_round());  // no round had begun: the nodes begin the job anew
    } else {
      const auto it = live_.emplace(record.job_id(), LiveJob{}).first;
      it->second.job = std::make_unique<Job>(record, OwnServer());
      Settle(it, began_);
    }
  }
}

void Registry::OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                         const LauncherMessage& message, SteadyTime now, Effects* effects) {
  lateness_.OnTurn(NextDeadline(), now);
  if (const auto* join = std::get_if<Join>(&message)) {
    assert(join->job_id() == job_id && join->node_id() == node_id && join->incarnation() == incarnation);
    return OnJoin(*join, now, effects);
  }
  const auto it = live_.find(job_id);
  if (it != live_.end()) {
    it->second.job->OnMessage(node_id, incarnation, message, MakeTurn(now, effects));
    return Settle(it, now);
  }
  // A launcher that stops its workers after the end of its job must not count the server as silent.
  if (std::holds_alternative<Heartbeat>(message) && ended_.OnHeartbeat(job_id, node_id, incarnation, now)) {
    effects->emplace_back(Tell{job_id, node_id, incarnation, HeartbeatAck{}});
  }
}

void Registry::OnJoin(const Join& join, SteadyTime now, Effects* effects) {
  const auto refuse = [&](Close::Why why, std::string reason) {
    effects->emplace_back(Tell{join.job_id(), join.node_id(), join.incarnation(), NewRejected(reason)});
    effects->emplace_back(Close{join.job_id(), join.node_id(), join.incarnation(), why, std::move(reason)});
  };
  if (join.job_id() == kServerRecordId) {
    return refuse(Close::Why::kRefused, absl::StrCat("the job id ", join.job_id(), " is reserved; choose another"));
  }
  auto it = live_.find(join.job_id());
  const bool is_new = it == live_.end();
  if (is_new) {
    const EndedJob* ended = ended_.Find(join.job_id());
    if (ended != nullptr && ended->Concerns(join)) {
      effects->emplace_back(Tell{join.job_id(), join.node_id(), join.incarnation(), NewFinish(ended->view.verdict())});
      ended_.OnTold(join, now);
      return;
    }
    if (ended != nullptr && !ended->IsTrueNode(join)) {
      return refuse(Close::Why::kRefused, OtherLaunchersId(join.job_id(), join.host()));
    }
    if (ended != nullptr && ended->gone.IsOvertaken(join.node_id(), join.incarnation())) {
      effects->emplace_back(Close{join.job_id(), join.node_id(), join.incarnation(), Close::Why::kReplaced,
                                  "replaced by a newer incarnation of this node"});
      return;
    }
    if (auto why = NoRoomFor(join)) return refuse(Close::Why::kFull, *std::move(why));
    JobOrigin origin;
    origin.max_reported = max_reported_;
    origin.round_floor = ended_.RoundFloor(join.job_id());
    // If servers have kept records long enough, a job without a record has had no round since (protocol 4.5).
    origin.gone_are_all = Fence::UnknownTime(join.settings()) <= longest_life_;
    if (ended != nullptr) {
      origin.previous = PreviousJob::Of(*ended);
      origin.gone = ended->gone;
      origin.gone_are_all = !ended->unreported && (origin.gone_are_all || ended->gone_are_all);
      origin.unreported = ended->unreported;
    }
    auto job = std::make_unique<Job>(join, std::move(origin), OwnServer(), now);
    ended_.Remove(join.job_id());
    if (!join.origin().peer().empty()) ++of_peer_[join.origin().peer()].jobs;
    it = live_.emplace(join.job_id(), LiveJob{std::move(job), join.origin().peer()}).first;
    it->second.job->ReportCreated(MakeTurn(now, effects));
  } else if (auto why = NoRoomFor(join)) {
    return refuse(Close::Why::kFull, *std::move(why));
  }
  it->second.job->OnJoin(join, MakeTurn(now, effects));
  if (is_new) CompareWithOthers(it, now, effects);
  Settle(it, now);
}

void Registry::CompareWithOthers(Live::iterator created, SteadyTime now, Effects* effects) {
  if (live_.size() > kMaxJobsCompared) return;
  const auto hint = [](const std::string& id) {
    return absl::StrCat("job \"", id, "\" waits at this server, too: is --rdzv-id the same on all nodes?");
  };
  for (auto other = live_.begin(); other != live_.end(); ++other) {
    if (other == created || !other->second.job->MayBeOneJobWith(*created->second.job)) continue;
    created->second.job->Hint(hint(other->first), MakeTurn(now, effects));
    other->second.job->Hint(hint(created->first), MakeTurn(now, effects));
    Settle(other, now);
  }
}

std::optional<std::string> Registry::NoRoomFor(const Join& join) const {
  const auto job = live_.find(join.job_id());
  const bool is_new = job == live_.end();
  if (is_new && live_.size() >= kMaxLiveJobs) {
    return absl::StrCat("the rendezvous server is full (", live_.size(), " jobs)");
  }
  const std::string& peer = is_new ? join.origin().peer() : job->second.peer;
  const auto of_peer = of_peer_.find(peer);
  if (of_peer == of_peer_.end()) return std::nullopt;
  if (is_new && of_peer->second.jobs >= kMaxJobsPerPeer) {
    return absl::StrCat("too many jobs from ", peer, " (", of_peer->second.jobs, ")");
  }
  if (of_peer->second.nodes >= kMaxNodesPerPeer && (is_new || !job->second.job->HasNode(join.node_id()))) {
    return absl::StrCat("too many nodes in jobs from ", peer, " (", of_peer->second.nodes, ")");
  }
  return std::nullopt;
}

void Registry::OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                              SteadyTime now, Effects* effects) {
  const auto it = live_.find(job_id);
  if (it == live_.end()) return ended_.OnStreamClosed(job_id, node_id, incarnation);
  it->second.job->OnStreamClosed(node_id, incarnation, MakeTurn(now, effects));
  Settle(it, now);
}

absl::StatusOr<Registry::Live::iterator> Registry::FindLive(const std::string& job_id, const Caller& caller) {
  const auto it = live_.find(job_id);
  if (it == live_.end()) {
    const EndedJob* ended = ended_.Find(job_id);
    if (ended == nullptr) return absl::NotFoundError(absl::StrCat("no such job: ", job_id));
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " has ended: ", ended->view.reason()));
  }
  const std::string& owner = it->second.job->owner();
  if (caller.role != Role::kAdmin && (caller.name.empty() || caller.name != owner)) {
    return absl::PermissionDeniedError(absl::StrCat("the token of ", caller.name, " has role ", Name(caller.role),
                                                    "; job ", job_id, owner.empty() ? " has no owner" : " is owned by ",
                                                    owner, ", so this call requires role admin"));
  }
  return it;
}

absl::Status Registry::OnCommand(const Command& command, const Caller& caller, SteadyTime now, Effects* effects) {
  const std::string& actor = caller.actor();
  const auto of_job = [&](const std::string& job_id, auto call) {
    const absl::StatusOr<Live::iterator> it = FindLive(job_id, caller);
    if (!it.ok()) return it.status();
    const absl::Status status = call((*it)->second.job.get(), MakeTurn(now, effects));
    Settle(*it, now);
    return status;
  };
  if (const auto* stop = std::get_if<StopJob>(&command)) {
    return of_job(stop->job_id, [&](Job* job, const Job::Turn& turn) { return job->Stop(actor, turn); });
  }
  if (const auto* kick = std::get_if<KickNode>(&command)) {
    return of_job(kick->job_id, [&](Job* job, const Job::Turn& turn) { return job->Kick(kick->node, actor, turn); });
  }
  if (const auto* drain = std::get_if<DrainHost>(&command)) return Drain(drain->host, actor, now, effects);
  if (const auto* undrain = std::get_if<UndrainHost>(&command)) return Undrain(undrain->host, actor, now, effects);
  const auto& resize = std::get<ResizeJob>(command);
  return of_job(resize.job_id, [&](Job* job, const Job::Turn& turn) {
    return job->Resize(JobSize{resize.min_nodes, resize.max_nodes}, actor, turn);
  });
}

absl::StatusOr<InspectedNodes> Registry::Inspect(const v1::InspectRequest& question, const Caller& caller,
                                                 SteadyTime now, Effects* effects) {
  const absl::StatusOr<Live::iterator> it = FindLive(question.job_id(), caller);
  if (!it.ok()) return it.status();
  return (*it)->second.job->Inspect(question.inspect(), MakeTurn(now, effects));
}

absl::Status Registry::Drain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects) {
  if (auto problem = CheckHostName(host)) return absl::InvalidArgumentError(*problem);
  if (drained_.size() >= kMaxDrainedHosts) return absl::InvalidArgumentError("too many hosts are drained");
  if (!drained_.insert(host).second) return absl::OkStatus();
  ReportDrained(true, host, actor, now, effects);
  return absl::OkStatus();
}

absl::Status Registry::Undrain(const std::string& host, const std::string& actor, SteadyTime now, Effects* effects) {
  if (drained_.erase(host) == 0) return absl::NotFoundError(absl::StrCat("host ", host, " is not drained"));
  ReportDrained(false, host, actor, now, effects);
  return absl::OkStatus();
}

void Registry::ReportDrained(bool drained, const std::string& host, const std::string& actor, SteadyTime now,
                             Effects* effects) {
  const std::string what = absl::StrCat("host ", host, drained ? " drained by " : " undrained by ", actor);
  Event event = NewEvent(drained ? event_kind::kHostDrained : event_kind::kHostUndrained, what);
  event.set_host(host);
  event.set_actor(actor);
  *event.mutable_time() = FromTime(start_ + now.since_start());
  Check(&event, Fields::Fit());
  if (keeps_records_) {
    host_history_.Add(event);
    auto record = std::make_shared<JobRecord>(NewRecord(kServerRecordId, DefaultSettings()));
    for (const std::string& drained_host : drained_) record->add_drained_hosts(drained_host);
    record->mutable_events()->Assign(host_history_.events().begin(), host_history_.events().end());
    effects->emplace_back(Persist{std::move(record), what});
  }
  effects->emplace_back(Report{std::move(event)});
  std::vector<std::string> ids;
  for (const auto& [job_id, live] : live_) {
    if (live.job->HasHost(host)) ids.push_back(job_id);
  }
  for (const std::string& job_id : ids) {  // the job may end and leave live_
    const auto it = live_.find(job_id);
    it->second.job->ApplyChange(what, MakeTurn(now, effects));
    Settle(it, now);
  }
}

void Registry::OnDeadline(SteadyTime now, Effects* effects) {
  lateness_.OnTurn(NextDeadline(), now);
  // Calls each job once, so that this returns even if a job has a new deadline that is already past.
  std::vector<std::string> due;
  for (const auto& [deadline, job_id] : deadlines_) {
    if (deadline > now.since_start()) break;
    due.push_back(job_id);
  }
  for (const std::string& job_id : due) {
    const auto it = live_.find(job_id);
    it->second.job->OnDeadline(MakeTurn(now, effects));
    Settle(it, now);
  }
}

SteadyTime Registry::NextDeadline() const {
  if (deadlines_.empty()) return SteadyTime::InfiniteFuture();
  return SteadyTime::FromStart(deadlines_.begin()->first);
}

void Registry::Settle(Live::iterator it, SteadyTime now) {
  LiveJob& live = it->second;
  live.job->CompleteRecord(now);
  const SteadyTime next = live.job->ended() ? SteadyTime::InfiniteFuture() : live.job->NextDeadline();
  if (next != live.indexed_at) {
    if (live.indexed_at != SteadyTime::InfiniteFuture()) deadlines_.erase({live.indexed_at.since_start(), it->first});
    if (next != SteadyTime::InfiniteFuture()) deadlines_.insert({next.since_start(), it->first});
    live.indexed_at = next;
  }
  const size_t nodes = live.job->ended() ? 0 : live.job->nodes();
  // Jobs that Restore restored have no peer.
  const auto of_peer = of_peer_.find(live.peer);
  if (of_peer != of_peer_.end()) of_peer->second.nodes += nodes - std::exchange(live.nodes, nodes);
  if (!live.job->ended()) return;
  ended_.Add(live.job->Ended(now, start_));
  if (of_peer != of_peer_.end() && --of_peer->second.jobs == 0) of_peer_.erase(of_peer);
  live_.erase(it);
}

std::vector<v1::Job> Registry::ListJobs(SteadyTime now, absl::string_view after, size_t limit) const {
  std::vector<v1::Job> views;
  auto live = live_.upper_bound(after);
  const EndedJob* ended = ended_.Next(after);
  while (views.size() < limit && (live != live_.end() || ended != nullptr)) {
    const bool take_live = ended == nullptr || (live != live_.end() && live->first < ended->view.job_id());
    if (take_live) {
      views.push_back(live->second.job->View(now, start_, false));
      ++live;
    } else {
      views.push_back(ended->view);
      ended = ended_.Next(ended->view.job_id());
    }
  }
  return views;
}

std::optional<v1::Job> Registry::GetJob(absl::string_view job_id, SteadyTime now) const {
  if (const auto it = live_.find(job_id); it != live_.end()) return it->second.job->View(now, start_, true);
  const EndedJob* ended = ended_.Find(job_id);
  if (ended == nullptr) return std::nullopt;
  return ended->view;
}

}  // namespace ddprun::rendezvous
