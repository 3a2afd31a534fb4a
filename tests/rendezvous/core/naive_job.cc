#include "tests/rendezvous/core/naive_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
using Phase = Join::Phase;

NaiveJob::NaiveJob(const Join& first, const Past& past, SteadyTime now)
    : highest(past.floor),
      gone(past.gone),
      settings_(first.settings),
      recover_from_(past.recover_from),
      earlier_round_(past.earlier_round),
      earlier_verdict_(past.earlier_verdict),
      restarts_before_(past.restarts),
      lateness_(past.lateness),
      began_(past.server_began),
      unknown_gone_(past.gone_are_all ? SteadyTime::InfinitePast() : began_ + 1.5 * settings_.heartbeat_timeout),
      keeps_records_(past.keeps_records),
      waiting_since_(now) {
  unreported = veterans_ = past.unreported;
}

void NaiveJob::Restart(SteadyTime now, const Lateness* lateness, const JobRecord& record) {
  lateness_ = lateness;
  began_ = now;
  const SteadyTime fenced_until = now + 1.5 * settings_.heartbeat_timeout;
  unknown_gone_ = names_all() ? SteadyTime::InfinitePast() : fenced_until;
  gone.clear();
  for (const FencedNodeRecord& node : record.fenced) gone[node.node_id] = {node.incarnation, fenced_until};
  unreported = ended() && record.round.number > 0 && record.round.nodes.empty();
  if (ended()) {
    for (const RoundNodeRecord& node : record.round.nodes)
      unreported = unreported || (!node.gone && !Find(node.node_id));
    return;
  }
  restored_ = veterans_ = true;
  lost_.clear();
  for (size_t r = 0; r < record.round.nodes.size(); ++r) {
    if (record.round.nodes[r].gone) lost_.insert(static_cast<int>(r));
  }
  state = State::kRecovering;
  lost = {record.others.begin(), record.others.end()};
  nodes.clear();
  reported_.clear();
  succeeded_.clear();
  suspects_.clear();
  charged_ = told_to_stop_ = gone_for_good_ = false;
  // Time stands still from the last record on: the time of its newest charge tells when that was.
  if (!charges_.empty()) {
    const absl::Duration shift = now - (charges_.back() + record.restarts.last_age.value());
    for (SteadyTime& at : charges_) at = at + shift;
    not_before_ = not_before_ + shift;
  }
  for (const CooldownRecord& node : record.cooldowns) {
    Cooldown& cooldown = cooldowns_.at(node.node_id);
    cooldown.over = !node.remaining;
    cooldown.until = now + node.remaining.value_or(absl::ZeroDuration());
  }
  at_step_end_ = false;
  given_out_ = members_.empty() ? 0 : round;
  loss_code_ = 1;
  nobody_yet_ = true;
  broken_ = left_before_ = round_left_;
  waiting_since_ = now;
  recover_by_ = now + 3 * settings_.heartbeat_timeout + settings_.reconnect_grace;
}

NaiveJob::Node* NaiveJob::Find(const std::string& node_id) {
  for (Node& node : nodes) {
    if (node.join.node_id == node_id) return &node;
  }
  return nullptr;
}

void NaiveJob::Say(const Node& node, const std::string& what) {
  if (node.connected) lines_->push_back(absl::StrCat(node.join.node_id, "#", node.join.incarnation, " ", what));
}

void NaiveJob::SayAssign(const Node& node) {
  Say(node, absl::StrCat("assign ", node.place, server_node_ ? absl::StrCat(" server ", *server_node_) : ""));
}

void NaiveJob::Touch(Node* node, SteadyTime now) {
  node->stamp = now;
  node->allowance = lateness_->Allowance();
}

bool NaiveJob::Silent(const Node& node, absl::Duration limit, SteadyTime now) const {
  if (!node.connected || node.join.in_process || lateness_->excused_until() > now) return false;
  return node.stamp + limit + node.allowance <= now;
}

void NaiveJob::TakePhase(Node* node, const Join& join) {
  node->round = RoundOf(join);
  node->phase = join.phase;
  if (join.phase == Phase::kIdle) {
    node->join.address = join.address;
    node->join.store_port = join.store_port;
    node->survivors = join.survivors;
    node->plain = join.current && !join.can_reform;
  }
  if (!node->works()) return;
  SayStop(*node, node->round == round && round_left_ && has_cause_);
  node->phase = Phase::kStopping;
}

