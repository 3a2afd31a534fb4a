#include "tests/simulation/workers.h"

#include <signal.h>

namespace ddprun::testing {

Workers::Workers(Settings settings, Timeline* timeline, Events events)
    : settings_(std::move(settings)), timeline_(timeline), events_(std::move(events)), workers_(settings_.slots) {}

void Workers::Later(int32_t rank, absl::Duration wait, std::function<void(Worker*)> what) {
  const std::weak_ptr<bool> life = life_;
  timeline_->In(wait, [=, this, start = workers_[rank].start, what = std::move(what)] {
    if (!life.expired() && workers_[rank].world && workers_[rank].start == start) what(&workers_[rank]);
  });
}

void Workers::Work(int32_t rank, const rendezvous::Assignment& assignment) {
  Worker& worker = workers_[rank];
  ++worker.start;
  worker.world = World(assignment.round(), assignment.master_port());
  worker.ends_soon = worker.suspended = false;
  worker.leaves.reset();
  worker.step.reset();
  if (assignment.has_state_step()) worker.step = assignment.state_step();
  worker.began = timeline_->now();
  if (timeline_->chosen()) return;
  Later(rank, settings_.work + timeline_->Random(absl::Seconds(1)), [=, this](Worker* worker) {
    if (!worker->ends_soon && !worker->suspended) End(rank, 0, 0);
  });
}

void Workers::Start(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment) {
  const int failing = settings_.fail && timeline_->Below(4) == 0 ? timeline_->Below(settings_.slots) : -1;
  for (const int32_t rank : ranks) {
    Worker& worker = workers_[rank];
    ++worker.start;
    worker.world = World(assignment.round(), assignment.master_port());
    worker.phase = Phase::kAskedFor;
    worker.assignment = assignment;
    worker.fails = rank == failing;
    worker.ends_soon = worker.suspended = false;
    const absl::Duration most = timeline_->Below(8) == 0 ? absl::Seconds(4) : absl::ZeroDuration();
    Later(rank, timeline_->Random(most), [=, this](Worker* worker) {
      worker->phase = Phase::kAtGate;
      events_.on_created(rank);
    });
  }
}

void Workers::OpenGate(int32_t rank) {
  if (!workers_[rank].world || workers_[rank].phase != Phase::kAtGate) return;
  workers_[rank].phase = Phase::kInExec;
  const absl::Duration most = timeline_->Below(4) == 0 ? absl::Seconds(5) : absl::Milliseconds(50);
  Later(rank, timeline_->Random(most), [=, this](Worker* worker) {
    if (worker->phase == Phase::kDoomed) return End(rank, 0, SIGKILL);
    Begin(rank);
  });
}

void Workers::Begin(int32_t rank) {
  ++starts_;
  workers_[rank].phase = Phase::kRunning;
  Work(rank, rendezvous::Assignment(workers_[rank].assignment));
  if (workers_[rank].fails) EndLater(rank, timeline_->Random(settings_.work), 1, 0);
  if (settings_.reform) {
    worker_contract::LinkHello hello;
    hello.local_rank = rank;
    hello.capabilities = {worker_contract::kCanReform};
    Later(rank, timeline_->Random(absl::Milliseconds(200)), [=, this](Worker*) { events_.on_link(rank, hello); });
  }
  events_.on_begun();
}

bool Workers::EndBeforeBegin(int32_t rank, int signal) {
  Worker& worker = workers_[rank];
  switch (worker.phase) {
    case Phase::kRunning: return false;
    case Phase::kAskedFor:  // no process exists yet, and its gate will stay closed
    case Phase::kDoomed: return true;
    case Phase::kAtGate: break;
    case Phase::kInExec:
      if (timeline_->Below(2) == 0) break;
      worker.phase = Phase::kDoomed;  // in an uninterruptible wait
      return true;
  }
  End(rank, 0, signal);
  return true;
}

void Workers::Suspend(const launcher::LocalRanks& ranks, const worker_contract::LinkSuspend& line) {
  for (const int32_t rank : ranks) {
    workers_[rank].leaves = line.round;
    if (timeline_->chosen()) continue;
    const int manner = timeline_->Below(20);
    if (manner == 0) continue;  // the worker hangs
    const absl::Duration most = manner == 1 ? absl::Seconds(6) : absl::Milliseconds(50);
    Later(rank, timeline_->Random(most), [=, this](Worker*) { SuspendNow(rank, line.round); });
  }
}

void Workers::SuspendNow(int32_t rank, uint64_t round) {
  Worker& worker = workers_[rank];
  if (worker.suspended) return;
  const int64_t made = (timeline_->now() - worker.began) / absl::Milliseconds(100);
  // Steps would make every moment another state.
  if (!timeline_->chosen() && (made > 0 || worker.step)) worker.step = worker.step.value_or(0) + made;
  worker.suspended = true;
  events_.on_link(rank, worker_contract::LinkSuspended{round, worker.step});
}

void Workers::Obey(int32_t rank) {
  if (workers_[rank].ends_soon) return End(rank, 0, SIGTERM);
  if (workers_[rank].leaves) SuspendNow(rank, *workers_[rank].leaves);
}

void Workers::Reform(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment) {
  for (const int32_t rank : ranks) {
    if (!workers_[rank].world) continue;
    ++reforms_;
    Work(rank, assignment);
    worker_contract::LinkReFormed formed;
    formed.round = assignment.round();
    formed.step = assignment.state_step();
    if (assignment.has_state_source()) formed.source = assignment.state_source();
    Later(rank, timeline_->Random(absl::Milliseconds(50)), [=, this](Worker* worker) {
      if (!worker->suspended) events_.on_link(rank, formed);
    });
  }
}

void Workers::EndLater(int32_t rank, absl::Duration wait, int exit_code, int signal) {
  Later(rank, wait, [=, this](Worker*) { End(rank, exit_code, signal); });
}

void Workers::Terminate(const launcher::LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    Worker& worker = workers_[rank];
    if (!worker.world || worker.ends_soon || EndBeforeBegin(rank, SIGTERM)) continue;
    worker.ends_soon = true;
    if (timeline_->chosen()) continue;
    const int manner = timeline_->Below(10);
    if (manner < 2) continue;  // the worker ignores SIGTERM
    EndLater(rank, timeline_->Random(manner < 6 ? absl::Milliseconds(50) : absl::Seconds(6)), 0, SIGTERM);
  }
}

