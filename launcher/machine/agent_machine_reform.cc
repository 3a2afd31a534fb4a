// Workers that outlive their round (docs/worker_protocol.md, section 5).
#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/ranks_text.h"
#include "launcher/machine/agent_machine.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::launcher {
namespace {

// Time in which the end of a process usually explains why a worker's group broke.
constexpr absl::Duration kBrokenHold = absl::Seconds(1);

}  // namespace

std::string AgentMachine::RanksText(const LocalRanks& workers) const {
  return ddprun::RanksText(workers, current_->base_rank());
}

void AgentMachine::OnLink(int32_t local_rank, const LinkEvent& event, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || !current_) return;
  if (const auto* hello = std::get_if<worker_contract::LinkHello>(&event)) {
    workers_.Connected(local_rank, hello->capabilities);
    const LocalRanks can = workers_.CanCheckpoint();
    const bool warned = std::erase(warned_, local_rank) > 0;
    if (warned && std::find(can.begin(), can.end(), local_rank) != can.end()) {
      TellCheckpoint({local_rank}, now, effects);
    }
  } else if (const auto* suspended = std::get_if<worker_contract::LinkSuspended>(&event)) {
    OnSuspended(local_rank, *suspended, now, effects);
  } else if (const auto* formed = std::get_if<worker_contract::LinkReFormed>(&event)) {
    OnReFormed(local_rank, *formed, effects);
  } else if (const auto* checkpointed = std::get_if<worker_contract::LinkCheckpointed>(&event)) {
    effects->push_back(effect::Print{
        LogLevel::kInfo, absl::StrCat(RanksText({local_rank}), " wrote a checkpoint of step ", checkpointed->step)});
  } else if (const auto* broken = std::get_if<GroupBroken>(&event)) {
    OnGroupBroken(*broken, now);
  } else if (std::holds_alternative<LinkClosed>(event)) {
    OnLinkClosed(local_rank, now, effects);
  }
}

void AgentMachine::OnSuspended(int32_t local_rank, const worker_contract::LinkSuspended& line, SteadyTime now,
                               Effects* effects) {
  if (line.round != suspend_.round || !workers_.Suspended(local_rank, line.step)) return;
  OnFewerWorkers(now, effects);
}

void AgentMachine::OnReFormed(int32_t local_rank, const worker_contract::LinkReFormed& line, Effects* effects) {
  if (state_ != State::kRunning || line.round != current_->round()) return;
  workers_.Reformed(local_rank);
  effects->push_back(effect::Print{
      LogLevel::kInfo, absl::StrCat(RanksText({local_rank}), " is part of round ", line.round, " at step ", line.step,
                                    line.source ? absl::StrCat(", with the state of rank ", *line.source) : "")});
}

void AgentMachine::OnGroupBroken(const GroupBroken& broken, SteadyTime now) {
  if (state_ != State::kRunning || broken.round != current_->round() || broken_) return;
  broken_ = broken.failure;
  broken_due_.Set(now + kBrokenHold);
}

void AgentMachine::OnLinkClosed(int32_t local_rank, SteadyTime now, Effects* effects) {
  workers_.Disconnected(local_rank);
  const WorkerSet::State worker = workers_.state(local_rank);
  const bool waits = worker == WorkerSet::State::kSuspending || worker == WorkerSet::State::kSuspended;
  if (!waits && !workers_.Reforming(local_rank)) return;
  effects->push_back(
      effect::Print{LogLevel::kWarning,
                    absl::StrCat(RanksText({local_rank}), " closed its worker link while it was ",
                                 waits ? "suspended" : "re-forming", ", and can't be told how to go on: killed")});
  if (waits) return KillSurvivors({local_rank}, now, effects);
  // That is a failure of the round.
  effects->push_back(effect::KillWorkers{{local_rank}});
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
    StartGrace(now);
    // A longer step is aborted, before the worker would be killed for it.
    if (line.at_step_end) suspend_now_.Set(now + settings_.shutdown_timeout / 2);
    suspend_ = std::move(line);
    effects->push_back(effect::SendToWorkers{kept, suspend_});
  }
  StopThese(workers_.In(WorkerSet::State::kRunning), SIGTERM, reason, now, effects);
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

void AgentMachine::OnFewerWorkers(SteadyTime now, Effects* effects) {
  if (state_ == State::kStopping) {
    if (Stopped()) OnStopped(now, effects);
    return;
  }
  if (state_ != State::kIdle || !workers_.Quiet()) return;
  abandon_.Clear();
  if (deferred_) return OnAssign(*std::exchange(deferred_, std::nullopt), now, effects);
  effects->push_back(effect::SweepOrphans{});
  if (line_.up()) {
    SayReady(current_->round(), effects);
  } else {
    // Had it been joining, the Join would have told of a worker more.
    joined_as_ = rendezvous::Join::PHASE_STOPPING;
  }
}

}  // namespace ddprun::launcher
