#include "tests/simulation/simulation.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::testing {
namespace {

using launcher::AgentMachine;
using rendezvous::Join;
using rendezvous::LauncherMessage;
using rendezvous::ServerMessage;
namespace effect = launcher::effect;

constexpr char kJob[] = "job";
constexpr absl::Duration kMostDelay = absl::Milliseconds(20);     // of a packet, one way
constexpr absl::Duration kMostLateness = absl::Milliseconds(20);  // of a timer on a busy machine
constexpr absl::Duration kMostRetransmit = absl::Milliseconds(1500);
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr size_t kMostHistory = 400;

}  // namespace

struct Simulation::Connection {
  Node* node;
  uint64_t launcher_life;
  uint64_t server_life;
  std::optional<Key> key;         // at the server, once it has joined
  bool closed_by_server = false;  // it has sent its end
  struct Lane {
    std::deque<Packet> packets;  // on their way, the oldest first
    SteadyTime last;             // arrival of the newest
    bool stalled = false;        // the oldest arrived at a cut
  } lanes[2];
};

struct Simulation::Node {
  explicit Node(uint32_t seed) : backoff(seed) {}
  int index = 0;
  bool alive = false;
  bool frozen = false;
  bool cut[2] = {false, false};
  bool walled = false;
  uint64_t life = 0;  // grows with each launcher on this host
  std::unique_ptr<AgentMachine> machine;
  SteadyTime lateness_until;  // its timer is not looked at before
  std::vector<std::function<void()>> backlog;
  std::string id;

  // The client.
  rendezvous::Backoff backoff;
  rendezvous::JoinFirst join_first;
  uint64_t attempt = 0;  // the newest
  std::shared_ptr<Connection> open;
  std::vector<std::shared_ptr<Connection>> silent;
  bool works = false;
  std::optional<SteadyTime> lost_at;

  // The worker (one a node), and what the guard knows.
  std::optional<std::pair<uint64_t, int>> world;  // round and master port
  uint64_t spawn = 0;
  bool ends_soon = false;
  SteadyTime guard_kills = SteadyTime::InfiniteFuture();
  std::vector<AgentMachine::Effects> queue;
};

Simulation::Simulation(const Settings& settings, uint64_t seed) : settings_(settings), random_(seed) {
  registry_ = std::make_unique<rendezvous::Registry>(now_);
  for (int i = 0; i < settings.nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>(static_cast<uint32_t>(seed + i)));
    nodes_.back()->index = i;
    Start(i);
  }
}

Simulation::~Simulation() = default;

bool Simulation::alive(int node) const { return nodes_[node]->alive; }

bool Simulation::EveryoneEnded() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->alive; });
}

std::string Simulation::history() const { return absl::StrJoin(history_, "\n"); }

void Simulation::Note(const std::string& text) {
  history_.push_back(absl::StrCat(absl::FormatDuration(now_.since_start() - absl::Seconds(1000)), " ", text));
  if (history_.size() > kMostHistory) history_.pop_front();
}

void Simulation::At(SteadyTime time, std::function<void()> what) {
  events_.push(Event{std::max(time, now_), ++order_, std::move(what)});
}

absl::Duration Simulation::Random(absl::Duration max) {
  return max * std::uniform_real_distribution<double>(0, 1)(random_);
}

// ---- time

void Simulation::Run(absl::Duration time) {
  const SteadyTime end = now_ + time;
  while (violation_.empty()) {
    SteadyTime next = events_.empty() ? end : std::min(end, events_.top().time);
    if (registry_ != nullptr && !server_frozen_) next = std::min(next, registry_->NextDeadline());
    for (const auto& node : nodes_) {
      if (!node->alive) continue;
      next = std::min(next, node->guard_kills);
      if (!node->frozen) next = std::min(next, std::max(node->machine->NextDeadline(), node->lateness_until));
    }
    now_ = std::max(now_, next);
    if (now_ >= end) break;
    if (!events_.empty() && events_.top().time <= now_) {
      const std::function<void()> what = events_.top().what;
      events_.pop();
      what();
    } else {
      if (registry_ != nullptr && !server_frozen_ && registry_->NextDeadline() <= now_) ServerDeadline();
      for (const auto& node : nodes_) {
        if (node->alive && node->guard_kills <= now_) {
          node->guard_kills = SteadyTime::InfiniteFuture();
          if (node->world) EndWorker(node.get(), Failure(*node, SIGKILL));
        }
        if (!node->alive || node->frozen || node->machine->NextDeadline() > now_) continue;
        if (node->lateness_until > now_) continue;
        Step(node.get(), [&](AgentMachine* m, AgentMachine::Effects* e) { m->OnDeadline(now_, e); });
      }
    }
    CheckWorlds();
  }
}

