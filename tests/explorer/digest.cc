// The digest of a world: a number made from all that decides its future. Times count from now; rounds from the newest
// one, and incarnations from the launcher's own, so that worlds that differ only in the length of their past are equal.
// Left out: texts, events, goodput, progress, hangs, and what the worlds never use (node ranks, commands, cooldowns,
// backoff, time to finish a step).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tests/explorer/world.h"

namespace ddprun::testing {

using launcher::AgentMachine;
using launcher::WorkerSet;
using rendezvous::Assignment;
using rendezvous::Job;
using rendezvous::JobRecord;
using rendezvous::Join;
using rendezvous::Node;
using rendezvous::Reconnector;

class WorldDigest {
 public:
  explicit WorldDigest(const World& world) : w_(world), now_(world.timeline_.now()) {}

  uint64_t Take() {
    const World::Settings& left = w_.left_;
    Add(left.failures, left.cuts, left.crashes, left.deaths, left.leaves, left.repeats);
    Add(w_.members_, w_.started_, w_.latecomers_, w_.finished_, w_.outcome_.has_value(), w_.outcome_.value_or(false));
    Round(w_.accepted_);
    Add(w_.server_->dead());
    if (!w_.server_->dead()) AddServer();
    for (const JobRecord& record : w_.records_.jobs) AddRecord(record);
    Add(w_.records_.jobs.size());
    for (int i = 0; i < w_.settings_.nodes; ++i) AddNode(i);
    return hash_;
  }

 private:
  // ---- values

  void Mix(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9E3779B97F4A7C15;
    hash_ ^= hash_ >> 29;
  }
  template <typename... T>
  void Add(T... values) {
    (Mix(static_cast<uint64_t>(values)), ...);
  }
  // Adds a time in ticks from now; times that lie more than `oldest` behind are equal.
  void Time(SteadyTime time, int oldest = 20) {
    const double ticks = absl::FDivDuration(time - now_, World::kTick);
    Add(static_cast<int>(std::ceil(std::clamp(ticks, -1.0 * oldest, 1000.0))));
  }
  void Round(uint64_t round) { Add(round == 0 ? 0 : w_.newest_ + 2 - round); }
  static int NodeOf(const std::string& node_id) { return node_id.back() - '0'; }
  void Incarnation(const std::string& node_id, uint64_t incarnation) {
    Add(NodeOf(node_id), incarnation > 1);
    Add(incarnation == 0 ? 0 : w_.launchers_[NodeOf(node_id)]->machine_.line_.incarnation_ + 1 - incarnation);
  }
  // True if the node's store is still there. Other ports are as old as their round.
  void Port(const std::string& address, int port) {
    if (address.empty()) return Add(port);
    const AgentMachine& m = w_.launchers_[NodeOf(address)]->machine_;
    Add(NodeOf(address), port == 0, m.store_ && m.store_->port == port);
  }

  // ---- messages

  void AddAssignment(const Assignment& a) {
    Round(a.round());
    Add(a.group_rank(), a.group_world_size(), a.restart_count(), a.keeps_workers(), a.has_state_source());
    Port(a.master_addr(), a.master_port());
  }
  template <typename Survivors>
  void AddSurvivors(const Survivors& survivors, bool can_reform) {
    Add(survivors.size(), can_reform);
  }
  void AddPacket(const std::string& address, const Packet& packet) {
    Add(packet.index());
    if (const auto* up = std::get_if<rendezvous::LauncherMessage>(&packet)) {
      Add(up->index());
      if (const auto* m = std::get_if<Join>(up)) AddJoin(*m);
      if (const auto* m = std::get_if<rendezvous::WorkerFailed>(up)) Round(m->round());
      if (const auto* m = std::get_if<rendezvous::GroupSucceeded>(up)) Round(m->round());
      if (const auto* m = std::get_if<rendezvous::Ready>(up)) {
        Round(m->left_round());
        Port(address, m->store_port());
        AddSurvivors(m->survivors(), m->can_reform());
        Add(m->left_out());
      }
      if (const auto* m = std::get_if<rendezvous::Leave>(up)) Add(m->has_workers(), m->signal());
    } else if (const auto* down = std::get_if<rendezvous::ServerMessage>(&packet)) {
      Add(down->index());
      if (const auto* m = std::get_if<rendezvous::Welcome>(down)) Round(m->missed_round());
      if (const auto* m = std::get_if<rendezvous::Assign>(down)) AddAssignment(m->assignment());
      if (const auto* m = std::get_if<rendezvous::ExcludedFromRound>(down)) Round(m->round());
      if (const auto* m = std::get_if<rendezvous::Finish>(down)) AddVerdict(m->verdict());
      if (const auto* m = std::get_if<rendezvous::StopRound>(down)) {
        Round(m->round());
        Add(m->keep_workers(), m->at_step_end());
      }
    }
  }
  void AddJoin(const Join& join) {
    Incarnation(join.node_id(), join.incarnation());
    Add(join.phase(), join.in_touch(), join.has_current());
    if (join.has_current()) AddAssignment(join.current());
    Port(join.address(), join.store_port());
    AddSurvivors(join.survivors(), join.can_reform());
  }
  void AddVerdict(const rendezvous::Verdict& verdict) {
    const auto cause = rendezvous::FirstCause(verdict);
    Add(verdict.succeeded(), verdict.exit_code(), cause && cause->rank() < 0 && cause->signal() != 0);
  }

