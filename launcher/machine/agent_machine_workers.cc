// Events of the workers: their ends and their worker links (docs/worker_protocol.md, section 5).
#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/machine/agent_machine.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::launcher {
namespace {

// Time in which the end of a process usually explains why a worker's group broke.
constexpr absl::Duration kBrokenHold = absl::Seconds(1);

}  // namespace

void AgentMachine::OnWorkersEnded(const std::vector<WorkerEnd>& ends, SteadyTime now, Effects* effects) {
  if (CutOffAt() <= now) StopBecauseCutOff(now, effects);  // that is why they ended, if this launcher slept
  ReportLostSurvivors(ends, effects);
  const LocalRanks before = workers_.Alive();
  const std::vector<FailureEvidence> failed = TakeEnds(ends);
  if (state_ != State::kRunning) {
    if (workers_.Alive() == before) return;
    SuspendNow(effects);  // a step can't end without the workers that are gone
    return OnFewerWorkers(now, effects);
  }
  failures_.Add(failed, now);
  if (failures_.Take(now)) return ReportFailure(failures_.cause(), now, effects);
  if (!workers_.AllSucceeded()) return;
  state_ = State::kSucceeded;
  line_.SetHasWorkers(false);
  reports_.EndRound();
  effects->push_back(effect::SweepOrphans{});
  if (line_.up()) effects->push_back(effect::Send{rendezvous::NewGroupSucceeded(current_->round())});
}

std::vector<FailureEvidence> AgentMachine::TakeEnds(const std::vector<WorkerEnd>& ends) {
  std::vector<FailureEvidence> failed;
  for (const WorkerEnd& end : ends) {
    const bool stopped_by_us = workers_.state(end.local_rank) == WorkerSet::State::kStopping;
    if (!workers_.End(end) || !end.failure) continue;
    failed.push_back(FailureEvidence{*end.failure, end.raised_at, stopped_by_us});
  }
  return failed;
}

void AgentMachine::OnSpawnFailed(const LocalRanks& not_started, const rendezvous::WorkerFailure& failure,
                                 SteadyTime now, Effects* effects) {
  workers_.NotStarted(not_started);
  if (state_ == State::kRunning) return ReportFailure(failure, now, effects);
  OnFewerWorkers(now, effects);
}

void AgentMachine::ReportFailure(const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects) {
  reported_ = failure;
  effects->push_back(effect::Print{LogLevel::kWarning, rendezvous::DescribeFailure(failure)});
  if (line_.up()) effects->push_back(effect::Send{rendezvous::NewWorkerFailed(current_->round(), failure)});
  LeaveRound(true, {current_->round(), false, rendezvous::DescribeFailure(failure), failure.rank()}, now, effects);
}

void AgentMachine::OnLink(int32_t local_rank, const LinkEvent& event, SteadyTime now, Effects* effects) {
  if (state_ == State::kDone || !current_) return;
  if (const auto* hello = std::get_if<worker_contract::LinkHello>(&event)) {
    workers_.Connected(local_rank, hello->capabilities);
    const LocalRanks can = workers_.CanCheckpoint();
    if (std::find(can.begin(), can.end(), local_rank) != can.end() && std::erase(warned_, local_rank) > 0) {
      RequestCheckpoint({local_rank}, now, effects);
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
                                 waits ? "suspended" : "re-forming", ", so it can't receive the next round: killed")});
  if (waits) return KillSurvivors({local_rank}, now, effects);
  // Its death is a failure of the round.
  effects->push_back(effect::KillWorkers{{local_rank}});
}

}  // namespace ddprun::launcher