void Simulation::CheckWorlds() {
  std::set<std::pair<uint64_t, int>> worlds;
  std::string who;
  for (const auto& node : nodes_) {
    if (!node->world) continue;
    worlds.insert(*node->world);
    absl::StrAppend(&who, " node ", node->index, ": round ", node->world->first, ";");
  }
  if (worlds.size() > 1 && violation_.empty()) {
    violation_ = absl::StrCat("two worlds at once:", who);
    Note(violation_);
  }
}

// ---- the network

bool Simulation::IsCut(const Node& node, Direction direction) const { return node.cut[direction]; }

void Simulation::Put(const std::shared_ptr<Connection>& connection, Direction direction, Packet packet) {
  Connection::Lane& lane = connection->lanes[direction];
  lane.packets.push_back(std::move(packet));
  if (lane.stalled) return;
  lane.last = std::max(lane.last, now_ + Random(kMostDelay));
  At(lane.last, [=, this] { Arrive(connection, direction); });
}

void Simulation::Arrive(const std::shared_ptr<Connection>& connection, Direction direction) {
  Connection::Lane& lane = connection->lanes[direction];
  if (lane.stalled || lane.packets.empty()) return;  // it comes with those that are sent again
  if (IsCut(*connection->node, direction)) {
    lane.stalled = true;
    return;
  }
  Packet packet = std::move(lane.packets.front());
  lane.packets.pop_front();
  if (direction == kUp) {
    auto arrive = [=, this] { OnPacketAtServer(connection, packet); };
    server_frozen_ ? server_backlog_.push_back(arrive) : arrive();
  } else {
    OnPacketAtLauncher(connection, std::move(packet));
  }
}

void Simulation::Cut(int index, bool to_server, bool from_server) {
  Note(absl::StrCat("cut node ", index, to_server ? " up" : "", from_server ? " down" : ""));
  nodes_[index]->cut[kUp] |= to_server;
  nodes_[index]->cut[kDown] |= from_server;
}

void Simulation::Wall(int index) {
  Cut(index, true, true);
  nodes_[index]->walled = true;
}

void Simulation::Heal(int index) {
  Node* node = nodes_[index].get();
  if (!node->cut[kUp] && !node->cut[kDown]) return;
  Note(absl::StrCat("heal node ", index));
  node->cut[kUp] = node->cut[kDown] = node->walled = false;
  std::set<std::shared_ptr<Connection>> connections(node->silent.begin(), node->silent.end());
  if (node->open) connections.insert(node->open);
  for (const auto& [unused, connection] : joined_) {
    if (connection->node == node) connections.insert(connection);
  }
  for (const auto& connection : connections) {
    for (const Direction direction : {kUp, kDown}) {
      Connection::Lane& lane = connection->lanes[direction];
      if (!lane.stalled) continue;
      lane.stalled = false;
      lane.last = std::max(lane.last, now_ + Random(kMostRetransmit));
      const size_t packets = lane.packets.size();
      for (size_t i = 0; i < packets; ++i) {
        At(lane.last, [this, connection = connection, direction] { Arrive(connection, direction); });
      }
    }
  }
}

// ---- the server

void Simulation::StopServer() {
  if (registry_ == nullptr) return;
  Note("the server ends");
  registry_ = nullptr;
  server_frozen_ = false;
  server_backlog_.clear();
  for (const auto& [unused, connection] : joined_) Put(connection, kDown, Packet{});
  joined_.clear();
  ++server_life_;
}

void Simulation::StartServer() {
  if (registry_ != nullptr) return;
  Note("the server starts");
  registry_ = std::make_unique<rendezvous::Registry>(now_);
}

void Simulation::FreezeServer() {
  Note("the server hangs");
  server_frozen_ = true;
}

void Simulation::ThawServer() {
  if (!server_frozen_) return;
  Note("the server goes on");
  server_frozen_ = false;
  // Which comes first after a sleep, a timer or a packet, is anybody's guess.
  if (Below(2) == 0 && registry_ != nullptr) ServerDeadline();
  for (const auto& what : std::exchange(server_backlog_, {})) what();
}