void NaiveJob::SayStop(const Node& node, bool cause) {
  const bool left = node.round == round && round_left_;
  bool keep = left && node.rank >= 0;
  for (const Node& other : nodes) {
    if (other.rank >= 0 && other.plain) keep = false;
  }
  Say(node, absl::StrCat("stop_round ", node.round, cause ? " cause" : "", keep ? " keep" : "",
                         left && at_step_end_ ? " at_step_end" : ""));
}

void NaiveJob::OnJoin(const Join& join, SteadyTime now, Lines* lines) {
  lines_ = lines;
  now_ = now;
  const std::string who = absl::StrCat(join.node_id, "#", join.incarnation);
  Node* old = Find(join.node_id);
  const auto before = gone.find(join.node_id);
  const bool overtaken = before != gone.end() && join.incarnation <= before->second.incarnation;
  if (join.current && RoundOf(join) <= earlier_round_ && RoundOf(join) > 0 && old == nullptr && !overtaken) {
    ToldEnd(join, now);
    lines->push_back(absl::StrCat(who, " ", earlier_verdict_));
    return Settle(now);
  }
  if (!(join.settings == settings_)) return lines->push_back(who + " rejected");
  if (old != nullptr && join.incarnation <= old->join.incarnation) return lines->push_back(who + " close");
  if (old != nullptr) return Rejoin(old, join, now);
  if (overtaken) return lines->push_back(who + " close");
  for (Node& other : nodes) {
    if (!join.node_rank || other.join.node_rank != join.node_rank) continue;
    if (other.connected && !Silent(other, settings_.heartbeat_timeout, now)) return lines->push_back(who + " rejected");
    other.join.node_rank.reset();
  }
  nodes.emplace_back();
  Node* node = &nodes.back();
  node->join = join;
  node->join.in_touch = join.in_touch && join.current;
  node->claims = node->join.in_touch;
  node->can_sit_out = !join.capabilities.empty();
  node->order = ++counter_;
  gone.erase(join.node_id);
  lost.erase(join.node_id);
  if (join.incarnation > 1 || join.current) veterans_ = true;
  Touch(node, now);
  Say(*node, "welcome");
  const bool gathering = state == State::kWaiting || state == State::kLastCall;
  if (gathering && round == 0 && join.current && RoundOf(join) >= recover_from_) {
    state = State::kRecovering;
    LearnRestarts(restarts_before_);
    recover_by_ = now + 3 * settings_.heartbeat_timeout + settings_.reconnect_grace;
  }
  HearOf(RoundOf(join));
  if (state == State::kRecovering) {
    Report(node, join);
  } else {
    TakePhase(node, join);
  }
  Settle(now);
}

void NaiveJob::HearOf(uint64_t reported) {
  if (reported <= highest) return;
  highest = reported;
  unknown_gone_ = began_ + 1.5 * settings_.heartbeat_timeout;
}

void NaiveJob::Rejoin(Node* node, const Join& join, SteadyTime now) {
  Say(*node, "close");
  node->join.incarnation = join.incarnation;
  node->join.in_touch = node->claims = join.in_touch && join.current;
  node->told_to_sit_out = false;
  node->can_sit_out = !join.capabilities.empty();
  node->connected = true;
  Touch(node, now);
  Say(*node, "welcome");
  HearOf(RoundOf(join));
  const bool member = node->rank >= 0;
  if (state == State::kRecovering) {
    if (member) reported_.erase(node->rank);
    succeeded_.erase(join.node_id);
    node->rank = -1;
    node->phase = Phase::kIdle;
    node->owes = false;
    Report(node, join);
  } else if (state != State::kRunning || !member) {
    TakePhase(node, join);
  } else if (RoundOf(join) < round && join.phase == Phase::kIdle && node->phase == Phase::kRunning) {
    const std::string store = absl::StrCat(join.address, ":", join.store_port);
    if (node->rank == 0 && store != master_) {
      TakePhase(node, join);
      broken_ = true;
    } else {
      node->claims = true;
      SayAssign(*node);
    }
  } else if (RoundOf(join) == round && join.phase != Phase::kIdle) {
    // In step: what it says is believed, but a success is not taken back.
    if (node->phase == Phase::kRunning) node->phase = join.phase;
    if (node->phase == Phase::kStopping && join.phase == Phase::kRunning) node->phase = Phase::kRunning;
    if (node->phase == Phase::kSucceeded) succeeded_.insert(join.node_id);
  } else {
    TakePhase(node, join);
    broken_ = true;
  }
  if (suspects_.erase(join.node_id) > 0 && suspects_.empty() && !ended()) {
    Charge(held_node_, held_);
  }
  Settle(now);
}

