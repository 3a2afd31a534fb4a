#include "tests/rendezvous/core/invariants.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/secret.h"
#include "gtest/gtest.h"
#include "rendezvous/core/job_state.h"

namespace ddprun::rendezvous {

void Invariants::ServerRestarted(bool with_records) {
  if (!with_records) {
    reported_.clear();
    kicked_.clear();
    return seen_.clear();
  }
  for (auto& [unused, reported] : reported_) reported = Reported{.assigned = reported.assigned};
  for (auto& [unused, seen] : seen_) seen.connected.clear();
}

void Invariants::CheckKept(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) {
      JobRecord& kept = kept_[persist->record->job_id()];
      EXPECT_GE(persist->record->highest_round(), kept.highest_round());
      EXPECT_GE(persist->record->highest_round(), persist->record->round().number());
      kept = *persist->record;
      if (kept.has_verdict()) kept_verdicts_[kept.job_id()] = kept.verdict();
      continue;
    }
    const auto* tell = std::get_if<Tell>(&effect);
    if (tell == nullptr) continue;
    if (const auto* assign = std::get_if<Assign>(&tell->message)) {
      EXPECT_EQ(kept_[tell->job_id].round().number(), assign->assignment().round());
      EXPECT_EQ(kept_[tell->job_id].restarts_charged(), assign->assignment().restart_count());
    }
    if (const auto* finish = std::get_if<Finish>(&tell->message)) {
      if (absl::StartsWith(finish->verdict().reason(), "kicked by ")) continue;  // the node's end, not the job's
      // A job that began anew tells the verdict of the job before, to nodes of that one.
      EXPECT_EQ(kept_verdicts_[tell->job_id], finish->verdict()) << "4: told a verdict that was not kept";
    }
  }
}

void Invariants::Check(const Registry& registry, bool keeps_records, const std::string& job_id, const Effects& effects,
                       const std::set<Stream>& open, SteadyTime now) {
  CheckEffects(job_id, effects, open);
  if (keeps_records) CheckKept(effects);
  bool somebody_waits = false;
  for (const v1::Job& listed : registry.ListJobs(now)) {
    const std::optional<v1::Job> view = registry.GetJob(listed.job_id(), now);
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->state(), listed.state());
    CheckJob(*view, effects);
    if (!IsEnd(StateOf(*view)) && StateOf(*view) != JobState::kRunning) somebody_waits = true;
  }
  CheckReported(registry, effects, now);
  if (somebody_waits) {
    EXPECT_LT(registry.NextDeadline(), SteadyTime::InfiniteFuture()) << "4: somebody would wait for ever";
  }
}

void Invariants::CheckEffects(const std::string& job_id, const Effects& effects, const std::set<Stream>& open) {
  const auto check_job = [&](const std::string& of) {
    EXPECT_TRUE(job_id.empty() || of == job_id) << "jobs mix: " << of;
  };
  std::set<Stream> closed, rejected;
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) {
      check_job(persist->record->job_id());
      continue;
    }
    if (const auto* report = std::get_if<Report>(&effect)) {
      check_job(report->event.job_id());
      CheckEvent(report->event);
      continue;
    }
    const auto* tell = std::get_if<Tell>(&effect);
    const auto* close = std::get_if<Close>(&effect);
    if (ToldMessage<Welcome>(effect) != nullptr) {
      EXPECT_FALSE(kicked_[tell->job_id].contains(ShownId(tell->node_id))) << "3.10: a kicked node joined again";
    }
    const Stream to = tell != nullptr ? Stream{tell->job_id, tell->node_id, tell->incarnation}
                                      : Stream{close->job_id, close->node_id, close->incarnation};
    check_job(to.job_id);
    EXPECT_TRUE(open.contains(to)) << "speaks to a stream that is not there: " << to.node_id << "#" << to.incarnation;
    EXPECT_FALSE(closed.contains(to)) << "speaks to a stream that it closed";
    const bool refused = close != nullptr && (close->why == Close::Why::kRefused || close->why == Close::Why::kFull);
    EXPECT_EQ(refused, rejected.contains(to)) << "a Rejected and its end go together";
    if (ToldMessage<Rejected>(effect) != nullptr) rejected.insert(to);
    if (close != nullptr) {
      closed.insert(to);
      rejected.erase(to);
    }
  }
  EXPECT_TRUE(rejected.empty()) << "a Rejected and its end go together";
}

