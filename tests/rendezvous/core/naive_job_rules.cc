// The rules that NaiveJob applies after every event, until nothing changes.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/rendezvous/core/naive_job.h"

namespace ddprun::rendezvous {
namespace {

// "node12" -> ("node", 12).
std::pair<std::string, int> Natural(const std::string& name) {
  const size_t digits = name.find_first_of("0123456789");
  if (digits == std::string::npos) return {name, -1};
  return {name.substr(0, digits), std::stoi(name.substr(digits))};
}

}  // namespace

using Phase = Join::Phase;

void NaiveJob::Settle(SteadyTime now) {
  while (!ended() && ApplyOneRule(now)) {
  }
}

bool NaiveJob::Complete(SteadyTime now) {
  int returning = 0, ready = 0;
  for (const Node& node : nodes) {
    if ((node.rank >= 0 && node.busy()) || node.may_have_workers()) ++returning;
    if (!node.busy()) ++ready;
  }
  int present = nodes.size();
  for (const Node* node : SittingOut()) {
    if (node->claims) return false;
    --present;
    if (!node->busy()) --ready;
  }
  if (returning > 0 || ready < std::min(present, settings_.max_nodes)) return false;
  if (!veterans_ && static_cast<int>(nodes.size()) >= settings_.max_nodes) unknown_gone_ = SteadyTime::InfinitePast();
  const auto in_touch = [](const Node& node) { return node.join.in_touch; };
  if (std::count_if(nodes.begin(), nodes.end(), in_touch) >= settings_.max_nodes) {
    unknown_gone_ = SteadyTime::InfinitePast();
  }
  for (const auto& [unused, node] : gone) {
    if (node.workers_gone > now) return false;
  }
  if (not_before_ > now) return false;
  return unknown_gone_ <= now;
}

bool NaiveJob::ApplyOneRule(SteadyTime now) {
  const int n = nodes.size();
  if (n == 0 && state == State::kRecovering && nobody_yet_) return false;
  if (n == 0) return End(State::kFailed, "finish failed 1"), false;
  const bool enough = n >= settings_.min_nodes;
  const std::string too_few = absl::StrCat("finish failed ", loss_code_);
  if (state == State::kRecovering && broken_) StopAll();
  const int untold = static_cast<int>(
      std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.join.in_touch && node.rank < 0; }));
  const bool all_reported = static_cast<int>(reported_.size() + lost_.size()) + untold >= world_nodes_;
  if (state == State::kRecovering && all_reported && untold > 0 && !broken_) {
    has_cause_ = false;
    return broken_ = round_left_ = true;
  }
  const bool owes = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.owes; });
  if (state == State::kRecovering && all_reported && broken_ && owes && !left_before_) return false;
  if (broken_ && (state == State::kRunning || (state == State::kRecovering && all_reported))) {
    if (WaitsInVain()) return End(State::kFailed, too_few), false;
    round_left_ = true;
    StopAll();
    broken_ = charged_ = false;
    state = enough ? State::kStopping : State::kWaiting;
    stop_by_ = std::max(now, not_before_) + settings_.join_timeout + absl::Minutes(10);
    if (!enough && !waiting_since_) waiting_since_ = now;
    return true;
  }
  if (state == State::kRecovering && all_reported) {
    waiting_since_.reset();
    state = State::kRunning;
    return true;
  }
  if (state == State::kRunning && static_cast<int>(succeeded_.size()) == world_nodes_) {
    End(State::kFinished, "finish succeeded 0");
    return false;
  }
  if (state == State::kRunning && succeeded_.empty() && world_nodes_ < settings_.max_nodes) {
    for (const Node& node : nodes) {
      if (node.rank >= 0 || node.phase != Phase::kIdle || SitsOut(node)) continue;
      has_cause_ = false;
      return broken_ = round_left_ = at_step_end_ = true;
    }
  }
  const bool gathering = state == State::kWaiting || state == State::kLastCall;
  if (state == State::kWaiting && WaitsInVain()) return End(State::kFailed, too_few), false;
  if (!enough && (state == State::kStopping || state == State::kLastCall)) {
    state = State::kWaiting;
    if (!waiting_since_) waiting_since_ = now;
    return true;
  }
  if (gathering && (n >= settings_.max_nodes ||
                    (state == State::kWaiting && enough && settings_.last_call == absl::ZeroDuration()))) {
    state = State::kStopping;
    stop_by_ = std::max(now, not_before_) + settings_.join_timeout + absl::Minutes(10);
    return true;
  }
  if (state == State::kWaiting && enough) {
    state = State::kLastCall;
    last_call_end_ = now + settings_.last_call;
    return true;
  }
  if (state == State::kStopping) {
    for (Node& node : nodes) {
      if (node.busy() || !node.claims || node.told_to_sit_out || !SitsOut(node)) continue;
      node.told_to_sit_out = true;
      Say(node, "left_out");
    }
  }
  if (state == State::kStopping && Complete(now)) {
    if (!RemoveQuiet(now) && !StopSurvivors()) AssignAll();
    return true;
  }
  return false;
}

bool NaiveJob::RemoveQuiet(SteadyTime now) {
  const size_t before = nodes.size();
  for (size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i].busy() || !Silent(nodes[i], settings_.heartbeat_timeout, now)) continue;
    Say(nodes[i], "close");
    Gone(i, true);
  }
  return nodes.size() < before;
}