void Simulation::ServerDeadline() {
  rendezvous::Effects effects;
  registry_->OnDeadline(now_, &effects);
  CarryOut(std::move(effects));
}

void Simulation::OnPacketAtServer(const std::shared_ptr<Connection>& connection, Packet packet) {
  if (registry_ == nullptr || connection->server_life != server_life_) {
    // The host knows no such connection. What is sent to a launcher that is gone is lost.
    return Put(connection, kDown, Packet{});
  }
  rendezvous::Effects effects;
  if (!packet.to_server) {
    if (!connection->key) return;
    const auto [node_id, incarnation] = *connection->key;
    joined_.erase(*connection->key);
    connection->key.reset();
    registry_->OnStreamClosed(kJob, node_id, incarnation, now_, &effects);
    return CarryOut(std::move(effects));
  }
  if (connection->closed_by_server) return;
  if (const auto* join = std::get_if<Join>(&*packet.to_server)) {
    connection->key = Key(join->node_id, join->incarnation);
    joined_[*connection->key] = connection;
  }
  if (!connection->key) return;
  const auto [node_id, incarnation] = *connection->key;
  registry_->OnMessage(kJob, node_id, incarnation, *packet.to_server, now_, &effects);
  CarryOut(std::move(effects));
  const auto* leave = std::get_if<rendezvous::Leave>(&*packet.to_server);
  if (leave != nullptr && !leave->has_workers) {
    joined_.erase(*connection->key);
    connection->key.reset();
  }
}

void Simulation::CarryOut(rendezvous::Effects effects) {
  for (rendezvous::Effect& effect : effects) {
    if (auto* tell = std::get_if<rendezvous::Tell>(&effect)) CarryOut(std::move(*tell));
    if (const auto* close = std::get_if<rendezvous::Close>(&effect)) CarryOut(*close);
  }
}

void Simulation::CarryOut(rendezvous::Tell tell) {
  const auto it = joined_.find(Key(tell.node_id, tell.incarnation));
  if (it == joined_.end()) return;
  const std::shared_ptr<Connection> connection = it->second;
  if (const auto* m = std::get_if<rendezvous::Assign>(&tell.message)) {
    Note(absl::StrCat("server: round ", m->assignment.round, " to node ", connection->node->index));
  }
  if (const auto* m = std::get_if<rendezvous::StopRound>(&tell.message)) {
    Note(absl::StrCat("server: node ", connection->node->index, " leave round ", m->round, ": ", m->reason));
  }
  if (const auto* m = std::get_if<rendezvous::Finish>(&tell.message)) {
    Note(absl::StrCat("server: node ", connection->node->index, " finish: ", m->verdict.reason));
  }
  Put(connection, kDown, Packet{std::nullopt, std::move(tell.message)});
}

void Simulation::CarryOut(const rendezvous::Close& close) {
  const auto it = joined_.find(Key(close.node_id, close.incarnation));
  if (it == joined_.end()) return;
  const std::shared_ptr<Connection> connection = it->second;
  joined_.erase(it);
  connection->key.reset();
  connection->closed_by_server = true;
  Put(connection, kDown, Packet{});
}

// ---- the client

void Simulation::TryToConnect(Node* node) {
  const uint64_t attempt = ++node->attempt;
  const uint64_t life = node->life;
  const SteadyTime began = now_;
  absl::Duration timeout = kConnectTimeout;
  if (node->lost_at) {
    timeout = std::clamp((now_ - *node->lost_at) / 2, settings_.heartbeat_timeout / 12, kConnectTimeout);
  }
  In(timeout, [=, this] {
    if (node->life == life) OnAttemptOver(node, attempt, std::nullopt);
  });
  In(Random(kMostDelay), [=, this] {
    if (node->walled && node->life == life) return OnAttemptOver(node, attempt, began);
    if (IsCut(*node, kUp)) return;
    auto answer = [=, this] {
      const bool there = registry_ != nullptr;
      In(Random(kMostDelay), [=, this] {
        if (IsCut(*node, kDown) || node->life != life) return;
        there ? OnOpen(node, attempt) : OnAttemptOver(node, attempt, began);
      });
    };
    // A server that hangs: its kernel takes the connection, nobody answers. One that is not there refuses at once.
    server_frozen_ ? server_backlog_.push_back(answer) : answer();
  });
}

void Simulation::OnAttemptOver(Node* node, uint64_t attempt, std::optional<SteadyTime> refused) {
  if (node->attempt != attempt || node->open) return;
  ++node->attempt;
  OnStreamEnd(node, refused);
}