void NaiveJob::Report(Node* node, const Join& join) {
  const auto member = std::find(members_.begin(), members_.end(), join.node_id);
  const int recorded = restored_ && member != members_.end() ? static_cast<int>(member - members_.begin()) : -1;
  if (RoundOf(join) < round || !join.current) {
    TakePhase(node, join);
    if (recorded < 0 || !reported_.insert(recorded).second) return;
    lost_.erase(recorded);
    nobody_yet_ = false;
    node->rank = recorded;
    if (!broken_) has_cause_ = false;
    broken_ = round_left_ = true;
    return;
  }
  const Assignment& a = *join.current;
  if (a.round > round) {
    has_cause_ = false;
    StopAll();
    for (Node& other : nodes) {
      other.rank = -1;
      other.owes = false;
    }
    round = a.round;
    world_nodes_ = a.group_world_size;
    server_node_ = a.server_node;
    master_ = absl::StrCat(a.master_addr, ":", a.master_port);
    succeeded_.clear();
    reported_.clear();
    lost_.clear();
    members_.clear();
    restored_ = at_step_end_ = false;
    broken_ = charged_ = round_left_ = left_before_ = false;
  }
  if (a.group_world_size != world_nodes_ || reported_.count(a.group_rank) > 0) return TakePhase(node, join);
  if (master_ != absl::StrCat(a.master_addr, ":", a.master_port)) return TakePhase(node, join);
  if (restored_ && !members_.empty() && recorded != a.group_rank) return TakePhase(node, join);
  reported_.insert(a.group_rank);
  lost_.erase(a.group_rank);
  nobody_yet_ = false;
  LearnRestarts(a.restart_count);
  node->rank = a.group_rank;
  node->round = a.round;
  node->place = absl::StrCat(a.round, " ", a.group_rank, "/", a.group_world_size, " ", a.base_rank, "/", a.world_size,
                             " ", a.base_role_rank, "/", a.role_world_size, " ", master_);
  node->phase = join.phase;
  node->owes = join.phase == Phase::kStopping;
  if (node->may_have_workers()) unknown_gone_ = SteadyTime::InfinitePast();
  if (join.phase == Phase::kIdle) {
    TakePhase(node, join);
    if (!broken_) has_cause_ = false;
    broken_ = round_left_ = true;
  }
  if (join.phase == Phase::kSucceeded) succeeded_.insert(join.node_id);
  if (!join.server_node_ended || !a.server_node || reported_.count(*a.server_node) > 0) return;
  lost_.insert(*a.server_node);
  not_before_ = std::max(not_before_, now_ + settings_.reconnect_grace);
  if (!broken_) has_cause_ = false;
  broken_ = round_left_ = true;
}

SteadyTime NaiveJob::WorkersGone(const Node& node) const {
  return node.join.in_process ? SteadyTime::InfiniteFuture() : now_ + settings_.heartbeat_timeout * 7 / 6;
}

void NaiveJob::ToldEnd(const Join& join, SteadyTime now) {
  gone.erase(join.node_id);
  if (join.phase != Phase::kRunning && join.phase != Phase::kStopping) return;
  const SteadyTime until = now + settings_.heartbeat_timeout * 7 / 6;
  gone[join.node_id] = {join.incarnation, join.in_process ? SteadyTime::InfiniteFuture() : until};
}

bool NaiveJob::BeatOfGone(const std::string& node_id, uint64_t incarnation, SteadyTime now) {
  const auto it = gone.find(node_id);
  if (it == gone.end() || it->second.incarnation != incarnation) return false;
  it->second.workers_gone = std::max(it->second.workers_gone, now + settings_.heartbeat_timeout * 7 / 6);
  return true;
}

