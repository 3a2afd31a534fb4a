#include "tests/simulation/workers.h"

#include <signal.h>

namespace ddprun::testing {

Workers::Workers(Settings settings, Timeline* timeline, OnEnded on_ended)
    : settings_(std::move(settings)), timeline_(timeline), on_ended_(std::move(on_ended)), workers_(settings_.slots) {}

void Workers::Start(const launcher::LocalRanks& ranks, const rendezvous::Assignment& assignment) {
  const int failing = settings_.fail && timeline_->Below(4) == 0 ? timeline_->Below(settings_.slots) : -1;
  for (const int32_t rank : ranks) {
    Worker& worker = workers_[rank];
    ++starts_;
    worker.world = World(assignment.round, assignment.master_port);
    worker.ends_soon = false;
    ++worker.start;
    if (rank == failing) {
      EndLater(rank, timeline_->Random(settings_.work), 1, 0);
    } else {
      const std::weak_ptr<bool> life = life_;
      timeline_->In(settings_.work + timeline_->Random(absl::Seconds(1)), [=, this, start = worker.start] {
        if (life.expired()) return;
        Worker& worker = workers_[rank];
        if (worker.world && worker.start == start && !worker.ends_soon) End(rank, 0, 0);
      });
    }
  }
}

void Workers::EndLater(int32_t rank, absl::Duration wait, int exit_code, int signal) {
  const std::weak_ptr<bool> life = life_;
  timeline_->In(wait, [=, this, start = workers_[rank].start] {
    if (!life.expired() && workers_[rank].world && workers_[rank].start == start) End(rank, exit_code, signal);
  });
}

void Workers::Terminate(const launcher::LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    Worker& worker = workers_[rank];
    if (!worker.world || worker.ends_soon) continue;
    worker.ends_soon = true;
    const int manner = timeline_->Below(10);
    if (manner < 2) continue;  // it ignores SIGTERM
    EndLater(rank, timeline_->Random(manner < 6 ? absl::Milliseconds(50) : absl::Seconds(6)), 0, SIGTERM);
  }
}

void Workers::Kill(const launcher::LocalRanks& ranks) {
  for (const int32_t rank : ranks) {
    if (workers_[rank].world) End(rank, 0, SIGKILL);
  }
}

void Workers::KillAll() {
  for (int32_t rank = 0; rank < settings_.slots; ++rank) {
    if (workers_[rank].world) End(rank, 0, SIGKILL);
  }
}

void Workers::Fail() {
  for (int32_t rank = 0; rank < settings_.slots; ++rank) {
    if (workers_[rank].world) return End(rank, 1, 0);
  }
}

void Workers::Vanish() {
  for (Worker& worker : workers_) worker.world.reset();
  life_ = nullptr;
}

void Workers::End(int32_t rank, int exit_code, int signal) {
  workers_[rank].world.reset();
  launcher::WorkerEnd end{rank, std::nullopt, std::nullopt};
  if (exit_code != 0 || signal != 0) {
    end.failure.emplace();
    end.failure->host = settings_.host;
    end.failure->rank = end.failure->local_rank = rank;
    end.failure->exit_code = exit_code;
    end.failure->signal = signal;
  }
  const std::weak_ptr<bool> life = life_;
  timeline_->In(timeline_->Random(absl::Milliseconds(5)), [=, this, start = workers_[rank].start] {
    if (!life.expired() && workers_[rank].start == start) on_ended_(end);
  });
}

std::vector<Workers::World> Workers::worlds() const {
  std::vector<World> worlds;
  for (const Worker& worker : workers_) {
    if (worker.world) worlds.push_back(*worker.world);
  }
  return worlds;
}

}  // namespace ddprun::testing