void Simulation::OnOpen(Node* node, uint64_t attempt) {
  if (node->attempt != attempt || node->open || registry_ == nullptr) return;
  auto connection = std::make_shared<Connection>();
  connection->node = node;
  connection->launcher_life = node->life;
  connection->server_life = server_life_;
  node->open = connection;
  node->join_first.OnNewStream();
  Step(node, [&](AgentMachine* m, AgentMachine::Effects* e) { m->OnConnected(now_, e); });
}

void Simulation::OnStreamEnd(Node* node, std::optional<SteadyTime> refused) {
  if (std::exchange(node->works, false)) node->lost_at = now_;
  node->open = nullptr;
  Step(node,
       [=, this](AgentMachine* m, AgentMachine::Effects* e) { m->OnDisconnected("lost", false, refused, now_, e); });
  Reconnect(node);
}

void Simulation::Reconnect(Node* node) {
  const uint64_t life = node->life;
  In(node->backoff.Next(), [=, this] {
    if (node->life == life && node->alive && !node->open) TryToConnect(node);
  });
}

void Simulation::OnPacketAtLauncher(const std::shared_ptr<Connection>& connection, Packet packet) {
  Node* node = connection->node;
  if (connection->launcher_life != node->life || !node->alive || node->open != connection) return;
  if (!packet.to_launcher) return OnStreamEnd(node, std::nullopt);
  node->backoff.Reset();
  if (!std::exchange(node->works, true)) {
    for (const auto& silent : std::exchange(node->silent, {})) Put(silent, kUp, Packet{});
  }
  Step(node, [this, message = *packet.to_launcher](AgentMachine* m, AgentMachine::Effects* e) {
    m->OnServerMessage(message, now_, e);
  });
}

// ---- the launcher

void Simulation::Start(int index) {
  Node* node = nodes_[index].get();
  if (node->alive) return;
  launcher::AgentSettings settings;
  Join& join = settings.join;
  join.job_id = kJob;
  join.node_id = node->id = absl::StrCat("n", ++ids_);
  join.host = join.address = absl::StrCat("host", index);
  join.slots = 1;
  join.settings.min_nodes = settings_.min_nodes;
  join.settings.max_nodes = settings_.max_nodes;
  join.settings.max_restarts = 1000;
  join.settings.join_timeout = absl::Minutes(2);
  join.settings.last_call = settings_.last_call;
  join.settings.heartbeat_timeout = settings_.heartbeat_timeout;
  settings.server = "server";
  settings.shutdown_timeout = settings_.shutdown_timeout;
  Note(absl::StrCat("node ", index, " starts as ", join.node_id));
  ++node->life;
  node->alive = true;
  node->machine = std::make_unique<AgentMachine>(settings, now_);
  node->lost_at.reset();
  node->works = false;
  Step(node, [this](AgentMachine* m, AgentMachine::Effects* e) { m->Start(now_, e); });
  TryToConnect(node);
}

void Simulation::Kill(int index) {
  Node* node = nodes_[index].get();
  if (!node->alive) return;
  Note(absl::StrCat("kill node ", index));
  End(node);
}

// The kernel closes what the process had open, and its workers die with it.
void Simulation::End(Node* node) {
  node->alive = node->frozen = false;
  node->world.reset();
  node->guard_kills = SteadyTime::InfiniteFuture();
  node->backlog.clear();
  if (node->open) node->silent.push_back(node->open);
  for (const auto& connection : std::exchange(node->silent, {})) Put(connection, kUp, Packet{});
  node->open = nullptr;
  ++node->life;
}

void Simulation::Stop(int index) {
  Node* node = nodes_[index].get();
  if (!node->alive) return;
  Note(absl::StrCat("SIGTERM to node ", index));
  Step(node, [this](AgentMachine* m, AgentMachine::Effects* e) { m->OnSignal({SIGTERM, "SIGTERM"}, now_, e); });
}

void Simulation::Freeze(int index) {
  if (!nodes_[index]->alive) return;
  Note(absl::StrCat("node ", index, " hangs"));
  nodes_[index]->frozen = true;
}

void Simulation::Thaw(int index) {
  Node* node = nodes_[index].get();
  if (!node->frozen) return;
  Note(absl::StrCat("node ", index, " goes on"));
  node->frozen = false;
  for (const auto& what : std::exchange(node->backlog, {})) what();
}