  // ---- the server

  void AddServer() {
    const Server& server = *w_.server_;
    const rendezvous::Registry& registry = server.registry_;
    Time(registry.began_, 19);  // workers of unknown nodes are gone
    for (const auto& [unused, live] : registry.live_) AddJob(*live.job);
    for (const auto& [unused, entry] : registry.ended_.jobs_) AddEnded(entry.job);
    Add(registry.live_.size(), registry.ended_.jobs_.size());
    Round(registry.ended_.forgotten_round_);
    for (const auto& [job_id, round] : server.last_round_) Round(round);
    for (const auto& [node_id, said] : server.said_) {
      Incarnation(node_id, said.incarnation);
      Round(said.round);
      Add(said.survivors.size(), said.plain);
    }
  }
  void AddJob(const Job& job) {
    Add(job.state_, job.previous_.restarts, job.previous_.verdict.has_value());
    Round(job.previous_.resume_from);
    Round(job.previous_.last_round);
    for (const auto& node : job.members_.nodes()) AddMember(*node);
    Add(job.members_.size(), job.fence_.has_veterans_, job.budget_.used_);
    Time(job.fence_.unknown_gone_, 1);
    AddFenced(job.fence_.gone_);
    AddRound(job.round_.facts_);
    Round(job.round_.highest_);
    Round(job.round_.last_assigned_);
    Add(job.round_.at_step_end_, job.round_.succeeded_, job.round_.recorded_.size());
    if (job.state_ == rendezvous::JobState::kRecovering) {
      const rendezvous::Recovery& recovery = job.recovery_;
      Time(recovery.until_);
      for (const auto* ranks : {&recovery.reported_, &recovery.gone_, &recovery.causes_expected_}) {
        uint64_t bits = 0;
        for (const int32_t rank : *ranks) bits |= uint64_t{1} << rank;
        Add(bits);
      }
      Add(recovery.anybody_, recovery.leaving_, recovery.failed_, recovery.left_before_);
    }
    uint64_t suspects = 0;
    for (const std::string& node_id : job.held_.suspects_) suspects |= uint64_t{1} << NodeOf(node_id);
    Add(suspects, job.held_.failure_.restartable());
    if (suspects != 0) Add(NodeOf(job.held_node_));
    Time(job.restart_at_, 1);
    if (job.departures_.loss_) Add(job.departures_.loss_->signal());
    Add(job.departures_.loss_.has_value(), job.departures_.may_all_return_, job.departures_.told_to_stop_,
        job.departures_.by_command_);
    for (const std::string& node_id : job.departed_.lost_) Add(NodeOf(node_id));
    Add(job.departed_.lost_.size(), job.departed_.unreported_);
    if (job.state_ == rendezvous::JobState::kWaiting) Time(*job.waiting_since_, 30);
    // While a last call or a stop lasts, the job may come to wait again.
    Add(job.waiting_since_.has_value());
    if (job.state_ == rendezvous::JobState::kStopping) {
      Time(job.stop_deadline_);
      if (job.waiting_since_) Time(*job.waiting_since_, 30);
    }
  }
  void AddMember(const Node& node) {
    Incarnation(node.join.node_id(), node.join.incarnation());
    Port(node.join.address(), node.join.store_port());
    Round(node.round);
    Add(node.state, node.group_rank, node.keeps_workers, node.may_claim_touch, node.told_left_out, node.in_touch);
    AddSurvivors(node.survivors, node.plain);
    Add(node.connected);
    Time(node.connected ? node.quiet_since : node.last_heard);
  }
  void AddFenced(const rendezvous::FencedNodes& fenced) {
    Time(fenced.unknown_gone_, 1);
    std::map<std::string, std::pair<uint64_t, SteadyTime>> nodes;
    for (const auto& [node_id, entry] : fenced.nodes_) nodes[node_id] = {entry.incarnation, entry.gone};
    for (const auto& [node_id, entry] : nodes) {
      Incarnation(node_id, entry.first);
      Time(entry.second, 1);
    }
    Add(nodes.size());
  }
  void AddRound(const rendezvous::RoundRecord& round) {
    Round(round.number());
    Add(round.group_world_size(), round.leave_reason().empty(), round.has_leave_cause());
    Port(round.master_addr(), round.master_port());
    for (const rendezvous::RoundNodeRecord& node : round.nodes()) Add(NodeOf(node.node_id()), node.gone());
    Add(round.nodes_size());
  }
  void AddEnded(const rendezvous::EndedJob& ended) {
    Round(ended.last_round);
    Add(ended.told, ended.gone_are_all, ended.unreported, ended.view.restart_count());
    AddVerdict(ended.view.verdict());
    for (const std::string& node_id : ended.node_ids) Add(NodeOf(node_id));
    Add(ended.node_ids.size());
    AddFenced(ended.gone);
  }
  void AddRecord(const JobRecord& record) {
    Add(record.restarts_charged(), record.has_verdict(), record.has_earlier_verdict());
    Round(record.highest_round());
    Round(record.earlier_round());
    AddRound(record.round());
    for (const rendezvous::FencedNodeRecord& node : record.fenced()) Incarnation(node.node_id(), node.incarnation());
    for (const std::string& node_id : record.others()) Add(NodeOf(node_id));
    for (const std::string& node_id : record.told()) Add(NodeOf(node_id));
    Add(record.fenced_size(), record.others_size(), record.told_size());
    if (record.has_verdict()) AddVerdict(record.verdict());
  }

