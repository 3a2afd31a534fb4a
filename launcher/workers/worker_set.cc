#include "launcher/workers/worker_set.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

WorkerSet::WorkerSet(int32_t slots) : workers_(slots) {}

LocalRanks WorkerSet::All() const {
  LocalRanks ranks(workers_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename Matches>
LocalRanks WorkerSet::Where(Matches matches) const {
  LocalRanks ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (matches(workers_[i])) ranks.push_back(static_cast<int32_t>(i));
  }
  return ranks;
}

LocalRanks WorkerSet::Alive() const { return Where(IsAlive); }

LocalRanks WorkerSet::NotAlive() const {
  return Where([](const Worker& worker) { return !IsAlive(worker); });
}

LocalRanks WorkerSet::In(State state) const {
  return Where([state](const Worker& worker) { return worker.state == state; });
}

LocalRanks WorkerSet::CanSuspend() const {
  return Where([](const Worker& worker) { return worker.state == State::kRunning && worker.can_suspend; });
}

LocalRanks WorkerSet::CanCheckpoint() const {
  return Where(
      [](const Worker& worker) { return IsAlive(worker) && worker.state != State::kStopping && worker.checkpoints; });
}

const WorkerSet::Worker* WorkerSet::Find(int32_t rank) const {
  return rank >= 0 && rank < static_cast<int32_t>(workers_.size()) ? &workers_[rank] : nullptr;
}

void WorkerSet::Reset(Worker* worker, State state, std::optional<WorkerEnd> end) {
  const bool aware = worker->aware;
  *worker = Worker();
  worker->state = state;
  worker->end = std::move(end);
  worker->aware = aware;
}

void WorkerSet::Start(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr && !IsAlive(*worker)) {
      Reset(worker, State::kRunning, std::nullopt);
    }
  }
}

void WorkerSet::Suspend(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    Worker* worker = Find(rank);
    if (worker != nullptr && worker->state == State::kRunning) worker->state = State::kSuspending;
  }
}

bool WorkerSet::Suspended(int32_t rank, std::optional<int64_t> step) {
  Worker* worker = Find(rank);
  if (worker == nullptr || worker->state != State::kSuspending) return false;
  worker->state = State::kSuspended;
  worker->step = step;
  return true;
}

void WorkerSet::Resume(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    Worker* worker = Find(rank);
    if (worker == nullptr || worker->state != State::kSuspended) continue;
    worker->state = State::kRunning;
    worker->reforming = true;
  }
}

void WorkerSet::Reformed(int32_t rank) {
  if (Worker* worker = Find(rank); worker != nullptr) worker->reforming = false;
}

void WorkerSet::Connected(int32_t rank, const std::vector<std::string>& capabilities) {
  Worker* worker = Find(rank);
  if (worker == nullptr || !IsAlive(*worker)) return;
  const auto can = [&](const char* name) {
    return std::find(capabilities.begin(), capabilities.end(), name) != capabilities.end();
  };
  worker->aware = worker->can_suspend = can(worker_contract::kCanReform);
  worker->checkpoints = can(worker_contract::kCanCheckpoint);
}

void WorkerSet::Disconnected(int32_t rank) {
  if (Worker* worker = Find(rank); worker != nullptr) worker->can_suspend = worker->checkpoints = false;
}

void WorkerSet::AssumeAware() {
  for (Worker& worker : workers_) worker.aware = true;
}

void WorkerSet::Stop(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr && IsAlive(*worker)) worker->state = State::kStopping;
  }
}

void WorkerSet::NotStarted(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr) Reset(worker, State::kNotStarted, std::nullopt);
  }
}

bool WorkerSet::End(const WorkerEnd& end) {
  Worker* worker = Find(end.local_rank);
  if (worker == nullptr) return false;
  worker->stuck = false;
  if (!IsAlive(*worker)) return false;
  Reset(worker, State::kEnded, end);
  return true;
}

void WorkerSet::Abandon(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    Worker* worker = Find(rank);
    if (worker == nullptr || !IsAlive(*worker)) continue;
    Reset(worker, State::kEnded, std::nullopt);
    worker->stuck = true;
  }
}

bool WorkerSet::AnyStuck() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.stuck; });
}

bool WorkerSet::AnyAlive() const { return std::any_of(workers_.begin(), workers_.end(), IsAlive); }

bool WorkerSet::Quiet() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return !IsAlive(worker) || worker.state == State::kSuspended; });
}

bool WorkerSet::AllSucceeded() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.end && !worker.end->failure; });
}

LocalRanks WorkerSet::Plain() const {
  return Where([](const Worker& worker) { return !worker.aware; });
}

bool WorkerSet::Reforming(int32_t rank) const {
  const Worker* worker = Find(rank);
  return worker != nullptr && worker->state == State::kRunning && worker->reforming;
}

std::vector<rendezvous::Survivor> WorkerSet::Survivors() const {
  std::vector<rendezvous::Survivor> survivors;
  for (const int32_t rank : In(State::kSuspended))
    survivors.push_back(rendezvous::NewSurvivor(rank, workers_[rank].step));
  return survivors;
}

WorkerSet::State WorkerSet::state(int32_t rank) const {
  const Worker* worker = Find(rank);
  return worker == nullptr ? State::kNotStarted : worker->state;
}

const WorkerEnd* WorkerSet::end(int32_t rank) const {
  const Worker* worker = Find(rank);
  return worker != nullptr && worker->end ? &*worker->end : nullptr;
}

}  // namespace ddprun::launcher
