#include "rendezvous/http/event_counter.h"

#include "absl/strings/match.h"

namespace ddprun::http {
namespace {

using rendezvous::Event;
using rendezvous::WorkerFailure;

constexpr const char* kFailureKinds[] = {"exit", "signal", "oom", "start", "report"};

const char* KindOf(const WorkerFailure& failure) {
  if (failure.oom_killed()) return "oom";
  if (failure.signal() != 0) return "signal";
  if (failure.pid() == 0) return "start";
  return failure.exit_code() != 0 ? "exit" : "report";
}

}  // namespace

EventCounter::EventCounter() {
  // All counters start at 0: one that first appears with its first increment would show no increase.
  for (int kind = 0; kind < rendezvous::kEventKinds; ++kind) {
    counts_.events[std::string(rendezvous::Name(static_cast<Event::Kind>(kind)))] = 0;
  }
  for (const char* kind : kFailureKinds) counts_.failures[kind] = 0;
}

void EventCounter::Add(const Event& event) {
  ++counts_.events[std::string(rendezvous::Name(event.kind))];
  if (event.kind == Event::Kind::kWorkerFailed && event.failure.has_value()) {
    ++counts_.failures[KindOf(*event.failure)];
  }
  // Only events of jobs and rounds carry the restart count.
  const absl::string_view name = rendezvous::Name(event.kind);
  if (event.job_id.empty() || !(absl::StartsWith(name, "job.") || absl::StartsWith(name, "round."))) return;
  const bool created = event.kind == Event::Kind::kJobCreated;
  // A job created under an earlier server starts with the restarts it already had.
  const auto [known, inserted] = restarts_.try_emplace(event.job_id, created ? 0 : event.restart_count);
  if (created) known->second = 0;
  if (event.restart_count > known->second) {
    counts_.restarts += event.restart_count - known->second;
    known->second = event.restart_count;
  }
  if (rendezvous::IsEnd(event.kind)) restarts_.erase(known);
}

}  // namespace ddprun::http
