// The end of a round: its workers are suspended or stopped, and the node becomes idle, or the launcher exits.
#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/machine/agent_machine.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::launcher {

void AgentMachine::LeaveRound(bool keep, worker_contract::LinkSuspend line, SteadyTime now, Effects* effects) {
  const std::string reason = line.reason;
  const bool time_to_suspend = settings_.shutdown_timeout > absl::ZeroDuration();
  LocalRanks kept = keep && time_to_suspend ? workers_.CanSuspend() : LocalRanks();
  if (const LocalRanks plain = workers_.Plain(); !kept.empty() && !plain.empty()) {
    effects->push_back(effect::Print{LogLevel::kWarning, absl::StrCat("stopping all workers of this node, because ",
                                                                      RanksText(plain), " can't re-form")});
    kept.clear();
  }
  if (!kept.empty()) {
    effects->push_back(effect::Print{LogLevel::kInfo, absl::StrCat("suspending ", RanksText(kept))});
    workers_.Suspend(kept);
    stopping_.Start(settings_.shutdown_timeout, now);
    // A longer step is aborted, before the worker would be killed for it.
    if (line.at_step_end) suspend_now_.Set(now + settings_.shutdown_timeout / 2);
    suspend_ = std::move(line);
    effects->push_back(effect::SendToWorkers{kept, suspend_});
  }
  StopThese(workers_.In(WorkerSet::State::kRunning), SIGTERM, reason, now, effects);
}

void AgentMachine::StopBecauseCutOff(SteadyTime now, Effects* effects) {
  const absl::Duration since = absl::Trunc(now - line_.lease().since(), absl::Milliseconds(100));
  effects->push_back(effect::Print{
      LogLevel::kWarning,
      absl::StrCat("cut off from the rendezvous server at ", settings_.server, " for ", absl::FormatDuration(since),
                   ": stopping this node's workers, as the other nodes may go on without them")});
  LeaveRound(true, {current_->round(), false, "cut off from the rendezvous server", std::nullopt}, now, effects);
}

void AgentMachine::Stop(std::optional<int> signal, const std::string& reason, SteadyTime now, Effects* effects) {
  StopThese(workers_.Alive(), signal, reason, now, effects);
}

void AgentMachine::StopThese(LocalRanks workers, std::optional<int> signal, const std::string& reason, SteadyTime now,
                             Effects* effects) {
  reports_.Clear();
  failures_.Forget();
  broken_.reset();
  broken_due_.Clear();
  // Workers that are stopping already keep their deadlines; exit_ may have been set meanwhile.
  workers.erase(std::remove_if(workers.begin(), workers.end(),
                               [&](int32_t rank) { return workers_.state(rank) == WorkerSet::State::kStopping; }),
                workers.end());
  workers_.Stop(workers);
  if (Stopped()) return OnStopped(effects);
  state_ = State::kStopping;
  if (workers.empty()) return;
  stopping_.Start(settings_.shutdown_timeout, now);
  // A lease that has not run out is renewed while they stop.
  const bool cut_off = line_.lease().StopAt() <= now;
  const SteadyTime killed_at = stopping_.KillAt(cut_off ? WorkersMayRunUntil() : SteadyTime::InfiniteFuture());
  if (now < killed_at) effects->push_back(effect::NotifyStop{workers, killed_at, reason});
  if (settings_.shutdown_timeout > absl::ZeroDuration() && signal) {
    effects->push_back(effect::SignalWorkers{*signal, workers});
    effects->push_back(effect::SignalWorkers{SIGCONT, workers});
  }
  KillOrAbandon(now, effects);
}

void AgentMachine::KillOrAbandon(SteadyTime now, Effects* effects) {
  const StopSequence::Step step = stopping_.Take(WorkersMayRunUntil(), now);
  if (step == StopSequence::Step::kNone) return;
  LocalRanks workers = workers_.In(WorkerSet::State::kSuspending);
  if (!workers.empty()) {
    effects->push_back(
        effect::Print{LogLevel::kWarning, absl::StrCat(RanksText(workers), " did not suspend in time: killed")});
    workers_.Stop(workers);
  }
  workers = workers_.In(WorkerSet::State::kStopping);
  if (step == StopSequence::Step::kKill) {
    effects->push_back(effect::KillWorkers{workers});
    return;
  }
  effects->push_back(effect::Print{
      LogLevel::kError, absl::StrCat(workers.size() == 1 ? "1 worker is" : absl::StrCat(workers.size(), " workers are"),
                                     " still alive after SIGKILL (uninterruptible?); continuing without")});
  workers_.Abandon(workers);
  OnFewerWorkers(now, effects);
}