bool NaiveJob::StopSurvivors() {
  const std::vector<Node*> chosen = Chosen();
  const bool mixed = std::any_of(chosen.begin(), chosen.end(), [](const Node* node) { return node->plain; });
  bool any = false;
  for (Node* node : chosen) {
    const bool outdated = node->rank < 0 && !(node->join.in_touch && node->round >= given_out_);
    if (node->survivors.empty() || (!mixed && !outdated)) continue;
    any = true;
    Say(*node, absl::StrCat("stop_round ", node->round));
    Touch(node, now_);
    node->phase = Phase::kStopping;
  }
  return any;
}

std::vector<NaiveJob::Node*> NaiveJob::SittingOut() {
  std::vector<Node*> out;
  for (Node& node : nodes) {
    const auto it = cooldowns_.find(node.join.node_id);
    if (it != cooldowns_.end() && !it->second.over && node.can_sit_out) out.push_back(&node);
  }
  // Whose cooldown ends first is the first that is taken back.
  const auto weight = [this](const Node* node) {
    const Cooldown& cooldown = cooldowns_.at(node->join.node_id);
    return std::make_tuple(cooldown.until, cooldown.order);
  };
  std::sort(out.begin(), out.end(), [&](const Node* a, const Node* b) { return weight(a) > weight(b); });
  out.resize(std::min<size_t>(out.size(), std::max(0, static_cast<int>(nodes.size()) - settings_.min_nodes)));
  return out;
}

bool NaiveJob::SitsOut(const Node& node) {
  const std::vector<Node*> out = SittingOut();
  return std::find(out.begin(), out.end(), &node) != out.end();
}

// Who takes part in the next round.
std::vector<NaiveJob::Node*> NaiveJob::Chosen() {
  std::vector<Node*> chosen;
  for (const int wanted : {0, 1, 2}) {
    for (Node& node : nodes) {
      const int is = node.rank >= 0 ? 0 : node.join.in_touch ? 1 : 2;
      if (is != wanted || node.busy() || SitsOut(node)) continue;
      if (static_cast<int>(chosen.size()) < settings_.max_nodes) chosen.push_back(&node);
    }
  }
  return chosen;
}

// The same by group rank.
std::vector<NaiveJob::Node*> NaiveJob::Ranked() {
  std::vector<Node*> chosen = Chosen();
  const int n = chosen.size();
  const auto weight = [](const Node* node) {
    return std::make_tuple(node->rank < 0, node->rank, Natural(node->join.topology), Natural(node->join.host),
                           node->order);
  };
  std::sort(chosen.begin(), chosen.end(), [&](Node* a, Node* b) { return weight(a) < weight(b); });
  // Everybody without a fixed rank in this order, then those with one are pushed in from the lowest on.
  const bool none_moves = std::all_of(chosen.begin(), chosen.end(), [n](Node* node) { return node->rank < n; });
  std::vector<Node*> order;
  std::map<int, Node*> fixed;
  for (Node* node : chosen) {
    if (node->join.node_rank && *node->join.node_rank < n) fixed[*node->join.node_rank] = node;
  }
  for (Node* node : chosen) {
    if (node->join.node_rank && *node->join.node_rank < n) continue;
    const bool keeps = none_moves && node->rank >= 0 && fixed.emplace(node->rank, node).second;
    if (!keeps) order.push_back(node);
  }
  for (const auto& [rank, node] : fixed) order.insert(order.begin() + rank, node);
  return order;
}

void NaiveJob::AssignAll() {
  const std::vector<Node*> order = Ranked();
  const int n = order.size();
  for (Node* node : SittingOut()) node->rank = -1;
  std::string source;
  int64_t most = -1;
  int rank = 0;
  for (const Node* node : order) {
    for (const Survivor& survivor : node->survivors) {
      if (survivor.committed_step.value_or(-1) <= most) continue;
      most = *survivor.committed_step;
      source = absl::StrCat(" from ", rank + survivor.local_rank, " at ", most);
    }
    rank += node->join.slots;
  }
  round = given_out_ = ++highest;
  world_nodes_ = n;
  server_node_.reset();
  for (int r = 0; r < n; ++r) {
    if (order[r]->join.in_process) server_node_ = r;
  }
  members_.clear();
  restored_ = false;
  if (keeps_records_) {
    for (const Node* node : order) members_.push_back(node->join.node_id);
  }
  master_ = absl::StrCat(order[0]->join.address, ":", order[0]->join.store_port);
  succeeded_.clear();
  suspects_.clear();
  has_cause_ = round_left_ = told_to_stop_ = gone_for_good_ = at_step_end_ = false;
  loss_code_ = 1;
  waiting_since_.reset();
  state = State::kRunning;
  for (int r = 0; r < n; ++r) {
    int base = 0, world = 0, role_base = 0, role_world = 0;
    for (int i = 0; i < n; ++i) {
      const int slots = order[i]->join.slots;
      const bool same_role = order[i]->join.role == order[r]->join.role;
      world += slots;
      if (same_role) role_world += slots;
      if (i < r) base += slots;
      if (i < r && same_role) role_base += slots;
    }
    Node* node = order[r];
    Touch(node, now_);
    node->rank = r;
    node->claims = true;
    node->told_to_sit_out = false;
    node->round = round;
    node->phase = Phase::kRunning;
    node->place = absl::StrCat(round, " ", r, "/", n, " ", base, "/", world, " ", role_base, "/", role_world, " ",
                               master_, node->survivors.empty() ? "" : " keep", source);
    node->survivors.clear();
    SayAssign(*node);
  }
}

}  // namespace ddprun::rendezvous
