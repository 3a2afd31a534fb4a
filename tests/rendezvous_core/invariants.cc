#include "tests/rendezvous_core/invariants.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun::rendezvous {

void Invariants::ServerRestarted(bool with_records) {
  if (!with_records) return seen_.clear();
  for (auto& [unused, seen] : seen_) seen.connected.clear();
}

void Invariants::CheckKept(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) {
      JobRecord& kept = kept_[persist->record->job_id];
      EXPECT_GE(persist->record->highest_round, kept.highest_round);
      EXPECT_GE(persist->record->highest_round, persist->record->round.number);
      kept = *persist->record;
      continue;
    }
    const auto* tell = std::get_if<Tell>(&effect);
    if (tell == nullptr) continue;
    if (const auto* assign = std::get_if<Assign>(&tell->message)) {
      EXPECT_EQ(kept_[tell->job_id].round.number, assign->assignment.round);
      EXPECT_EQ(kept_[tell->job_id].restarts_charged, assign->assignment.restart_count);
    }
    if (const auto* finish = std::get_if<Finish>(&tell->message)) {
      EXPECT_EQ(kept_[tell->job_id].verdict, finish->verdict);
    }
  }
}

void Invariants::Check(const Registry& registry, bool keeps_records, const std::string& job_id, const Effects& effects,
                       const std::set<Stream>& open, SteadyTime now) {
  CheckEffects(job_id, effects, open);
  if (keeps_records) CheckKept(effects);
  bool somebody_waits = false;
  for (const JobView& listed : registry.ListJobs(now)) {
    const std::optional<JobView> view = registry.GetJob(listed.job_id, now);
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->state, listed.state);
    CheckJob(*view, effects);
    if (!IsEnd(view->state) && view->state != JobState::kRunning) somebody_waits = true;
  }
  if (somebody_waits) {
    EXPECT_LT(registry.NextDeadline(), SteadyTime::InfiniteFuture()) << "somebody would wait for ever";
  }
}

void Invariants::CheckEffects(const std::string& job_id, const Effects& effects, const std::set<Stream>& open) {
  std::set<Stream> closed, rejected;
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect)) {
      if (!job_id.empty()) {
        EXPECT_EQ(persist->record->job_id, job_id) << "jobs mix";
      }
      continue;
    }
    if (const auto* report = std::get_if<Report>(&effect)) {
      if (!job_id.empty()) {
        EXPECT_EQ(report->event.job_id, job_id) << "jobs mix";
      }
      continue;
    }
    const auto* tell = std::get_if<Tell>(&effect);
    const auto* close = std::get_if<Close>(&effect);
    const Stream to = tell != nullptr ? Stream{tell->job_id, tell->node_id, tell->incarnation}
                                      : Stream{close->job_id, close->node_id, close->incarnation};
    if (!job_id.empty()) {
      EXPECT_EQ(to.job_id, job_id) << "jobs mix";
    }
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

