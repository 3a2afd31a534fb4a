#include "launcher/core/worker_set.h"

#include <algorithm>
#include <numeric>

namespace ddprun::launcher {

WorkerSet::WorkerSet(int32_t slots) : workers_(slots) {}

LocalRanks WorkerSet::All() const {
  LocalRanks ranks(workers_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

LocalRanks WorkerSet::Alive() const {
  LocalRanks ranks;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (IsAlive(workers_[i])) ranks.push_back(static_cast<int32_t>(i));
  }
  return ranks;
}

const WorkerSet::Worker* WorkerSet::Find(int32_t rank) const {
  return rank >= 0 && rank < static_cast<int32_t>(workers_.size()) ? &workers_[rank] : nullptr;
}

void WorkerSet::Start(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr && !IsAlive(*worker)) *worker = {State::kRunning, std::nullopt};
  }
}

void WorkerSet::Suspend(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    Worker* worker = Find(rank);
    if (worker != nullptr && worker->state == State::kRunning) worker->state = State::kSuspended;
  }
}

void WorkerSet::Resume(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    Worker* worker = Find(rank);
    if (worker != nullptr && worker->state == State::kSuspended) worker->state = State::kRunning;
  }
}

void WorkerSet::Stop(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr && IsAlive(*worker)) worker->state = State::kStopping;
  }
}

void WorkerSet::NotStarted(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr) *worker = {};
  }
}

bool WorkerSet::End(const WorkerEnd& end) {
  Worker* worker = Find(end.local_rank);
  if (worker == nullptr || !IsAlive(*worker)) return false;
  *worker = {State::kEnded, end};
  return true;
}

void WorkerSet::Abandon(const LocalRanks& ranks) {
  for (int32_t rank : ranks) {
    if (Worker* worker = Find(rank); worker != nullptr && IsAlive(*worker)) *worker = {State::kEnded, std::nullopt};
  }
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

WorkerSet::State WorkerSet::state(int32_t rank) const {
  const Worker* worker = Find(rank);
  return worker == nullptr ? State::kNotStarted : worker->state;
}

const WorkerEnd* WorkerSet::end(int32_t rank) const {
  const Worker* worker = Find(rank);
  return worker != nullptr && worker->end ? &*worker->end : nullptr;
}

}  // namespace ddprun::launcher
