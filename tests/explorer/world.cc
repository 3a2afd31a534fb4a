#include "tests/explorer/world.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

using Kind = Choice::Kind;

// Returns the packet as a message of type T, one of the alternatives of Messages; nullptr if it is something else.
template <typename Messages, typename T>
const T* Find(const Packet& packet) {
  const auto* message = std::get_if<Messages>(&packet);
  return message != nullptr ? std::get_if<T>(message) : nullptr;
}

template <typename T>
const T* FindUp(const Packet& packet) {
  return Find<rendezvous::LauncherMessage, T>(packet);
}

template <typename T>
const T* FindDown(const Packet& packet) {
  return Find<rendezvous::ServerMessage, T>(packet);
}

bool IsBeat(const Packet& packet) {
  return FindUp<rendezvous::Heartbeat>(packet) != nullptr || FindDown<rendezvous::HeartbeatAck>(packet) != nullptr;
}

// Streams repeat no packet, but a launcher says some things again, and so does the server.
bool MayRepeat(const Packet& packet) {
  const bool is_message = std::holds_alternative<rendezvous::LauncherMessage>(packet) ||
                          std::holds_alternative<rendezvous::ServerMessage>(packet);
  return is_message && FindUp<rendezvous::Join>(packet) == nullptr &&
         FindDown<rendezvous::Welcome>(packet) == nullptr && !IsBeat(packet);
}

}  // namespace

World::World(const Settings& settings)
    : settings_(settings), network_(&timeline_, settings.nodes + 1), launchers_(settings.nodes), left_(settings) {
  records_.longest_life = absl::Hours(1);  // the state directory is not new
  StartServer();
  for (int i = 0; i < settings.nodes - settings.late; ++i) StartLauncher(i);
  Settle();
}

void World::StartServer() {
  timeline_.Note("the server starts");
  server_ = std::make_shared<Server>(&timeline_, &network_, settings_.nodes, false,
                                     settings_.keeps_records ? &records_ : nullptr, &rounds_told_);
  judged_ = 0;
}

void World::StartLauncher(int node) {
  Launcher::Settings settings;
  rendezvous::Join& join = settings.agent.join;
  join.set_job_id("job");
  join.set_node_id(absl::StrCat("n", node));
  join.set_address(absl::StrCat("host", node));
  join.set_host(join.address());
  rendezvous::JobSettings& job = *join.mutable_settings();
  job.set_min_nodes(settings_.min_nodes);
  job.set_max_nodes(settings_.max_nodes);
  job.set_max_restarts(settings_.max_restarts);
  job.set_max_failures_at_step(0);
  *job.mutable_join_timeout() = FromDuration(24 * kTick);
  *job.mutable_last_call() = FromDuration(absl::ZeroDuration());
  *job.mutable_node_cooldown() = FromDuration(absl::ZeroDuration());
  *job.mutable_heartbeat_timeout() = FromDuration(12 * kTick);
  *job.mutable_reconnect_grace() = FromDuration(kTick);
  settings.agent.server = "server";
  settings.agent.shutdown_timeout = 2 * kTick;
  settings.agent.reconnect_timeout = absl::InfiniteDuration();
  settings.node = settings.host = node;
  settings.server_host = settings_.nodes;
  settings.listener = [this] { return server_->dead() ? nullptr : server_; };
  settings.host_server = [](int) { return nullptr; };
  settings.new_port = [this] { return ++ports_; };
  settings.workers = {1, absl::ZeroDuration(), false, (settings_.reform >> node & 1) != 0, join.host()};
  launchers_[node] = std::make_unique<Launcher>(std::move(settings), &timeline_, &network_);
  launchers_[node]->Start();
}

bool World::ended() const {
  return std::none_of(launchers_.begin(), launchers_.end(), [](const auto& l) { return l == nullptr || l->alive(); });
}

World::Connections World::Open() const {
  Connections open;
  for (const std::weak_ptr<Connection>& weak : network_.connections_) {
    if (auto connection = weak.lock()) open.push_back(std::move(connection));
  }
  return open;
}

bool World::ServerHas(const Connection& connection) const {
  return !server_->dead() && server_->streams_.count(connection.id) > 0;
}

bool World::LauncherHas(const Connection& connection) const {
  const auto& streams = launchers_[connection.client_host]->streams_;
  return std::any_of(streams.begin(), streams.end(), [&](const auto& s) { return s.second->id == connection.id; });
}

bool World::IsTimerDue(const Launcher& launcher) const {
  const launcher::AgentMachine& m = launcher.machine_;
  const SteadyTime next =
      std::min({m.line_.silent_.at(), m.line_.give_up_.at(), m.failures_.NextDeadline(),
                m.stopping_.NextDeadline(m.WorkersMayRunUntil()), m.CutOffAt(), m.leave_.at(), m.suspend_now_.at(),
                m.broken_due_.at(), launcher.guard_kills_,
                launcher.client_ == nullptr ? SteadyTime::InfiniteFuture() : launcher.client_->NextDeadline()});
  return next <= timeline_.now();
}