void NaiveJob::OnMessage(const std::string& node_id, uint64_t incarnation, const LauncherMessage& message,
                         SteadyTime now, Lines* lines) {
  lines_ = lines;
  now_ = now;
  Node* node = Find(node_id);
  if (node == nullptr && std::holds_alternative<Heartbeat>(message) && BeatOfGone(node_id, incarnation, now)) {
    lines->push_back(absl::StrCat(node_id, "#", incarnation, " ack"));
  }
  if (node == nullptr || node->join.incarnation != incarnation || !node->connected) return;
  Touch(node, now);
  const bool in_play = state == State::kRunning || state == State::kRecovering;
  if (std::holds_alternative<Heartbeat>(message)) Say(*node, "ack");
  if (const auto* m = std::get_if<WorkerFailed>(&message)) Failed(node, *m);
  if (const auto* m = std::get_if<GroupSucceeded>(&message)) {
    if (in_play && node->rank >= 0 && m->round == round && node->phase == Phase::kRunning) {
      node->phase = Phase::kSucceeded;
      succeeded_.insert(node_id);
    }
  }
  if (const auto* m = std::get_if<Ready>(&message); m != nullptr && m->left_round == node->round) {
    int least = 0;
    bool valid = m->store_port != 0;
    for (const Survivor& survivor : m->survivors) {
      if (survivor.local_rank < least || survivor.local_rank >= node->join.slots) valid = false;
      least = survivor.local_rank + 1;
    }
    if (!valid) {
      Say(*node, "rejected");
      Gone(node - nodes.data(), false);
      return Settle(now);
    }
    node->join.store_port = m->store_port;
    if (m->left_out) node->join.in_touch = node->claims = false;
    if (node->phase != Phase::kIdle && in_play && node->rank >= 0) {
      if (!broken_) has_cause_ = false;
      broken_ = round_left_ = true;
      at_step_end_ = false;
      succeeded_.erase(node_id);
    }
    node->phase = Phase::kIdle;
    node->owes = false;
    node->survivors = m->survivors;
    node->plain = node->round > 0 && !m->can_reform;
  }
  if (const auto* m = std::get_if<Leave>(&message)) {
    if (m->has_workers && node->may_have_workers()) gone[node_id] = {node->join.incarnation, WorkersGone(*node)};
    Gone(node - nodes.data(), false, m->signal, m->has_workers);
    lost.erase(node_id);
  }
  Settle(now);
}

void NaiveJob::Failed(Node* node, const WorkerFailed& m) {
  const bool in_play = state == State::kRunning || state == State::kRecovering;
  const bool can = node->phase == Phase::kRunning || node->phase == Phase::kStopping;
  if (!in_play || !can || node->rank < 0 || node->round != round || m.round != round) return;
  const std::string finish = absl::StrCat("finish failed ", m.failure.ExitStatus());
  if (state == State::kRecovering && left_before_) return;
  node->owes = false;
  if (!m.failure.restartable) return End(State::kFailed, finish);
  if (charged_) return;
  if (state == State::kRunning) {
    for (const Node& other : nodes) {
      if (other.rank >= 0 && !other.connected && other.phase == Phase::kRunning) suspects_.insert(other.join.node_id);
    }
    held_ = m.failure;
    held_node_ = node->join.node_id;
  }
  if (suspects_.empty() && !Charge(node->join.node_id, m.failure)) return;
  charged_ = state == State::kRecovering;
  broken_ = has_cause_ = round_left_ = true;
  at_step_end_ = false;
}

void NaiveJob::LearnRestarts(int used) {
  const bool in_life = settings_.restart_window == absl::ZeroDuration();
  restarts = std::max(restarts, in_life ? std::min(used, settings_.max_restarts) : used);
}

bool NaiveJob::Charge(const std::string& node_id, const WorkerFailure& failure) {
  failures_.push_back(failure);
  const int most = settings_.max_failures_at_step;
  if (most > 0 && static_cast<int>(failures_.size()) >= most && failure.step) {
    bool same = true;
    for (size_t i = failures_.size() - most; i < failures_.size(); ++i) {
      same = same && failures_[i].step == failure.step && failures_[i].rank == failure.rank;
    }
    if (same) return End(State::kFailed, "finish failed 79"), false;
  }
  int charged = restarts;
  if (settings_.restart_window > absl::ZeroDuration()) {
    charged = std::count_if(charges_.begin(), charges_.end(),
                            [&](SteadyTime at) { return at + settings_.restart_window > now_; });
  }
  if (charged >= settings_.max_restarts) {
    return End(State::kFailed, absl::StrCat("finish failed ", failure.ExitStatus())), false;
  }
  ++restarts;
  charges_.push_back(now_);
  int series = 1;
  for (size_t i = charges_.size(); --i > 0 && charges_[i] - charges_[i - 1] <= absl::Minutes(10);) ++series;
  not_before_ = now_ + std::min(settings_.restart_backoff * (int64_t{1} << std::min(series - 1, 30)), absl::Minutes(5));
  failing_nodes_.push_back(node_id);
  const size_t n = failing_nodes_.size();
  if (settings_.node_cooldown == absl::ZeroDuration() || n < 3) return true;
  if (failing_nodes_[n - 2] != node_id || failing_nodes_[n - 3] != node_id) return true;
  Cooldown& cooldown = cooldowns_[node_id];
  if (cooldown.times == 0) cooldown.order = ++counter_;
  const absl::Duration length = settings_.node_cooldown * (int64_t{1} << std::min(cooldown.times++, 30));
  cooldown.until = now_ + std::min(length, absl::Minutes(10));
  cooldown.over = false;
  return true;
}