void Workers::Kill(const launcher::LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    if (workers_[rank].world && !EndBeforeBegin(rank, SIGKILL)) End(rank, 0, SIGKILL);
  }
}

void Workers::KillAll() {
  for (int32_t rank = 0; rank < settings_.slots; ++rank) {
    if (workers_[rank].world && !EndBeforeBegin(rank, SIGKILL)) End(rank, 0, SIGKILL);
  }
}

void Workers::Fail() {
  for (int32_t rank = 0; rank < settings_.slots; ++rank) {
    if (workers_[rank].world && workers_[rank].phase == Phase::kRunning) return End(rank, 1, 0);
  }
}

void Workers::Vanish() {
  for (Worker& worker : workers_) worker.world.reset();
  life_ = nullptr;
}

void Workers::End(int32_t rank, int exit_code, int signal) {
  workers_[rank].world.reset();
  workers_[rank].suspended = false;
  launcher::WorkerEnd end{rank, std::nullopt, std::nullopt};
  if (exit_code != 0 || signal != 0) {
    end.failure = rendezvous::NewFailure();
    end.failure->set_host(settings_.host);
    end.failure->set_local_rank(rank);
    end.failure->set_rank(rank);
    end.failure->set_exit_code(exit_code);
    end.failure->set_signal(signal);
  }
  const std::weak_ptr<bool> life = life_;
  timeline_->In(timeline_->Random(absl::Milliseconds(5)), [=, this, start = workers_[rank].start] {
    if (!life.expired() && workers_[rank].start == start) events_.on_ended(end);
  });
}

std::vector<Workers::World> Workers::worlds() const {
  std::vector<World> worlds;
  for (const Worker& worker : workers_) {
    if (worker.world && worker.phase == Phase::kRunning && !worker.suspended) worlds.push_back(*worker.world);
  }
  return worlds;
}

}  // namespace ddprun::testing
