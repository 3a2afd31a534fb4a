#include "tests/simulation/simulated_cluster.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {

Cluster::Cluster(const Settings& settings, uint64_t seed)
    : settings_(settings),
      seed_(seed),
      timeline_(seed),
      network_(&timeline_, settings.nodes + 1),
      nodes_(settings.nodes),
      faults_end_(timeline_.now() + settings.faults_for) {
  records_.longest_life = absl::Hours(1);  // the state directory is not new
  StartServer();
  DrawJobs();
  PlanFaults();
}

Cluster::~Cluster() = default;

// ---- jobs and processes

void Cluster::DrawJobs() {
  int next = 0;
  while (next < settings_.nodes) {
    Job job;
    job.id = absl::StrCat("job", jobs_.size());
    job.first = next;
    const int most = settings_.nodes - next;
    // One large job, then mostly small ones.
    job.nodes = jobs_.empty() ? std::min(1000, settings_.nodes / 5) : 1 + timeline_.Below(8);
    if (!jobs_.empty() && timeline_.Below(20) == 0) job.nodes = 16 + timeline_.Below(48);
    job.nodes = std::clamp(job.nodes, 1, most);
    const int spares = job.nodes > 4 ? timeline_.Below(2) : 0;
    job.settings.set_max_nodes(job.nodes - spares);
    job.settings.set_min_nodes(timeline_.Below(2) == 0 ? job.settings.max_nodes()
                                                       : 1 + timeline_.Below(job.settings.max_nodes()));
    job.settings.set_max_restarts(timeline_.Below(4) == 0 ? timeline_.Below(3) : 1000);
    *job.settings.mutable_join_timeout() = FromDuration(absl::Minutes(2));
    *job.settings.mutable_last_call() = FromDuration(absl::Seconds(timeline_.Below(3)));
    job.settings.set_max_failures_at_step(0);
    job.work = absl::Seconds(10 + timeline_.Below(40));
    job.workers_fail = job.nodes <= 4;
    for (int i = 0; i < job.nodes; ++i) {
      const int node = next + i;
      nodes_[node].job = static_cast<int>(jobs_.size());
      ++to_start_;
      timeline_.In(timeline_.Random(absl::Seconds(5)), [this, node] {
        --to_start_;
        if (!jobs_[nodes_[node].job].told) Start(node);
      });
    }
    next += job.nodes;
    jobs_.push_back(std::move(job));
  }
}