void NaiveJob::OnStreamClosed(const std::string& node_id, uint64_t incarnation, SteadyTime now, Lines* lines) {
  lines_ = lines;
  now_ = now;
  if (const auto it = gone.find(node_id); it != gone.end() && it->second.incarnation <= incarnation) {
    gone.erase(it);
    if (state == State::kStopping) Settle(now);
  }
  Node* node = Find(node_id);
  if (node == nullptr || node->join.incarnation != incarnation || !node->connected) return;
  node->connected = false;
  Touch(node, now);
}

absl::Duration NaiveJob::WaitLimit() const {
  if (round == 0 || settings_.min_nodes != settings_.max_nodes) return settings_.join_timeout;
  if (told_to_stop_) return absl::ZeroDuration();
  if (settings_.max_restarts != 0) return settings_.join_timeout;
  return gone_for_good_ ? absl::ZeroDuration() : std::min(settings_.join_timeout, absl::Seconds(30));
}

void NaiveJob::Gone(size_t index, bool may_return, int signal, bool at_step_end) {
  const Node node = nodes[index];
  nodes.erase(nodes.begin() + index);
  lost.insert(node.join.node_id);
  if (suspects_.count(node.join.node_id) > 0) {
    suspects_.clear();
    has_cause_ = false;
  }
  if (node.rank >= 0) loss_code_ = signal == 0 ? 1 : 128 + signal;
  if (node.rank < 0 || node.phase == Phase::kSucceeded) return;
  if (!may_return) gone_for_good_ = true;
  if (signal != 0) told_to_stop_ = true;
  if (state == State::kRunning) {
    broken_ = round_left_ = true;
    has_cause_ = false;
    at_step_end_ = at_step_end;
  }
  if (state == State::kRecovering) reported_.erase(node.rank);
}

void NaiveJob::StopAll() {
  for (Node& node : nodes) {
    if (!node.works()) continue;
    SayStop(node, has_cause_);
    if (node.phase == Phase::kSucceeded && node.connected) Touch(&node, now_);
    node.phase = Phase::kStopping;
  }
}

void NaiveJob::OnTime(SteadyTime now, Lines* lines) {
  lines_ = lines;
  now_ = now;
  for (auto& [unused, cooldown] : cooldowns_) cooldown.over = cooldown.over || cooldown.until <= now;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    absl::Duration limit = settings_.heartbeat_timeout;
    if (!node.may_have_workers()) limit = std::max(limit, std::min(10 * limit, absl::Seconds(30)));
    if (node.connected ? !Silent(node, limit, now) : node.stamp + settings_.reconnect_grace > now) continue;
    Say(node, "close");
    const bool silent = node.connected;
    if (silent && node.may_have_workers()) {
      gone[node.join.node_id] = {node.join.incarnation, node.stamp + settings_.heartbeat_timeout * 7 / 6};
    }
    Gone(i, silent);
  }
  Settle(now);
  const auto over = [&](SteadyTime at) { return at <= now; };
  if (state == State::kWaiting && over(*waiting_since_ + WaitLimit())) {
    End(State::kFailed, "finish failed 1");
  } else if (state == State::kLastCall && over(last_call_end_)) {
    state = State::kStopping;
    stop_by_ = std::max(now, not_before_) + settings_.join_timeout + absl::Minutes(10);
  } else if (state == State::kStopping && over(stop_by_)) {
    End(State::kFailed, "finish failed 1");
  } else if (state == State::kRecovering && over(recover_by_)) {
    if (nodes.empty()) return End(State::kFailed, "finish failed 1");
    if (!broken_ && WaitsInVain()) return End(State::kFailed, absl::StrCat("finish failed ", loss_code_));
    if (!broken_) has_cause_ = false;
    broken_ = round_left_ = true;
    lost_.clear();
    for (int r = 0; r < world_nodes_; ++r) reported_.insert(r);
    for (Node& node : nodes) node.owes = false;
  }
  Settle(now);
}

void NaiveJob::End(State to, const std::string& line) {
  const int reported = static_cast<int>(reported_.size() + lost_.size());
  if (state == State::kRecovering && reported < world_nodes_) unreported = true;
  for (const Node& node : nodes) {
    Say(node, line);
    if (!node.may_have_workers()) continue;
    gone[node.join.node_id] = {node.join.incarnation,
                               node.connected ? WorkersGone(node) : node.stamp + settings_.reconnect_grace};
  }
  verdict = line;
  state = to;
}

}  // namespace ddprun::rendezvous