  // ---- the launchers

  void AddNode(int i) {
    Add(w_.IsCut(i), w_.launchers_[i] != nullptr);
    if (w_.launchers_[i] == nullptr) return;
    const Launcher& launcher = *w_.launchers_[i];
    Add(launcher.alive_);
    if (launcher.alive_) {
      AddMachine(launcher.machine_);
      AddClient(launcher);
      const Workers::Worker& worker = launcher.workers_.workers_[0];
      Add(worker.world.has_value(), worker.phase, worker.ends_soon, worker.suspended, worker.leaves.has_value());
      if (worker.world) Round(worker.world->first);
    }
    int open = 0;
    for (const auto& connection : w_.Open()) {
      if (connection->client_host != i) continue;
      const bool at_server = w_.ServerHas(*connection), at_launcher = w_.StreamOf(*connection) >= 0;
      if (!at_server && !at_launcher) continue;
      ++open;
      Add(at_server, w_.StreamOf(*connection));
      if (at_server) {
        const Server::Stream& stream = w_.server_->streams_.at(connection->id);
        Add(stream.left, stream.key.has_value());
        if (stream.key) {
          const auto joined = w_.server_->joined_.find(*stream.key);
          Add(joined != w_.server_->joined_.end() && joined->second == connection);
          Incarnation(std::get<1>(*stream.key), std::get<2>(*stream.key));
        }
      }
      for (const Direction direction : {kUp, kDown}) {
        for (const Packet& packet : connection->lanes[direction].packets) {
          AddPacket(launcher.settings_.agent.join.address(), packet);
        }
        Add(connection->lanes[direction].packets.size());
      }
    }
    Add(open);
  }
  void AddMachine(const AgentMachine& m) {
    Add(m.state_, m.store_.has_value(), m.left_out_, m.joined_as_, m.reported_.has_value(), m.exit_.has_value());
    if (m.exit_) Add(m.exit_->code, m.exit_->verdict.has_value(), m.exit_->verdict && m.exit_->verdict->succeeded());
    for (const auto* assignment : {&m.current_, &m.unconfirmed_, &m.deferred_}) {
      Add(assignment->has_value());
      if (*assignment) AddAssignment(**assignment);
    }
    const launcher::ServerLine& line = m.line_;
    Add(line.state_, line.incarnation_ > 1, line.ever_up_, line.has_workers_, line.ending_, line.leaving_,
        line.heartbeat_interval_ == absl::InfiniteDuration());
    for (const Timer* timer : {&line.heartbeat_, &line.silent_, &line.give_up_, &m.leave_, &m.suspend_now_,
                               &m.broken_due_, &m.stuck_due_, &m.stopping_.kill_, &m.stopping_.abandon_}) {
      Time(timer->at());
    }
    Time(m.failures_.NextDeadline());
    if (line.silent_.running()) Time(line.heard_);
    Time(line.lease_.since_, 12);
    for (const SteadyTime asked : line.lease_.asked_) Time(asked, 12);
    Add(line.lease_.asked_.size(), line.lease_.refusals_count_, line.lease_.InTouch(now_));
    const WorkerSet::Worker& worker = m.workers_.workers_[0];
    Add(worker.state, worker.end && worker.end->failure, worker.aware, worker.can_suspend, worker.reforming,
        worker.stuck);
    if (worker.state == WorkerSet::State::kSuspending) Add(m.suspend_.at_step_end);
    Round(m.suspend_.round);
  }
  void AddClient(const Launcher& launcher) {
    const Reconnector& client = *launcher.client_;
    Add(client.state_, client.join_first_.joined_, client.was_reset_, client.stream_ != 0, client.silent_.size());
    Add(client.no_answer_, client.probing_, client.probe_under_way_, client.works_, client.gone_);
    Add(client.good_target_.empty(), absl::ToInt64Milliseconds(client.backoff_.next_),
        absl::ToInt64Seconds(client.backoff_.try_));
    Time(client.retry_.at());
    Add(client.refused_.has_value(), client.lost_at_.has_value());
    if (client.refused_) Time(*client.refused_);
    if (client.lost_at_) Time(*client.lost_at_, 30);  // bounds the timeout of attempts
    for (const auto& [unused, tried] : client.tries_) Time(tried.began);
    Add(client.tries_.size());
  }

  const World& w_;
  const SteadyTime now_;
  uint64_t hash_ = 0x243F6A8885A308D3;
};

uint64_t World::Digest() const { return WorldDigest(*this).Take(); }

}  // namespace ddprun::testing