void AgentMachine::OnSuspended(int32_t local_rank, const worker_contract::LinkSuspended& line, SteadyTime now,
                               Effects* effects) {
  if (line.round != suspend_.round || !workers_.Suspended(local_rank, line.step)) return;
  OnFewerWorkers(now, effects);
}

void AgentMachine::SuspendNow(Effects* effects) {
  suspend_now_.Clear();
  if (!std::exchange(suspend_.at_step_end, false)) return;
  const LocalRanks workers = workers_.In(WorkerSet::State::kSuspending);
  if (!workers.empty()) effects->push_back(effect::SendToWorkers{workers, suspend_});
}

void AgentMachine::StopSurvivors(const std::string& reason, SteadyTime now, Effects* effects) {
  LocalRanks workers = workers_.In(WorkerSet::State::kSuspended);
  for (const int32_t rank : workers_.In(WorkerSet::State::kSuspending)) workers.push_back(rank);
  if (workers.empty()) return;
  std::sort(workers.begin(), workers.end());
  effects->push_back(effect::Print{LogLevel::kWarning,
                                   absl::StrCat("stopping ", RanksText(workers), ", which can't go on: ", reason)});
  StopThese(std::move(workers), SIGTERM, reason, now, effects);
}

void AgentMachine::KillSurvivors(const LocalRanks& ranks, SteadyTime now, Effects* effects) {
  workers_.Stop(ranks);
  effects->push_back(effect::KillWorkers{ranks});
  stopping_.OnKilled(now);
}

void AgentMachine::ReportLostSurvivors(const std::vector<WorkerEnd>& ends, Effects* effects) {
  for (const WorkerEnd& end : ends) {
    const WorkerSet::State worker = workers_.state(end.local_rank);
    if (worker != WorkerSet::State::kSuspending && worker != WorkerSet::State::kSuspended) continue;
    effects->push_back(effect::Print{
        LogLevel::kWarning, absl::StrCat(end.failure ? rendezvous::DescribeFailure(*end.failure)
                                                     : absl::StrCat(RanksText({end.local_rank}), " exited with 0"),
                                         ", while it was suspended; a new process will take its place")});
  }
}

void AgentMachine::OnFewerWorkers(SteadyTime now, Effects* effects) {
  if (state_ == State::kStopping) {
    if (Stopped()) OnStopped(effects);
    return;
  }
  if (state_ != State::kIdle || !workers_.Quiet()) return;
  stopping_.Clear();
  if (deferred_) return OnAssign(*std::exchange(deferred_, std::nullopt), now, effects);
  effects->push_back(effect::SweepOrphans{});
  if (line_.up()) {
    SendReady(current_->round(), effects);
  } else {
    // Had it been joining, the Join would have told of a worker more.
    joined_as_ = rendezvous::Join::PHASE_STOPPING;
  }
}

void AgentMachine::OnStopped(Effects* effects) {
  stopping_.Clear();
  line_.SetHasWorkers(false);
  const bool was_waiting_to_open = state_ == State::kStopping && !store_;
  state_ = State::kStopping;
  if (leave_.running()) return;
  if (exit_) {
    effects->push_back(effect::SweepOrphans{});
    state_ = State::kDone;
    effects->push_back(effect::ShowStatus{""});
    effects->push_back(*exit_);
    return;
  }
  if (was_waiting_to_open) return;
  effects->push_back(effect::SweepOrphans{});
  store_.reset();
  effects->push_back(effect::OpenStore{});
}

SteadyTime AgentMachine::WorkersMayRunUntil() const {
  // After a verdict no round of this job follows.
  const bool bounded = !workers_.Quiet() && !(exit_ && exit_->verdict);
  return bounded ? line_.lease().KillAt() : SteadyTime::InfiniteFuture();
}

SteadyTime AgentMachine::CutOffAt() const {
  return state_ == State::kRunning ? line_.lease().StopAt() : SteadyTime::InfiniteFuture();
}

}  // namespace ddprun::launcher