std::vector<Choice> World::Choices() const {
  std::vector<Choice> choices;
  if (!violation_.empty() || ended()) return choices;
  const bool may_crash = left_.crashes > 0 && !server_->dead();
  const Connections connections = Open();
  bool waits = true;  // nothing happens before time passes
  for (const auto& connection : connections) {
    if (IsCut(connection->client_host)) continue;
    for (const Direction direction : {kDown, kUp}) {
      if (connection->lanes[direction].packets.empty()) continue;
      waits = false;
      const Kind kind = direction == kUp ? Kind::kArrivesUp : Kind::kArrivesDown;
      choices.push_back({kind, connection->client_host, connection->id, direction});
      if (may_crash && direction == kUp && settings_.keeps_records) {
        choices.push_back({kind, connection->client_host, connection->id, direction, true});
      }
    }
  }
  const auto is_running = [](const Workers::Worker& worker) {
    return worker.world && worker.phase == Workers::Phase::kRunning;
  };
  for (int i = 0; i < settings_.nodes; ++i) {
    if (launchers_[i] == nullptr || !launchers_[i]->alive()) continue;
    const Workers::Worker& worker = launchers_[i]->workers_.workers_[0];
    if (is_running(worker) && !worker.ends_soon && !worker.leaves) choices.push_back({Kind::kSucceeds, i});
    if (is_running(worker) && (worker.ends_soon || (worker.leaves && !worker.suspended))) {
      choices.push_back({Kind::kObeys, i});
    }
    if (!IsTimerDue(*launchers_[i])) continue;
    waits = false;
    choices.push_back({Kind::kLauncherTimer, i});
  }
  if (!server_->dead() && server_->NextDeadline() <= timeline_.now()) {
    waits = false;
    choices.push_back({Kind::kServerTimer});
    if (may_crash && settings_.keeps_records) choices.push_back({.kind = Kind::kServerTimer, .server_ends = true});
  }
  if (waits) choices.push_back({Kind::kTimePasses});
  if (server_->dead()) choices.push_back({Kind::kServerStarts});
  const bool sent = std::any_of(connections.begin(), connections.end(),
                                [](const auto& connection) { return !connection->lanes[kDown].packets.empty(); });
  if (may_crash) choices.push_back({Kind::kServerEnds});
  if (may_crash && sent) choices.push_back({Kind::kServerEndsAtOnce});
  for (int i = 0; i < settings_.nodes; ++i) {
    if (launchers_[i] == nullptr) {
      choices.push_back({Kind::kStarts, i});
      continue;
    }
    if (IsCut(i)) choices.push_back({Kind::kHeals, i});
    if (!launchers_[i]->alive() || IsSpared(i)) continue;
    if (left_.cuts > 0 && !IsCut(i)) choices.push_back({Kind::kCut, i});
    if (left_.failures > 0 && is_running(launchers_[i]->workers_.workers_[0])) choices.push_back({Kind::kFails, i});
    if (left_.deaths > 0) choices.push_back({Kind::kKilled, i});
    if (left_.leaves > 0 && !launchers_[i]->machine_.exit_) choices.push_back({Kind::kLeaves, i});
  }
  for (const auto& connection : connections) {
    for (const Direction direction : {kUp, kDown}) {
      const auto& packets = connection->lanes[direction].packets;
      if (left_.repeats == 0 || packets.empty() || !MayRepeat(packets.front())) continue;
      if (IsSpared(connection->client_host)) continue;
      choices.push_back({Kind::kRepeated, connection->client_host, connection->id, direction});
    }
  }
  return choices;
}

void World::Take(const Choice& choice) {
  Launcher* const launcher = launchers_[choice.node].get();
  std::shared_ptr<Connection> connection;
  for (auto& open : Open()) {
    if (open->id == choice.connection) connection = open;
  }
  if (choice.server_ends) {
    server_->EndBeforeRecord();
    timeline_.Note("the server ends before its next record");
  }
  switch (choice.kind) {
    case Kind::kArrivesUp:
    case Kind::kArrivesDown: network_.Arrive(connection, choice.direction); break;
    case Kind::kSucceeds: launcher->workers_.Succeed(0); break;
    case Kind::kObeys: launcher->workers_.Obey(0); break;
    case Kind::kLauncherTimer: launcher->OnTime(); break;
    case Kind::kServerTimer: server_->OnDeadline(); break;
    case Kind::kTimePasses: PassTime(); break;
    case Kind::kHeals: network_.Heal(choice.node); break;
    case Kind::kServerStarts: StartServer(); break;
    case Kind::kStarts: StartLauncher(choice.node); break;
    case Kind::kFails:
      --left_.failures;
      timeline_.Note(absl::StrCat("node ", choice.node, ": its worker fails"));
      launcher->FailWorker();
      break;
    case Kind::kCut:
      --left_.cuts;
      network_.Cut(choice.node, true, true);
      break;
    case Kind::kServerEndsAtOnce:
      for (auto& open : Open()) open->lanes[kDown].packets.clear();
      [[fallthrough]];
    case Kind::kServerEnds:
      timeline_.Note("the server ends");
      server_->Die();
      break;
    case Kind::kKilled:
      --left_.deaths;
      launcher->Kill();
      break;
    case Kind::kLeaves:
      --left_.leaves;
      launcher->Signal(SIGTERM);
      break;
    case Kind::kRepeated: {
      --left_.repeats;
      timeline_.Note(absl::StrCat("node ", choice.node, ": a message is repeated"));
      auto& packets = connection->lanes[choice.direction].packets;
      packets.push_front(Packet(packets.front()));
      break;
    }
  }
  const bool may_have_ended =
      choice.server_ends || choice.kind == Kind::kServerEnds || choice.kind == Kind::kServerEndsAtOnce;
  if (may_have_ended && server_->dead()) --left_.crashes;
  server_->ends_before_record_ = false;
  Settle();
  Check();
}

