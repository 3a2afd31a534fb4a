#include "tests/rendezvous/core/random_events.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

using Phase = Join::Phase;
constexpr int kLaunchers = 7;

}  // namespace

RandomLaunchers::RandomLaunchers(uint64_t seed) : random_(seed), lies_(seed % 2 == 0) {
  settings_.max_nodes = 1 + Below(4);
  settings_.min_nodes = 1 + Below(settings_.max_nodes);
  settings_.max_restarts = Below(4);
  if (Below(3) == 0) settings_.restart_window = absl::Seconds(1 + Below(4));
  if (Below(3) == 0) settings_.restart_backoff = absl::Milliseconds(Below(3) * 500);
  settings_.max_failures_at_step = Below(4);
  settings_.node_cooldown = absl::Milliseconds(Below(3) * 200);
  unlucky_ = OneIn(2);
  if (unlucky_) {
    settings_.max_restarts += 6;
    settings_.max_failures_at_step = 0;
  }
  settings_.join_timeout = absl::Seconds(1 + Below(20));
  settings_.last_call = absl::Seconds(Below(4));
  settings_.heartbeat_timeout = absl::Seconds(3);
  settings_.reconnect_grace = absl::Milliseconds(Below(3) * 80);
  launchers_.resize(kLaunchers);
  plain_ = Below(3) == 0 ? 1 : 8;
}

RandomEvent RandomLaunchers::Next() {
  if (OneIn(100)) {
    for (Launcher& launcher : launchers_) launcher.connected = false;
    leaving_.clear();
    return ServerRestarts{};
  }
  if (!leaving_.empty() && OneIn(8)) {
    const StreamClosed closed = leaving_.back();
    if (OneIn(3)) return Said{closed.job_id, closed.node_id, closed.incarnation, Heartbeat{}};
    leaving_.pop_back();
    return closed;
  }
  if (OneIn(9)) return TimePasses{true, absl::ZeroDuration()};
  if (OneIn(12)) return TimePasses{false, absl::Milliseconds(Below(4) == 0 ? Below(4000) : Below(100))};
  Launcher* launcher = &launchers_[Below(kLaunchers)];
  if (!launcher->connected) return JoinAs(launcher);
  return Act(launcher);
}