void Invariants::CheckJob(const JobView& view, const Effects& effects) {
  auto [it, fresh] = seen_.try_emplace(view.job_id);
  Seen& seen = it->second;
  EXPECT_GE(view.restart_count, 0);
  if (view.settings.restart_window == absl::ZeroDuration()) {
    EXPECT_LE(view.restart_count, view.settings.max_restarts) << "more restarts than allowed";
  }
  if (view.round != 0) {
    EXPECT_GE(view.round, seen.round) << "rounds went back";
  }
  // After an end it may be another job of that id, with a budget of its own.
  if (!IsEnd(seen.state)) {
    EXPECT_GE(view.restart_count, seen.restarts);
  }
  CheckRound(view, effects);
  if (IsEnd(view.state)) {
    ASSERT_TRUE(view.verdict.has_value());
    EXPECT_EQ(view.verdict->succeeded, view.verdict->exit_code == 0);
    EXPECT_EQ(view.verdict->succeeded, view.state == JobState::kFinished);
    EXPECT_FALSE(view.verdict->reason.empty());
  }
  if (IsEnd(view.state) && !IsEnd(seen.state) && !fresh) {
    std::set<std::string> told, gone;
    for (const Effect& effect : effects) {
      const auto* close = std::get_if<Close>(&effect);
      if (close != nullptr && close->job_id == view.job_id) gone.insert(close->node_id);
      if (ToldMessage<Finish>(effect) == nullptr || std::get<Tell>(effect).job_id != view.job_id) continue;
      EXPECT_TRUE(told.insert(std::get<Tell>(effect).node_id).second) << "told twice";
    }
    // A node may be missing from `told` only if this very event took it away: at most the one that left.
    size_t missing = 0;
    for (const std::string& node_id : seen.connected) {
      if (!told.contains(node_id) && !gone.contains(node_id)) ++missing;
    }
    EXPECT_LE(missing, 1u) << "somebody was not told the end";
  }
  seen.state = view.state;
  seen.round = std::max(seen.round, view.round);
  seen.restarts = view.restart_count;
  seen.connected.clear();
  if (IsEnd(view.state)) return;
  size_t workers_of_round = 0;
  for (const NodeView& node : view.nodes) {
    if (node.connected) seen.connected.insert(node.node_id);
    if (node.state == NodeView::State::kRunning || node.state == NodeView::State::kSucceeded) ++workers_of_round;
    const bool works = node.state == NodeView::State::kRunning || node.state == NodeView::State::kSucceeded;
    if (works) {
      EXPECT_GE(node.group_rank, 0) << "works without a rank";
    }
  }
  if (workers_of_round > 0) {
    EXPECT_TRUE(view.state == JobState::kRunning || view.state == JobState::kRecovering)
        << "workers of a round that was left: " << Name(view.state);
  }
  EXPECT_EQ(view.node_count, view.nodes.size());
}

// A new round comes to all of its nodes in one event, with ranks that are a permutation.
void Invariants::CheckRound(const JobView& view, const Effects& effects) {
  std::vector<std::tuple<int, int, int>> places;  // group rank, base rank, slots
  std::vector<Assignment> assignments;
  uint64_t newest = 0;
  for (const Effect& effect : effects) {
    const auto* assign = ToldMessage<Assign>(effect);
    if (assign == nullptr || std::get<Tell>(effect).job_id != view.job_id) continue;
    const Assignment& a = assign->assignment;
    newest = std::max(newest, a.round);
    for (const NodeView& node : view.nodes) {
      if (node.node_id == std::get<Tell>(effect).node_id) places.push_back({a.group_rank, a.base_rank, node.slots});
    }
    assignments.push_back(a);
  }
  const uint64_t before = seen_[view.job_id].round;
  if (newest == 0) return;
  EXPECT_GE(newest, before) << "an old round was given out";
  if (newest == before || IsEnd(view.state)) return;  // told again, or over within the event
  for (const Assignment& a : assignments) {
    EXPECT_EQ(a.round, newest) << "two rounds at once";
    EXPECT_EQ(a.group_world_size, assignments.size());
    EXPECT_EQ(a.master_addr, assignments[0].master_addr);
    EXPECT_EQ(a.master_port, assignments[0].master_port);
    EXPECT_EQ(a.restart_count, view.restart_count);
  }
  for (const NodeView& node : view.nodes) {
    EXPECT_NE(node.state, NodeView::State::kStopping) << node.node_id << " has workers of an older round";
  }
  EXPECT_GE(static_cast<int>(assignments.size()), view.settings.min_nodes);
  EXPECT_LE(static_cast<int>(assignments.size()), view.settings.max_nodes);
  std::sort(places.begin(), places.end());
  int next_rank = 0, next_base = 0;
  for (const auto& [group_rank, base_rank, slots] : places) {
    EXPECT_EQ(group_rank, next_rank++) << "group ranks are no permutation";
    EXPECT_EQ(base_rank, next_base) << "ranks are no permutation";
    next_base += slots;
  }
  EXPECT_EQ(next_base, assignments[0].world_size);
}

}  // namespace ddprun::rendezvous