void World::PassTime() {
  const SteadyTime next = timeline_.now() + kTick;
  while (!server_->dead() && server_->NextDeadline() < next) {  // notices to waiting nodes
    timeline_.Advance(server_->NextDeadline());
    server_->OnDeadline();
    Settle();
  }
  timeline_.Advance(next);
  Settle();
  for (int i = 0; i < settings_.nodes; ++i) {
    Launcher* const launcher = launchers_[i].get();
    if (launcher == nullptr) continue;
    // Timers of launchers that reach no server change nothing elsewhere.
    if (!IsCut(i) && !server_->dead() && IsTimerDue(*launcher)) continue;
    for (int n = 0; n < 4 && launcher->NextDeadline() <= next; ++n) {
      launcher->OnTime();
      Settle();
    }
    // The beats of nodes commute.
    for (const auto& connection : Open()) {
      for (const Direction direction : {kUp, kDown}) {
        auto& packets = connection->lanes[direction].packets;
        if (connection->client_host != i || IsCut(i) || packets.size() != 1 || !IsBeat(packets.front())) continue;
        network_.Arrive(connection, direction);
        Settle();
      }
    }
  }
}

void World::Settle() {
  while (timeline_.RunOne()) {
  }
  // Waits before retries are not random.
  for (const auto& launcher : launchers_) {
    if (launcher != nullptr && launcher->client_ != nullptr) launcher->client_->backoff_.random_.seed(1);
  }
  for (const auto& connection : Open()) {
    auto& up = connection->lanes[kUp].packets;
    auto& down = connection->lanes[kDown].packets;
    if (!ServerHas(*connection)) up.clear();
    if (!LauncherHas(*connection)) down.clear();
    std::erase_if(down, [](const Packet& packet) { return FindDown<rendezvous::Waiting>(packet) != nullptr; });
  }
  // Overload (protocol 4.7) is left out.
  server_->registry_.lateness_ = rendezvous::Lateness();
}

void World::CheckAssigned() {
  const auto last = server_->last_round_.find("job");
  const uint64_t round = last == server_->last_round_.end() ? 0 : last->second;
  if (std::exchange(judged_, round) == round || round == 0) return;
  if (settings_.keeps_records && round <= accepted_) {
    violation_ = absl::StrCat("3: round ", round, " is assigned again");
  }
  int members = 0;
  for (const auto& connection : Open()) {
    for (const Packet& packet : connection->lanes[kDown].packets) {
      const auto* assign = FindDown<rendezvous::Assign>(packet);
      if (assign == nullptr || assign->assignment().round() != round) continue;
      members |= 1 << connection->client_host;
      if (settings_.keeps_records && assign->assignment().keeps_workers() &&
          (members_ >> connection->client_host & 1) == 0) {
        violation_ = absl::StrCat("5: the workers of node ", connection->client_host, " missed a round");
      }
    }
  }
  members_ = members;
  newest_ = std::max(newest_, round);
}

void World::Check() {
  CheckAssigned();
  if (!server_->violation().empty()) violation_ = absl::StrCat("2, 5: ", server_->violation());
  finished_ = finished_ || server_->FinishedAt("job") < SteadyTime::InfiniteFuture();
  std::set<Workers::World> worlds;
  for (int i = 0; i < settings_.nodes; ++i) {
    if (launchers_[i] == nullptr) continue;
    const Launcher& launcher = *launchers_[i];
    for (const Workers::World& world : launcher.workers().worlds()) worlds.insert(world);
    if (launcher.machine_.current_) accepted_ = std::max<uint64_t>(accepted_, launcher.machine_.current_->round());
    if (launcher.workers().starts() > 0 && (started_ >> i & 1) == 0) {
      started_ |= 1 << i;
      if (finished_) latecomers_ |= 1 << i;
    }
    if (!launcher.exit() || !launcher.exit()->verdict || !settings_.keeps_records) continue;
    if ((started_ >> i & 1) == 0 || (latecomers_ >> i & 1) != 0) continue;
    const bool succeeded = launcher.exit()->verdict->succeeded();
    if (outcome_.value_or(succeeded) != succeeded) violation_ = "4: launchers receive different verdicts";
    outcome_ = succeeded;
  }
  if (worlds.size() > 1) violation_ = "1: workers of two rounds run at the same time";
  if (!violation_.empty()) timeline_.Note(violation_);
}

}  // namespace ddprun::testing
