#include "tests/simulation/simulation.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {

Simulation::Simulation(const Settings& settings, uint64_t seed)
    : settings_(settings),
      timeline_(seed),
      network_(&timeline_, settings.nodes + 1),
      server_host_(settings.hosted ? 0 : settings.nodes),
      launchers_(settings.nodes) {
  records_.longest_life = absl::Hours(1);  // the state directory is not new
  if (!settings_.hosted) StartServer();
  for (int i = 0; i < settings.nodes; ++i) Start(i);
}

Simulation::~Simulation() = default;

bool Simulation::EveryoneEnded() const {
  return std::none_of(launchers_.begin(), launchers_.end(), [](const auto& launcher) { return launcher->alive(); });
}

int Simulation::running() const {
  int running = 0;
  for (const auto& launcher : launchers_) running += static_cast<int>(launcher->workers().worlds().size());
  return running;
}

int Simulation::starts() const {
  int starts = 0;
  for (const auto& launcher : launchers_) starts += launcher->workers().starts();
  for (const auto& launcher : ended_) starts += launcher->workers().starts();
  return starts;
}

int Simulation::reforms() const {
  int reforms = 0;
  for (const auto& launcher : launchers_) reforms += launcher->workers().reforms();
  for (const auto& launcher : ended_) reforms += launcher->workers().reforms();
  return reforms;
}

int Simulation::fenced() const {
  int fenced = 0;
  for (const auto& launcher : launchers_) fenced += launcher->fenced();
  for (const auto& launcher : ended_) fenced += launcher->fenced();
  return fenced;
}

int Simulation::left_out() const {
  int left_out = 0;
  for (const auto& launcher : launchers_) left_out += launcher->left_out();
  for (const auto& launcher : ended_) left_out += launcher->left_out();
  return left_out;
}

// ---- time

void Simulation::Run(absl::Duration time) {
  const SteadyTime end = timeline_.now() + time;
  while (violation_.empty()) {
    SteadyTime next = std::min(end, timeline_.NextEvent());
    if (const auto server = Listener()) next = std::min(next, server->NextDeadline());
    for (const auto& launcher : launchers_) next = std::min(next, launcher->NextDeadline());
    timeline_.Advance(next);
    if (timeline_.now() >= end) break;
    if (!timeline_.RunOne()) {
      if (const auto server = Listener(); server != nullptr && server->NextDeadline() <= timeline_.now()) {
        server->OnDeadline();
      }
    }
    CheckWorlds();  // before a guard that fires at the same instant can hide a violation
    for (const auto& launcher : launchers_) launcher->OnTime();
    CheckWorlds();
  }
}

void Simulation::CheckWorlds() {
  std::set<Workers::World> worlds;
  std::string who;
  for (size_t i = 0; i < launchers_.size(); ++i) {
    for (const Workers::World& world : launchers_[i]->workers().worlds()) {
      worlds.insert(world);
      absl::StrAppend(&who, " node ", i, ": round ", world.first, ";");
    }
  }
  if (!violation_.empty()) return;
  if (worlds.size() > 1) violation_ = absl::StrCat("two worlds at once:", who);
  if (server_ != nullptr && !server_->violation().empty()) violation_ = server_->violation();
  if (violation_.empty()) return;
  timeline_.Note(violation_);
}

// ---- the network

void Simulation::Cut(int node, bool to_server, bool from_server) { network_.Cut(HostOf(node), to_server, from_server); }
void Simulation::Wall(int node) { network_.Wall(HostOf(node)); }
void Simulation::Heal(int node) { network_.Heal(HostOf(node)); }

// ---- the server

void Simulation::StartServer() {
  if (settings_.hosted || Listener() != nullptr) return;
  timeline_.Note("the server starts");
  server_ = std::make_shared<Server>(&timeline_, &network_, server_host_, false,
                                     settings_.keeps_records ? &records_ : nullptr, &rounds_told_);
}

void Simulation::StopServer() {
  if (settings_.hosted || Listener() == nullptr) return;
  timeline_.Note("the server ends");
  server_->Die();
}

void Simulation::FreezeServer() {
  if (settings_.hosted || Listener() == nullptr) return;
  timeline_.Note("the server hangs");
  server_->Freeze();
}

void Simulation::ThawServer() {
  if (settings_.hosted || Listener() == nullptr) return;
  server_->Thaw();
}

std::shared_ptr<Server> Simulation::HostServer(int host) {
  if (!settings_.hosted || host != server_host_ || Listener() != nullptr) return nullptr;
  ++hostings_;
  server_ = std::make_shared<Server>(&timeline_, &network_, host, true, nullptr, &rounds_told_);
  return server_;
}

// ---- launchers

launcher::AgentSettings Simulation::AgentSettingsOf(int node) {
  launcher::AgentSettings settings;
  rendezvous::Join& join = settings.join;
  join.set_job_id("job");
  join.set_node_id(absl::StrCat("n", ++ids_));
  join.set_address(absl::StrCat("host", HostOf(node)));
  join.set_host(absl::StrCat("host", HostOf(node)));
  join.set_slots(settings_.slots);
  join.mutable_settings()->set_min_nodes(settings_.min_nodes);
  join.mutable_settings()->set_max_nodes(settings_.max_nodes);
  join.mutable_settings()->set_max_restarts(1000);
  *join.mutable_settings()->mutable_join_timeout() = FromDuration(absl::Minutes(2));
  *join.mutable_settings()->mutable_last_call() = FromDuration(settings_.last_call);
  *join.mutable_settings()->mutable_node_cooldown() = FromDuration(settings_.node_cooldown);
  *join.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(settings_.heartbeat_timeout);
  settings.server = "server";
  settings.shutdown_timeout = settings_.shutdown_timeout;
  return settings;
}

void Simulation::Start(int node) {
  if (launchers_[node] != nullptr) {
    if (launchers_[node]->alive()) return;
    ended_.push_back(std::move(launchers_[node]));
  }
  Launcher::Settings settings;
  settings.agent = AgentSettingsOf(node);
  settings.node = node;
  settings.host = HostOf(node);
  settings.server_host = server_host_;
  settings.listener = [this] { return Listener(); };
  settings.host_server = [this](int host) { return HostServer(host); };
  settings.new_port = [this] { return ports_ = ports_ < 60'000 ? ports_ + 1 : 1000; };
  const bool reform = settings_.plain == 0 || timeline_.Below(settings_.plain) > 0;
  settings.workers = {settings_.slots, settings_.work, settings_.workers_fail, reform, settings.agent.join.host()};
  launchers_[node] = std::make_unique<Launcher>(std::move(settings), &timeline_, &network_);
  launchers_[node]->Start();
}

void Simulation::Kill(int node) { launchers_[node]->Kill(); }
void Simulation::Stop(int node) { launchers_[node]->Signal(SIGTERM); }
void Simulation::Freeze(int node) { launchers_[node]->Freeze(); }
void Simulation::Thaw(int node) { launchers_[node]->Thaw(); }
void Simulation::FailWorker(int node) { launchers_[node]->FailWorker(); }

}  // namespace ddprun::testing
