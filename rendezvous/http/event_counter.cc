#include "rendezvous/http/event_counter.h"

#include "absl/strings/match.h"

namespace ddprun::http {
namespace {

namespace event_kind = rendezvous::event_kind;
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
  for (const absl::string_view kind : event_kind::kAll) counts_.events[std::string(kind)] = 0;
  for (const char* kind : kFailureKinds) counts_.failures[kind] = 0;
}

void EventCounter::Add(const Event& event) {
  const std::string& kind = event.kind();
  ++counts_.events[kind];
  if (kind == event_kind::kWorkerFailed && event.has_failure()) ++counts_.failures[KindOf(event.failure())];
  // Only events of jobs and rounds carry the restart count.
  if (event.job_id().empty() || !(absl::StartsWith(kind, "job.") || absl::StartsWith(kind, "round."))) return;
  const bool created = kind == event_kind::kJobCreated;
  // A job created under an earlier server starts with the restarts it already had.
  const auto [known, inserted] = restarts_.try_emplace(event.job_id(), created ? 0 : event.restart_count());
  if (created) known->second = 0;
  if (event.restart_count() > known->second) {
    counts_.restarts += event.restart_count() - known->second;
    known->second = event.restart_count();
  }
  if (rendezvous::IsEnd(kind)) restarts_.erase(known);
}

}  // namespace ddprun::http