void Cluster::Start(int node) {
  Node& n = nodes_[node];
  if (n.launcher != nullptr) ended_.push_back(std::move(n.launcher));
  Job& job = jobs_[n.job];
  Launcher::Settings settings;
  rendezvous::Join& join = settings.agent.join;
  join.set_job_id(job.id);
  join.set_node_id(absl::StrCat("n", ++ids_));
  join.set_address(absl::StrCat("host", node));
  join.set_host(absl::StrCat("host", node));
  *join.mutable_settings() = job.settings;
  join.set_slots(1);
  settings.agent.server = "server";
  settings.agent.shutdown_timeout = absl::Seconds(2);  // after the verdict a fence holds for 7/6 H (protocol 4.5)
  settings.node = settings.host = node;
  settings.server_host = settings_.nodes;
  settings.listener = [this] { return server_->dead() ? nullptr : server_; };
  settings.host_server = [](int) { return nullptr; };
  settings.new_port = [this] { return ports_ = ports_ < 60'000 ? ports_ + 1 : 1000; };
  const bool reform = n.job % 3 != 0 || timeline_.Below(job.nodes) > 0;
  settings.workers = {join.slots(), job.work, job.workers_fail, reform, join.host()};
  settings.on_change = [this, node] {
    if (!std::exchange(nodes_[node].changed, true)) changed_.push_back(node);
  };
  ++totals_.launchers;
  ++running_;
  ++job.running;
  n.counted = true;
  n.started = 0;
  n.first_start = SteadyTime::InfiniteFuture();
  n.launcher = std::make_unique<Launcher>(std::move(settings), &timeline_, &network_);
  n.launcher->Start();
}

void Cluster::StartServer() {
  server_ = std::make_shared<Server>(&timeline_, &network_, settings_.nodes, false,
                                     settings_.keeps_records ? &records_ : nullptr, &rounds_);
  servers_.push_back(server_);
}

// ---- faults

void Cluster::PlanFaults() {
  const int faults = static_cast<int>(settings_.nodes * settings_.faults_per_node);
  for (int i = 0; i < faults; ++i) timeline_.In(timeline_.Random(settings_.faults_for), [this] { Fault(); });
  for (int i = 0; i < settings_.server_restarts; ++i) {
    timeline_.In(timeline_.Random(settings_.faults_for), [this] { RestartServer(); });
  }
}

void Cluster::RestartServer() {
  ++totals_.faults;
  if (server_->dead()) return;
  if (timeline_.Below(3) == 0) {
    timeline_.Note("the server hangs");
    server_->Freeze();
    return timeline_.In(timeline_.Random(absl::Seconds(2)), [server = server_] {
      if (!server->dead()) server->Thaw();
    });
  }
  timeline_.Note("the server ends");
  server_->Die();
  timeline_.In(timeline_.Random(absl::Seconds(4)), [this] {
    timeline_.Note("the server starts");
    StartServer();
  });
}

void Cluster::Cut(int node, bool out, bool in, absl::Duration time) {
  network_.Cut(node, out, in);
  timeline_.In(time, [this, node] { network_.Heal(node); });
}

void Cluster::Fault() {
  ++totals_.faults;
  const int node = timeline_.Below(settings_.nodes);
  if (timeline_.Below(200) == 0) {  // a rack
    const absl::Duration time = timeline_.Random(absl::Seconds(8));
    for (int i = node; i < std::min(node + 32, settings_.nodes); ++i) Cut(i, true, true, time);
    return;
  }
  Launcher* launcher = nodes_[node].launcher.get();
  if (!Alive(node)) return;
  switch (timeline_.Below(6)) {
    case 0:
    case 1: {
      launcher->Kill();
      if (timeline_.Below(4) == 0) return;  // not restarted
      ++to_start_;
      return timeline_.In(timeline_.Random(absl::Seconds(10)), [this, node] {
        --to_start_;
        // The controller restarts no launcher of a job that has ended.
        const Job& job = jobs_[nodes_[node].job];
        if (!job.told && job.running > 0) Start(node);
      });
    }
    case 2: return Cut(node, true, true, timeline_.Random(absl::Seconds(8)));
    case 3: {
      const bool out = timeline_.Below(2) == 0;
      return Cut(node, out, !out, timeline_.Random(absl::Seconds(8)));
    }
    case 4: return launcher->FailWorker();
    default:
      launcher->Freeze();
      timeline_.In(timeline_.Random(absl::Seconds(6)), [this, node, launcher] {
        if (nodes_[node].launcher.get() == launcher) launcher->Thaw();
      });
  }
}

// ---- time

SteadyTime Cluster::NextDue() {
  while (!due_.empty() && nodes_[due_.top().second].due.since_start() != due_.top().first) due_.pop();
  return due_.empty() ? SteadyTime::InfiniteFuture() : SteadyTime::FromStart(due_.top().first);
}

void Cluster::RunDue() {
  while (violation_.empty() && NextDue() <= timeline_.now()) {
    const int node = due_.top().second;
    due_.pop();
    Node& n = nodes_[node];
    n.due = SteadyTime::InfiniteFuture();
    if (n.launcher->alive()) n.launcher->OnTime();
    if (!std::exchange(n.changed, true)) changed_.push_back(node);
    Settle();
  }
}

void Cluster::Run() {
  const SteadyTime end = faults_end_ + settings_.patience;
  const SteadyTime began = timeline_.now();
  while (violation_.empty() && (running_ > 0 || to_start_ > 0)) {
    SteadyTime next = std::min(timeline_.NextEvent(), NextDue());
    if (!server_->dead()) next = std::min(next, server_->NextDeadline());
    if (next >= end) {
      std::string who;
      for (size_t i = 0; i < nodes_.size() && who.size() < 200; ++i) {
        if (Alive(static_cast<int>(i))) absl::StrAppend(&who, " node ", i, " of job", nodes_[i].job, ";");
      }
      violation_ = absl::StrCat("4: ", running_, " launchers have not ended:", who);
      break;
    }
    timeline_.Advance(next);
    ++totals_.events;
    if (!timeline_.RunOne() && !server_->dead() && server_->NextDeadline() <= timeline_.now()) server_->OnDeadline();
    Settle();
    RunDue();
    if (violation_.empty() && !server_->violation().empty()) violation_ = absl::StrCat("2: ", server_->violation());
  }
  totals_.time = timeline_.now() - began;
  if (!violation_.empty()) timeline_.Note(violation_);
}

void Cluster::Settle() {
  for (size_t i = 0; i < changed_.size(); ++i) {
    const int index = changed_[i];
    Node& node = nodes_[index];
    node.changed = false;
    if (node.launcher == nullptr) continue;  // under construction
    const Workers& workers = node.launcher->workers();
    const int started = workers.starts() + workers.reforms();
    if (std::exchange(node.started, started) != started) {
      Job& job = jobs_[node.job];
      node.first_start = std::min(node.first_start, timeline_.now());
      // More workers of the world that was checked last violate nothing.
      for (const Workers::World& world : workers.worlds()) {
        if (std::exchange(job.world, world) != world) CheckWorlds(job);
      }
    }
    if (!node.launcher->alive() && std::exchange(node.counted, false)) OnEnded(index);
    const SteadyTime due = node.launcher->NextDeadline();
    if (due == node.due) continue;
    node.due = due;
    if (due < SteadyTime::InfiniteFuture()) due_.push({due.since_start(), index});
  }
  changed_.clear();
}

void Cluster::CheckWorlds(const Job& job) {
  std::set<Workers::World> worlds;
  for (int i = job.first; i < job.first + job.nodes; ++i) {
    if (nodes_[i].launcher == nullptr) continue;
    for (const Workers::World& world : nodes_[i].launcher->workers().worlds()) worlds.insert(world);
  }
  if (worlds.size() <= 1 || !violation_.empty()) return;
  violation_ = absl::StrCat("1: two worlds of ", job.id, " at once:");
  for (const Workers::World& world : worlds) absl::StrAppend(&violation_, " round ", world.first);
}

void Cluster::OnEnded(int node) {
  Job& job = jobs_[nodes_[node].job];
  --running_;
  --job.running;
  const Launcher& launcher = *nodes_[node].launcher;
  totals_.fenced += launcher.fenced();
  if (!launcher.exit() || !launcher.exit()->verdict) return;
  // A launcher whose workers did not start before the verdict may have joined after it and begun the job anew
  // (protocol 5).
  for (const std::shared_ptr<Server>& server : servers_) {
    if (server->FinishedAt(job.id) < nodes_[node].first_start) return;
  }
  const bool succeeded = launcher.exit()->verdict->succeeded();
  if (!job.told) {
    job.told = succeeded;
    ++(succeeded ? totals_.succeeded : totals_.failed);
  } else if (*job.told != succeeded && settings_.keeps_records && violation_.empty()) {
    violation_ = absl::StrCat("4: launchers of ", job.id, " were told different verdicts; node ", node, ": ",
                              launcher.exit()->verdict->reason());
  }
}

Cluster::Totals Cluster::totals() const {
  Totals totals = totals_;
  totals.jobs = static_cast<int>(jobs_.size());
  totals.rounds = rounds_;
  return totals;
}

}  // namespace ddprun::testing
