#include "tests/explorer/world.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

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

bool IsRunning(const Workers::Worker& worker) { return worker.world && worker.phase == Workers::Phase::kRunning; }

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
                                     settings_.records != 0 ? &records_ : nullptr, &rounds_told_);
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

int World::StreamOf(const Connection& connection) const {
  const Launcher& launcher = *launchers_[connection.client_host];
  for (const auto& [stream, mine] : launcher.streams_) {
    if (mine->id != connection.id) continue;
    const std::vector<uint64_t>& silent = launcher.client_->silent_;
    const auto it = std::find(silent.begin(), silent.end(), stream);
    return it == silent.end() ? 0 : 1 + static_cast<int>(it - silent.begin());
  }
  return -1;
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

bool World::MayFail() const {
  if (settings_.while_suspended == 0) return true;
  return std::any_of(launchers_.begin(), launchers_.end(), [](const auto& launcher) {
    return launcher != nullptr && launcher->alive() && launcher->workers_.workers_[0].suspended;
  });
}

std::vector<World::Event> World::Possible() {
  std::vector<Event> events;
  if (!violation_.empty() || ended()) return events;
  const auto may = [&](Event event) { events.push_back(std::move(event)); };
  // The server may also end between a message and the next record.
  const auto may_to_server = [&](const Event& event) {
    may(event);
    if (left_.crashes == 0 || server_->dead() || settings_.records == 0 || !MayFail()) return;
    may([this, event] {
      server_->EndBeforeRecord();
      timeline_.Note("the server ends before its next record");
      event();
    });
  };
  const Connections connections = Open();
  bool waits = true;  // nothing happens before time passes
  for (const auto& connection : connections) {
    if (IsCut(connection->client_host)) continue;
    for (const Direction direction : {kDown, kUp}) {
      if (connection->lanes[direction].packets.empty()) continue;
      waits = waits && settings_.strays != 0 && StreamOf(*connection) != 0;
      const Event arrives = [=, this] { network_.Arrive(connection, direction); };
      direction == kUp ? may_to_server(arrives) : may(arrives);
    }
  }
  for (int i = 0; i < settings_.nodes; ++i) {
    Launcher* const launcher = launchers_[i].get();
    if (launcher == nullptr) may([=, this] { StartLauncher(i); });
    if (IsCut(i)) may([=, this] { network_.Heal(i); });
    if (launcher == nullptr || !launcher->alive()) continue;
    const Workers::Worker& worker = launcher->workers_.workers_[0];
    if (IsRunning(worker)) {
      if (!worker.ends_soon && !worker.leaves) may([=] { launcher->workers_.Succeed(0); });
      if (worker.ends_soon || (worker.leaves && !worker.suspended)) may([=] { launcher->workers_.Obey(0); });
    }
    if (!IsTimerDue(*launcher)) continue;
    waits = false;
    may([=] { launcher->OnTime(); });
  }
  if (!server_->dead() && server_->NextDeadline() <= timeline_.now()) {
    waits = false;
    may_to_server([this] { server_->OnDeadline(); });
  }
  if (waits) may([this] { PassTime(); });
  if (server_->dead()) may([this] { StartServer(); });
  if (MayFail()) AddFaults(connections, &events);
  return events;
}

void World::AddFaults(const Connections& connections, std::vector<Event>* events) {
  const auto may = [&](int* left, Event event) {
    if (*left == 0) return;
    events->push_back([left, event = std::move(event)] {
      --*left;
      event();
    });
  };
  if (left_.crashes > 0 && !server_->dead()) {
    const Event ends = [this] {
      timeline_.Note("the server ends");
      server_->Die();
    };
    events->push_back(ends);  // launchers receive what it has sent
    const bool sent = std::any_of(connections.begin(), connections.end(),
                                  [](const auto& connection) { return !connection->lanes[kDown].packets.empty(); });
    if (sent) {
      events->push_back([this, ends] {
        for (auto& open : Open()) open->lanes[kDown].packets.clear();
        ends();
      });
    }
  }
  for (int i = 0; i < settings_.nodes; ++i) {
    Launcher* const launcher = launchers_[i].get();
    if (launcher == nullptr || !launcher->alive() || IsSpared(i)) continue;
    if (!IsCut(i)) may(&left_.cuts, [=, this] { network_.Cut(i, true, true); });
    if (IsRunning(launcher->workers_.workers_[0])) {
      may(&left_.failures, [=, this] {
        timeline_.Note(absl::StrCat("node ", i, ": its worker fails"));
        launcher->FailWorker();
      });
    }
    may(&left_.deaths, [=] { launcher->Kill(); });
    if (!launcher->machine_.exit_) may(&left_.leaves, [=] { launcher->Signal(SIGTERM); });
  }
  for (const auto& connection : connections) {
    for (const Direction direction : {kUp, kDown}) {
      auto& packets = connection->lanes[direction].packets;
      if (packets.empty() || !MayRepeat(packets.front()) || IsSpared(connection->client_host)) continue;
      may(&left_.repeats, [=, this] {
        timeline_.Note(absl::StrCat("node ", connection->client_host, ": a message is repeated"));
        auto& packets = connection->lanes[direction].packets;
        packets.push_front(Packet(packets.front()));
      });
    }
  }
}

void World::Take(size_t choice) {
  const bool was_dead = server_->dead();
  Possible()[choice]();
  if (!was_dead && server_->dead()) --left_.crashes;
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
  CheckAssigned();
  // Waits before retries are not random.
  for (const auto& launcher : launchers_) {
    if (launcher != nullptr && launcher->client_ != nullptr) launcher->client_->backoff_.random_.seed(1);
  }
  for (const auto& connection : Open()) {
    auto& up = connection->lanes[kUp].packets;
    auto& down = connection->lanes[kDown].packets;
    if (!ServerHas(*connection)) up.clear();
    if (StreamOf(*connection) < 0) down.clear();
    std::erase_if(down, [](const Packet& packet) { return FindDown<rendezvous::Waiting>(packet) != nullptr; });
  }
  // Overload (protocol 4.7) is left out.
  server_->registry_.lateness_ = rendezvous::Lateness();
}

void World::CheckAssigned() {
  const auto last = server_->last_round_.find("job");
  const uint64_t round = last == server_->last_round_.end() ? 0 : last->second;
  if (std::exchange(judged_, round) == round || round == 0) return;
  if (settings_.records != 0 && round <= accepted_) {
    violation_ = absl::StrCat("3: round ", round, " is assigned again");
  }
  int members = 0;
  for (const auto& connection : Open()) {
    for (const Packet& packet : connection->lanes[kDown].packets) {
      const auto* assign = FindDown<rendezvous::Assign>(packet);
      if (assign == nullptr || assign->assignment().round() != round) continue;
      members |= 1 << connection->client_host;
      if (settings_.records != 0 && assign->assignment().keeps_workers() &&
          (members_ >> connection->client_host & 1) == 0) {
        violation_ = absl::StrCat("5: the workers of node ", connection->client_host, " missed a round");
      }
    }
  }
  members_ = members;
  newest_ = std::max(newest_, round);
}

void World::Check() {
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
    if (!launcher.exit() || !launcher.exit()->verdict || settings_.records == 0) continue;
    if ((started_ >> i & 1) == 0 || (latecomers_ >> i & 1) != 0) continue;
    const bool succeeded = launcher.exit()->verdict->succeeded();
    if (outcome_.value_or(succeeded) != succeeded) violation_ = "4: launchers receive different verdicts";
    outcome_ = succeeded;
  }
  if (worlds.size() > 1) violation_ = "1: workers of two rounds run at the same time";
  if (!violation_.empty()) timeline_.Note(violation_);
}

}  // namespace ddprun::testing