template <typename Call>
void Simulation::Step(Node* node, Call call) {
  if (!node->alive) return;
  if (node->frozen) {
    node->backlog.push_back([=, this, life = node->life] {
      if (node->life == life) Step(node, call);
    });
    return;
  }
  AgentMachine::Effects effects;
  call(node->machine.get(), &effects);
  node->guard_kills = node->machine->WorkersMayRunUntil();
  node->lateness_until = now_ + Random(kMostLateness);
  for (const launcher::AgentEffect& effect : effects) {
    if (node->alive) Execute(node, effect);
  }
}

void Simulation::Execute(Node* node, const launcher::AgentEffect& e) {
  if (const auto* send = std::get_if<effect::Send>(&e)) {
    if (node->open && node->join_first.Admits(send->message)) {
      Put(node->open, kUp, Packet{send->message, std::nullopt});
    }
  } else if (std::holds_alternative<effect::ResetConnection>(e)) {
    if (!node->open) return;
    node->silent.push_back(node->open);
    const uint64_t life = node->life;
    node->open = nullptr;
    In(absl::ZeroDuration(), [=, this] {
      if (node->life == life && node->alive && !node->open) OnStreamEnd(node, std::nullopt);
    });
  } else if (std::holds_alternative<effect::OpenStore>(e)) {
    if (++ports_ > 60'000) ports_ = 1000;
    Step(node, [this, port = ports_](AgentMachine* m, AgentMachine::Effects* e) { m->OnStoreOpened(port, now_, e); });
  } else if (const auto* spawn = std::get_if<effect::SpawnWorkers>(&e)) {
    SpawnWorker(node, spawn->assignment);
  } else if (const auto* sent = std::get_if<effect::SignalWorkers>(&e)) {
    if (sent->signal != SIGTERM || !node->world || node->ends_soon) return;
    node->ends_soon = true;
    const int manner = Below(10);
    if (manner < 2) return;  // it ignores SIGTERM
    const uint64_t spawn = node->spawn;
    In(Random(manner < 6 ? absl::Milliseconds(50) : absl::Seconds(6)), [=, this] {
      if (node->world && node->spawn == spawn) EndWorker(node, Failure(*node, SIGTERM));
    });
  } else if (std::holds_alternative<effect::KillWorkers>(e)) {
    if (node->world) EndWorker(node, Failure(*node, SIGKILL));
  } else if (const auto* print = std::get_if<effect::Print>(&e)) {
    Note(absl::StrCat("node ", node->index, ": ", print->text));
    if (absl::StartsWith(print->text, "cut off")) ++fenced_;
  } else if (const auto* exit = std::get_if<effect::Exit>(&e)) {
    Note(absl::StrCat("node ", node->index, " exits with ", exit->code));
    End(node);
  }
}

void Simulation::SpawnWorker(Node* node, const rendezvous::Assignment& assignment) {
  ++starts_;
  node->world = {assignment.round, assignment.master_port};
  node->ends_soon = false;
  const uint64_t spawn = ++node->spawn;
  Note(absl::StrCat("node ", node->index, ": workers of round ", assignment.round));
  const bool fails = settings_.workers_fail && Below(4) == 0;
  const absl::Duration runs = fails ? Random(settings_.work) : settings_.work + Random(absl::Seconds(1));
  In(runs, [=, this] {
    if (!node->world || node->spawn != spawn || node->ends_soon) return;
    EndWorker(node, fails ? std::make_optional(Failure(*node, 0)) : std::nullopt);
  });
}

void Simulation::EndWorker(Node* node, std::optional<rendezvous::WorkerFailure> failure) {
  node->world.reset();
  const uint64_t life = node->life, spawn = node->spawn;
  In(Random(absl::Milliseconds(5)), [=, this] {
    if (node->life != life || node->spawn != spawn) return;
    Step(node, [=, this](AgentMachine* m, AgentMachine::Effects* e) {
      m->OnWorkersEnded({launcher::WorkerEnd{0, failure, std::nullopt}}, now_, e);
    });
  });
}

rendezvous::WorkerFailure Simulation::Failure(const Node& node, int signal) const {
  rendezvous::WorkerFailure failure;
  failure.host = absl::StrCat("host", node.index);
  failure.rank = failure.local_rank = 0;
  failure.signal = signal;
  failure.exit_code = signal == 0 ? 1 : 0;
  return failure;
}

}  // namespace ddprun::testing