void Invariants::CheckEvent(const Event& event) {
  SCOPED_TRACE(absl::StrCat(event.kind(), " of ", event.job_id()));
  EXPECT_EQ(event.node_id().size(), event.node_id().empty() ? 0 : ShownId("").size()) << "shows an id to join with";
  if (event.job_id().empty()) {
    EXPECT_TRUE(event.kind() == event_kind::kHostDrained || event.kind() == event_kind::kHostUndrained);
    EXPECT_FALSE(event.host().empty());
    return;
  }
  Reported& reported = reported_[event.job_id()];
  if (event.kind() == event_kind::kJobCreated) {
    EXPECT_FALSE(reported.lives.value_or(false)) << "created while it lives";
    reported = Reported{.lives = true, .assigned = reported.assigned};
    kicked_.erase(event.job_id());
    return;
  }
  EXPECT_TRUE(reported.lives.value_or(false)) << "reported of a job that has ended, or never began";
  const auto once = [&event](uint64_t* last) {
    EXPECT_GT(event.round(), std::exchange(*last, event.round())) << "reported twice, or of an older round";
  };
  if (event.kind() == event_kind::kRoundAssigned) once(&reported.assigned);
  if (event.kind() == event_kind::kRoundStopped) once(&reported.stopped);
  // One that is not restartable ends the job, whatever came before it.
  if (event.kind() == event_kind::kWorkerFailed && event.failure().restartable()) once(&reported.failed);
  EXPECT_GE(event.round(), std::exchange(reported.latest, event.round())) << "of an older round";
  EXPECT_EQ(event.has_exit_code(), IsEnd(event.kind()));
  if (IsEnd(event.kind())) reported.lives = false;
  // Before a first round there is no record of it.
  if (event.kind() == event_kind::kNodeKicked && event.round() > 0) kicked_[event.job_id()].insert(event.node_id());
  if (IsEnd(event.kind())) kicked_.erase(event.job_id());
}

void Invariants::CheckReported(const Registry& registry, const Effects& effects, SteadyTime now) {
  std::set<std::string> live;
  for (const v1::Job& view : registry.ListJobs(now)) {
    if (!IsEnd(StateOf(view))) live.insert(view.job_id());
    std::optional<bool>& lives = reported_[view.job_id()].lives;
    if (!lives.has_value())
      lives = !IsEnd(StateOf(view));  // unknown until now: restored from the previous server's record
  }
  for (const auto& [job_id, reported] : reported_) {
    EXPECT_EQ(reported.lives.value_or(false), live.contains(job_id)) << job_id << ": its begin or end was not reported";
  }
  for (const Effect& effect : effects) {
    const auto* report = std::get_if<Report>(&effect);
    if (report == nullptr || !IsEnd(report->event.kind())) continue;
    const std::optional<v1::Job> view = registry.GetJob(report->event.job_id(), now);
    if (!view.has_value() || !view->has_verdict()) continue;
    EXPECT_EQ(report->event.exit_code(), view->verdict().exit_code());
    EXPECT_EQ(report->event.kind() == event_kind::kJobFinished, view->verdict().succeeded());
  }
}