RandomEvent RandomLaunchers::JoinAs(Launcher* launcher) {
  Join& join = launcher->join;
  if (!launcher->joined || OneIn(6)) {
    join = Join{};
    join.job_id = OneIn(5) ? "other" : "job";
    // No two launchers have the same.
    join.node_id = absl::StrCat("n", random_() % 150'000 * kLaunchers + (launcher - launchers_.data()));
    join.host = absl::StrCat("host", Below(12));
    join.address = join.host;
    join.slots = 1 + Below(3);
    join.role = OneIn(3) ? "reader" : "trainer";
    if (OneIn(3)) join.topology = absl::StrCat("sw", Below(12));
    if (OneIn(4)) join.node_rank = Below(settings_.max_nodes + (lies_ ? 1 : 0));
    join.in_process = OneIn(10);
    join.settings = settings_;
    if (lies_ && OneIn(30)) ++join.settings.max_restarts;
    join.store_port = next_port_++;
    join.incarnation = 0;
    join.can_reform = !OneIn(plain_);
    launcher->left_out = launcher->owes_answer = false;
  }
  ++join.incarnation;
  Join said = join;
  if (lies_ && OneIn(join.current ? 5 : 50)) said.phase = static_cast<Phase>(Below(4));
  if (lies_ && OneIn(12) && said.current) said.current->round += Below(3);
  if (lies_ && OneIn(20)) said.store_port = OneIn(4) ? 0 : next_port_++;
  if (lies_ && OneIn(20) && join.incarnation > 2) said.incarnation = join.incarnation -= 2;
  if (lies_ && said.current && OneIn(10)) said.survivors = SomeSurvivors(join.slots);
  said.in_touch = OneIn(2) && !launcher->left_out;
  said.server_node_ended = said.in_process && OneIn(2);
  launcher->joined = launcher->connected = true;
  return Said{said.job_id, said.node_id, said.incarnation, said};
}

Said RandomLaunchers::Say(const Launcher& launcher, LauncherMessage message) {
  return Said{launcher.join.job_id, launcher.join.node_id, launcher.join.incarnation, std::move(message)};
}

Ready RandomLaunchers::ReadyAfter(const Launcher& launcher) const {
  const Join& join = launcher.join;
  return Ready{
      join.current ? join.current->round : 0, join.store_port, "", join.survivors, join.can_reform, launcher.left_out};
}

WorkerFailed RandomLaunchers::Failure(uint64_t round) {
  WorkerFailed failed;
  failed.round = round;
  failed.failure.exit_code = 1 + Below(100);
  failed.failure.restartable = !OneIn(15);
  failed.failure.rank = Below(2);
  if (!OneIn(4)) failed.failure.step = Below(2);
  return failed;
}

std::vector<Survivor> RandomLaunchers::SomeSurvivors(int slots) {
  std::vector<Survivor> survivors;
  for (int32_t rank = 0; rank < slots; ++rank) {
    if (OneIn(4)) continue;
    survivors.push_back(Survivor{rank});
    if (!OneIn(4)) survivors.back().committed_step = Below(3);
  }
  return survivors;
}

LauncherMessage RandomLaunchers::Lie(const Launcher& launcher) {
  const uint64_t round = (launcher.join.current ? launcher.join.current->round : 0) + Below(3) - 1;
  switch (Below(3)) {
    case 0: return Failure(round);
    case 1: return GroupSucceeded{round};
    default:
      return Ready{round, OneIn(5) ? 0 : next_port_++, "", SomeSurvivors(launcher.join.slots + (OneIn(5) ? 1 : 0)),
                   OneIn(2)};
  }
}

RandomEvent RandomLaunchers::Act(Launcher* launcher) {
  Join& join = launcher->join;
  const uint64_t round = join.current ? join.current->round : 0;
  if (OneIn(8)) {
    launcher->connected = false;
    return StreamClosed{join.job_id, join.node_id, join.incarnation};
  }
  if (OneIn(40)) {
    launcher->connected = launcher->joined = false;
    const bool has_workers = !OneIn(3);
    if (has_workers) leaving_.push_back(StreamClosed{join.job_id, join.node_id, join.incarnation});
    return Say(*launcher, Leave{"received SIGTERM", has_workers, OneIn(2) ? 15 : 0});
  }
  if (lies_ && OneIn(15)) return Say(*launcher, Lie(*launcher));
  switch (join.phase) {
    case Phase::kIdle:
      if (launcher->owes_answer && !OneIn(3)) {
        launcher->owes_answer = false;
        return Say(*launcher, ReadyAfter(*launcher));
      }
      if (join.survivors.empty() || OneIn(3)) break;
      join.survivors.pop_back();  // it died
      return Say(*launcher, ReadyAfter(*launcher));
    case Phase::kSucceeded: break;
    case Phase::kRunning:
      if (unlucky_ ? OneIn(launcher == &launchers_[0] ? 2 : 60) : OneIn(5)) {
        join.phase = Phase::kStopping;
        return Say(*launcher, Failure(round));
      }
      if (OneIn(unlucky_ ? 40 : 4)) {
        join.phase = Phase::kSucceeded;
        return Say(*launcher, GroupSucceeded{round});
      }
      break;
    case Phase::kStopping:
      if (OneIn(4)) break;
      join.phase = Phase::kIdle;
      join.store_port = next_port_++;
      if (launcher->keep && join.can_reform) join.survivors = SomeSurvivors(join.slots);
      return Say(*launcher, ReadyAfter(*launcher));
  }
  return Say(*launcher, Heartbeat{});
}

RandomLaunchers::Launcher* RandomLaunchers::Find(const std::string& job_id, const std::string& node_id,
                                                 uint64_t incarnation) {
  for (Launcher& launcher : launchers_) {
    const Join& join = launcher.join;
    if (!launcher.connected || join.job_id != job_id || join.node_id != node_id) continue;
    if (join.incarnation == incarnation) return &launcher;
  }
  return nullptr;
}

void RandomLaunchers::Hear(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const auto* close = std::get_if<Close>(&effect)) {
      if (Launcher* launcher = Find(close->job_id, close->node_id, close->incarnation)) launcher->connected = false;
    }
    const auto* tell = std::get_if<Tell>(&effect);
    Launcher* launcher = tell == nullptr ? nullptr : Find(tell->job_id, tell->node_id, tell->incarnation);
    if (launcher == nullptr) continue;
    Join& join = launcher->join;
    if (const auto* assign = std::get_if<Assign>(&tell->message)) {
      join.current = assign->assignment;
      join.phase = Join::Phase::kRunning;
      join.survivors.clear();
      launcher->keep = true;
      launcher->left_out = launcher->owes_answer = false;
    }
    if (const auto* stop = std::get_if<StopRound>(&tell->message)) {
      join.phase = Join::Phase::kStopping;
      join.survivors.clear();
      launcher->keep = stop->keep_workers;
    }
    if (std::holds_alternative<ExcludedFromRound>(tell->message)) launcher->left_out = launcher->owes_answer = true;
    if (std::holds_alternative<Rejected>(tell->message)) launcher->joined = false;
    if (std::holds_alternative<Finish>(tell->message)) {
      if (!OneIn(3)) launcher->joined = false;  // the others lost it on the way
      launcher->connected = false;
    }
  }
}

}  // namespace ddprun::rendezvous
