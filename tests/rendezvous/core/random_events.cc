#include "tests/rendezvous/core/random_events.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

using Phase = Join::Phase;
constexpr int kLaunchers = 7;

}  // namespace

RandomLaunchers::RandomLaunchers(uint64_t seed) : random_(seed), lies_(seed % 2 == 0) {
  settings_.set_max_nodes(1 + Below(4));
  settings_.set_min_nodes(1 + Below(settings_.max_nodes()));
  settings_.set_max_restarts(Below(4));
  if (Below(3) == 0) *settings_.mutable_restart_window() = FromDuration(absl::Seconds(1 + Below(4)));
  if (Below(3) == 0) *settings_.mutable_restart_backoff() = FromDuration(absl::Milliseconds(Below(3) * 500));
  settings_.set_max_failures_at_step(Below(4));
  *settings_.mutable_node_cooldown() = FromDuration(absl::Milliseconds(Below(3) * 200));
  unlucky_ = OneIn(2);
  if (unlucky_) {
    settings_.set_max_restarts(settings_.max_restarts() + 6);
    settings_.set_max_failures_at_step(0);
  }
  *settings_.mutable_join_timeout() = FromDuration(absl::Seconds(1 + Below(20)));
  *settings_.mutable_last_call() = FromDuration(absl::Seconds(Below(4)));
  *settings_.mutable_heartbeat_timeout() = FromDuration(absl::Seconds(3));
  *settings_.mutable_reconnect_grace() = FromDuration(absl::Milliseconds(Below(3) * 80));
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
    join = NewJoin();
    join.set_job_id(OneIn(5) ? "other" : "job");
    // No two launchers have the same.
    join.set_node_id(absl::StrCat("n", random_() % 150'000 * kLaunchers + (launcher - launchers_.data())));
    join.set_host(absl::StrCat("host", Below(12)));
    join.set_address(join.host());
    join.set_slots(1 + Below(3));
    join.set_role(OneIn(3) ? "reader" : "trainer");
    if (OneIn(3)) join.set_topology(absl::StrCat("sw", Below(12)));
    if (OneIn(4)) join.set_node_rank(Below(settings_.max_nodes() + (lies_ ? 1 : 0)));
    join.mutable_origin()->set_in_process(OneIn(10));
    *join.mutable_settings() = settings_;
    if (lies_ && OneIn(30)) join.mutable_settings()->set_max_restarts(join.settings().max_restarts() + 1);
    join.set_store_port(next_port_++);
    join.set_incarnation(0);
    join.set_session_secret(std::string(32, 's'));
    join.set_can_reform(!OneIn(plain_));
    launcher->left_out = launcher->owes_answer = false;
  }
  join.set_incarnation(join.incarnation() + 1);
  Join said = join;
  if (lies_ && OneIn(join.has_current() ? 5 : 50)) said.set_phase(static_cast<Join::Phase>(1 + Below(4)));
  if (lies_ && OneIn(12) && said.has_current()) said.mutable_current()->set_round(said.current().round() + Below(3));
  if (lies_ && OneIn(20)) said.set_store_port(OneIn(4) ? 0 : next_port_++);
  if (lies_ && OneIn(20) && join.incarnation() > 2) {
    join.set_incarnation(join.incarnation() - 2);
    said.set_incarnation(join.incarnation());
  }
  if (lies_ && said.has_current() && OneIn(10)) {
    const std::vector<Survivor> survivors = SomeSurvivors(join.slots());
    said.mutable_survivors()->Assign(survivors.begin(), survivors.end());
  }
  said.set_in_touch(OneIn(2) && !launcher->left_out);
  said.mutable_origin()->set_server_node_ended(said.origin().in_process() && OneIn(2));
  launcher->joined = launcher->connected = true;
  return Said{said.job_id(), said.node_id(), said.incarnation(), said};
}

Said RandomLaunchers::Say(const Launcher& launcher, LauncherMessage message) {
  return Said{launcher.join.job_id(), launcher.join.node_id(), launcher.join.incarnation(), std::move(message)};
}

Ready RandomLaunchers::ReadyAfter(const Launcher& launcher) const {
  const Join& join = launcher.join;
  return NewReady(join.has_current() ? join.current().round() : 0, join.store_port(), "", join.survivors(),
                  join.can_reform(), launcher.left_out);
}

WorkerFailed RandomLaunchers::Failure(uint64_t round) {
  WorkerFailed failed = NewWorkerFailed(round, NewFailure());
  failed.mutable_failure()->set_exit_code(1 + Below(100));
  failed.mutable_failure()->set_restartable(!OneIn(15));
  failed.mutable_failure()->set_rank(Below(2));
  if (!OneIn(4)) failed.mutable_failure()->set_step(Below(2));
  return failed;
}

std::vector<Survivor> RandomLaunchers::SomeSurvivors(int slots) {
  std::vector<Survivor> survivors;
  for (int32_t rank = 0; rank < slots; ++rank) {
    if (OneIn(4)) continue;
    survivors.push_back(NewSurvivor(rank));
    if (!OneIn(4)) survivors.back().set_committed_step(Below(3));
  }
  return survivors;
}

LauncherMessage RandomLaunchers::Lie(const Launcher& launcher) {
  const uint64_t round = (launcher.join.has_current() ? launcher.join.current().round() : 0) + Below(3) - 1;
  switch (Below(4)) {
    case 0: return Failure(round);
    case 2: return NewHang(static_cast<Hang::Kind>(1 + Below(4)), round, "a rank hangs", {Below(4)});
    case 1: return NewGroupSucceeded(round);
    default:
      return NewReady(round, OneIn(5) ? 0 : next_port_++, "", SomeSurvivors(launcher.join.slots() + (OneIn(5) ? 1 : 0)),
                      OneIn(2));
  }
}

RandomEvent RandomLaunchers::Act(Launcher* launcher) {
  Join& join = launcher->join;
  const uint64_t round = join.has_current() ? join.current().round() : 0;
  if (OneIn(8)) {
    launcher->connected = false;
    return StreamClosed{join.job_id(), join.node_id(), join.incarnation()};
  }
  if (OneIn(40)) {
    launcher->connected = launcher->joined = false;
    const bool has_workers = !OneIn(3);
    if (has_workers) leaving_.push_back(StreamClosed{join.job_id(), join.node_id(), join.incarnation()});
    return Say(*launcher, NewLeave("received SIGTERM", has_workers, OneIn(2) ? 15 : 0));
  }
  if (lies_ && OneIn(15)) return Say(*launcher, Lie(*launcher));
  switch (join.phase()) {
    case Join::PHASE_IDLE:
      if (launcher->owes_answer && !OneIn(3)) {
        launcher->owes_answer = false;
        return Say(*launcher, ReadyAfter(*launcher));
      }
      if (join.survivors().empty() || OneIn(3)) break;
      join.mutable_survivors()->RemoveLast();  // it died
      return Say(*launcher, ReadyAfter(*launcher));
    case Join::PHASE_SUCCEEDED: break;
    case Join::PHASE_RUNNING:
      if (unlucky_ ? OneIn(launcher == &launchers_[0] ? 2 : 60) : OneIn(5)) {
        join.set_phase(Join::PHASE_STOPPING);
        return Say(*launcher, Failure(round));
      }
      if (OneIn(unlucky_ ? 40 : 4)) {
        join.set_phase(Join::PHASE_SUCCEEDED);
        return Say(*launcher, NewGroupSucceeded(round));
      }
      break;
    case Join::PHASE_STOPPING:
      if (OneIn(4)) break;
      join.set_phase(Join::PHASE_IDLE);
      join.set_store_port(next_port_++);
      if (launcher->keep && join.can_reform()) {
        const std::vector<Survivor> survivors = SomeSurvivors(join.slots());
        join.mutable_survivors()->Assign(survivors.begin(), survivors.end());
      }
      return Say(*launcher, ReadyAfter(*launcher));
    default: break;
  }
  return Say(*launcher, Heartbeat{});
}

RandomLaunchers::Launcher* RandomLaunchers::Find(const std::string& job_id, const std::string& node_id,
                                                 uint64_t incarnation) {
  for (Launcher& launcher : launchers_) {
    const Join& join = launcher.join;
    if (!launcher.connected || join.job_id() != job_id || join.node_id() != node_id) continue;
    if (join.incarnation() == incarnation) return &launcher;
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
      *join.mutable_current() = assign->assignment();
      join.set_phase(Join::PHASE_RUNNING);
      join.clear_survivors();
      launcher->keep = true;
      launcher->left_out = launcher->owes_answer = false;
    }
    if (const auto* stop = std::get_if<StopRound>(&tell->message)) {
      join.set_phase(Join::PHASE_STOPPING);
      join.clear_survivors();
      launcher->keep = stop->keep_workers();
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