void Invariants::CheckJob(const v1::Job& view, const Effects& effects) {
  auto [it, fresh] = seen_.try_emplace(view.job_id());
  Seen& seen = it->second;
  EXPECT_GE(view.restart_count(), 0);
  if (ToDuration(view.settings().restart_window()) == absl::ZeroDuration()) {
    EXPECT_LE(view.restart_count(), view.settings().max_restarts()) << "more restarts than allowed";
  }
  if (view.round() != 0) {
    EXPECT_GE(view.round(), seen.round) << "3: rounds went back";
  }
  // After an end it may be another job of that id, with a budget of its own.
  if (!IsEnd(seen.state)) {
    EXPECT_GE(view.restart_count(), seen.restarts);
  }
  CheckRound(view, effects);
  if (IsEnd(StateOf(view))) {
    ASSERT_TRUE(view.has_verdict());
    EXPECT_EQ(view.verdict().succeeded(), view.verdict().exit_code() == 0);
    EXPECT_EQ(view.verdict().succeeded(), StateOf(view) == JobState::kFinished);
    EXPECT_FALSE(view.verdict().reason().empty());
  }
  if (IsEnd(StateOf(view)) && !IsEnd(seen.state) && !fresh) {
    std::set<std::string> told, gone;
    size_t informed = 0, runners = 0;
    for (const Effect& effect : effects) {
      const auto* close = std::get_if<Close>(&effect);
      if (close != nullptr && close->job_id == view.job_id()) gone.insert(ShownId(close->node_id));
      const Finish* finish = ToldMessage<Finish>(effect);
      if (finish == nullptr || std::get<Tell>(effect).job_id != view.job_id()) continue;
      // A node that is kicked receives a verdict of its own.
      if (finish->verdict().reason() == view.verdict().reason()) ++informed;
      if (finish->runs_end_command()) ++runners;
      EXPECT_TRUE(told.insert(ShownId(std::get<Tell>(effect).node_id)).second) << "told twice";
    }
    EXPECT_EQ(runners, informed == 0 ? 0u : 1u) << "5: one node runs the command for the job's end";
    // A node may be missing from `told` only if this very event took it away: at most the one that left.
    size_t missing = 0;
    for (const std::string& node_id : seen.connected) {
      if (!told.contains(node_id) && !gone.contains(node_id)) ++missing;
    }
    EXPECT_LE(missing, 1u) << "4: somebody was not told the end";
  }
  seen.state = StateOf(view);
  seen.round = std::max(seen.round, view.round());
  seen.restarts = view.restart_count();
  seen.connected.clear();
  if (IsEnd(StateOf(view))) return;
  size_t workers_of_round = 0;
  for (const v1::Node& node : view.nodes()) {
    if (node.connected()) seen.connected.insert(node.node_id());
    if (node.state() != v1::Node::STATE_RUNNING && node.state() != v1::Node::STATE_SUCCEEDED) continue;
    ++workers_of_round;
    EXPECT_GE(node.group_rank(), 0) << "works without a rank";
  }
  if (workers_of_round > 0) {
    EXPECT_TRUE(StateOf(view) == JobState::kRunning || StateOf(view) == JobState::kRecovering)
        << "1: workers of a round that was left: " << Name(StateOf(view));
  }
  EXPECT_EQ(view.node_count(), view.nodes_size());
}

// A new round comes to all of its nodes in one event, with ranks that are a permutation.
void Invariants::CheckRound(const v1::Job& view, const Effects& effects) {
  std::vector<std::tuple<int, int, int>> places;  // group rank, base rank, slots
  std::vector<Assignment> assignments;
  uint64_t newest = 0;
  for (const Effect& effect : effects) {
    const auto* assign = ToldMessage<Assign>(effect);
    if (assign == nullptr || std::get<Tell>(effect).job_id != view.job_id()) continue;
    const Assignment& a = assign->assignment();
    newest = std::max(newest, a.round());
    for (const v1::Node& node : view.nodes()) {
      if (node.node_id() == ShownId(std::get<Tell>(effect).node_id))
        places.push_back({a.group_rank(), a.base_rank(), node.slots()});
    }
    assignments.push_back(a);
  }
  const uint64_t before = seen_[view.job_id()].round;
  if (newest == 0) return;
  EXPECT_GE(newest, before) << "3: an old round was given out";
  if (newest == before || IsEnd(StateOf(view))) return;  // told again, or over within the event
  const bool is_reported = std::any_of(effects.begin(), effects.end(), [&](const Effect& effect) {
    const auto* report = std::get_if<Report>(&effect);
    return report != nullptr && report->event.kind() == event_kind::kRoundAssigned &&
           report->event.job_id() == view.job_id() && report->event.round() == newest &&
           report->event.nodes() == static_cast<int>(assignments.size()) &&
           report->event.workers() == assignments[0].world_size();
  });
  EXPECT_TRUE(is_reported) << "round " << newest << " was given out, but not reported so";
  for (const Assignment& a : assignments) {
    EXPECT_EQ(a.round(), newest) << "two rounds at once";
    EXPECT_EQ(a.group_world_size(), assignments.size());
    EXPECT_EQ(a.master_addr(), assignments[0].master_addr());
    EXPECT_EQ(a.master_port(), assignments[0].master_port());
    EXPECT_EQ(a.restart_count(), view.restart_count());
  }
  for (const v1::Node& node : view.nodes()) {
    EXPECT_NE(node.state(), v1::Node::STATE_STOPPING) << "1: " << node.node_id() << " has workers of an older round";
  }
  EXPECT_GE(static_cast<int>(assignments.size()), view.settings().min_nodes());
  EXPECT_LE(static_cast<int>(assignments.size()), view.settings().max_nodes());
  std::sort(places.begin(), places.end());
  int next_rank = 0, next_base = 0;
  for (const auto& [group_rank, base_rank, slots] : places) {
    EXPECT_EQ(group_rank, next_rank++) << "2: group ranks are no permutation";
    EXPECT_EQ(base_rank, next_base) << "2: ranks are no permutation";
    next_base += slots;
  }
  EXPECT_EQ(next_base, assignments[0].world_size());
}

}  // namespace ddprun::rendezvous
