#include "rendezvous/http/metrics.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/version.h"
#include "proto/time.h"
#include "rendezvous/core/job_state.h"

namespace ddprun::http {
namespace {

namespace event_kind = rendezvous::event_kind;
using rendezvous::Event;
using rendezvous::JobState;
using rendezvous::StateOf;
using rendezvous::WorkerFailure;
using Labels = std::vector<std::pair<absl::string_view, std::string>>;

constexpr JobState kStates[] = {JobState::kWaiting,    JobState::kLastCall, JobState::kStopping, JobState::kRunning,
                                JobState::kRecovering, JobState::kFinished, JobState::kFailed};

std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 1e15) return absl::StrCat(static_cast<int64_t>(value));
  return absl::StrFormat("%.15g", value);
}

// "last call" -> "last_call".
std::string StateLabel(JobState state) { return absl::StrReplaceAll(rendezvous::Name(state), {{" ", "_"}}); }

class Text {
 public:
  // Starts the metric to which the following samples belong.
  void Family(absl::string_view name, absl::string_view type, absl::string_view help) {
    name_ = std::string(name);
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void Sample(double value, const Labels& labels = {}) {
    text_ += name_;
    char separator = '{';
    for (const auto& [label, of] : labels) {
      absl::StrAppend(&text_, std::string(1, separator), label, "=\"",
                      absl::StrReplaceAll(of, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
      separator = ',';
    }
    absl::StrAppend(&text_, labels.empty() ? " " : "} ", NumberText(value), "\n");
  }
  void Gauge(absl::string_view name, absl::string_view help, double value) {
    Family(name, "gauge", help);
    Sample(value);
  }
  void Counter(absl::string_view name, absl::string_view help, double value) {
    Family(name, "counter", help);
    Sample(value);
  }
  void CounterBy(absl::string_view label, absl::string_view name, absl::string_view help,
                 const std::map<std::string, uint64_t>& counts) {
    Family(name, "counter", help);
    for (const auto& [of, count] : counts) Sample(count, {{label, of}});
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
};

uint64_t CountOf(const EventCounts& counts, const std::string& kind) {
  const auto it = counts.events.find(kind);
  return it == counts.events.end() ? 0 : it->second;
}

void AddServer(const ServerView& server, const EventCounts& counts, Text* text) {
  text->Family("ddprun_build_info", "gauge", "Version of rendezvousd.");
  text->Sample(1, {{"version", kVersion}});
  text->Gauge("ddprun_leader", "1 if this server serves launchers, 0 if another one leads.", server.leads);
  text->Gauge("ddprun_ready", "1 if this server leads and can persist records.", server.WhyNotReady().empty());
  text->Gauge("ddprun_state_store_healthy", "0 while job records cannot be persisted.", server.trouble.empty());
  text->Gauge("ddprun_launchers_connected", "Launchers of other processes that have joined and are connected.",
              server.launchers);
  text->Counter("ddprun_rounds_assigned_total", "Rounds assigned.", CountOf(counts, "round.assigned"));
  text->Counter("ddprun_restarts_total", "Rounds stopped for a failure or a lost node, after which workers restart.",
                counts.restarts);
  text->Counter("ddprun_nodes_lost_total", "Nodes lost because of missed heartbeats or a broken connection.",
                CountOf(counts, "node.lost"));
  text->CounterBy("kind", "ddprun_worker_failures_total", "Worker failures that stopped a round, by kind.",
                  counts.failures);
  text->CounterBy("kind", "ddprun_events_total", "Events by kind.", counts.events);
  text->Gauge("ddprun_http_connections", "Open connections of the HTTP server.", server.connections);
  text->Gauge("ddprun_http_event_streams", "Clients that receive events.", server.event_streams);
  text->Counter("ddprun_http_refused_connections_total", "HTTP connections closed for lack of room.",
                server.refused_connections);
}

void AddProcess(const ProcessNumbers& process, Text* text) {
  text->Counter("process_cpu_seconds_total", "CPU time of the process.", process.cpu_seconds);
  text->Gauge("process_resident_memory_bytes", "Resident memory of the process.", process.resident_bytes);
  text->Gauge("process_open_fds", "Open file descriptors.", process.open_files);
  text->Gauge("process_max_fds", "Limit of open file descriptors.", process.max_files);
  text->Gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", process.start_time_seconds);
}

// Writes a sample for each job for which `value` returns one.
template <typename Value>
void PerJob(absl::string_view name, absl::string_view help, const std::vector<const v1::Job*>& jobs, Value value,
            Text* text) {
  text->Family(name, absl::EndsWith(name, "_total") ? "counter" : "gauge", help);
  for (const v1::Job* job : jobs) {
    const std::optional<double> v = value(*job);
    if (v.has_value()) text->Sample(*v, {{"job_id", job->job_id()}});
  }
}

void AddJobs(const std::vector<v1::Job>& jobs, const std::vector<const v1::Job*>& shown, Text* text) {
  std::map<JobState, int> by_state;
  int64_t nodes = 0;
  int64_t workers = 0;
  int64_t live = 0;
  for (const v1::Job& job : jobs) {
    ++by_state[StateOf(job)];
    if (rendezvous::IsEnd(StateOf(job))) continue;
    ++live;
    nodes += job.node_count();
    if (StateOf(job) == JobState::kRunning) workers += job.world_size();
  }
  text->Family("ddprun_jobs", "gauge", "Jobs by state; ended jobs are kept for a while.");
  for (const JobState state : kStates) text->Sample(by_state[state], {{"state", StateLabel(state)}});
  text->Gauge("ddprun_nodes", "Nodes of jobs that have not ended.", nodes);
  text->Gauge("ddprun_workers", "World sizes of running jobs, summed.", workers);
  text->Gauge("ddprun_jobs_without_series", "Jobs beyond the 200 for which ddprun_job_* are exported.",
              live - static_cast<int64_t>(shown.size()));
  const auto plain = [](auto get) { return [get](const v1::Job& job) { return std::optional<double>(get(job)); }; };
  PerJob("ddprun_job_running", "1 while a round of the job runs.", shown,
         plain([](const v1::Job& job) { return StateOf(job) == JobState::kRunning; }), text);
  PerJob("ddprun_job_hung", "1 while a hang of the job is reported.", shown,
         plain([](const v1::Job& job) { return job.has_hang() && job.hang().kind() != v1::Hang::KIND_STRAGGLER; }),
         text);
  PerJob("ddprun_job_nodes", "Nodes of the job.", shown, plain([](const v1::Job& job) { return job.node_count(); }),
         text);
  PerJob("ddprun_job_workers", "World size of the newest round.", shown,
         plain([](const v1::Job& job) { return job.world_size(); }), text);
  PerJob("ddprun_job_round", "The newest round.", shown, plain([](const v1::Job& job) { return job.round(); }), text);
  PerJob("ddprun_job_restarts_total", "Restarts charged to the job.", shown,
         plain([](const v1::Job& job) { return job.restart_count(); }), text);
  PerJob("ddprun_job_age_seconds", "Time since the first node joined.", shown,
         plain([](const v1::Job& job) { return absl::ToDoubleSeconds(ToDuration(job.age())); }), text);
}

// Progress that ranks reported; nothing for jobs whose ranks report none.
void AddTraining(const std::vector<const v1::Job*>& shown, Text* text) {
  const auto of = [](auto get) {
    return [get](const v1::Job& job) { return job.has_training() ? get(job.training()) : std::nullopt; };
  };
  using Value = std::optional<double>;
  PerJob("ddprun_job_step", "Step of the most advanced rank.", shown,
         of([](const v1::Training& training) { return Value(training.step()); }), text);
  PerJob("ddprun_job_steps_behind", "Steps between the most and the least advanced rank.", shown,
         of([](const v1::Training& training) { return Value(training.steps_behind()); }), text);
  PerJob("ddprun_job_loss", "Loss reported by the lowest rank.", shown,
         of([](const v1::Training& training) { return training.has_loss() ? Value(training.loss()) : std::nullopt; }),
         text);
  PerJob("ddprun_job_samples", "Samples on which all ranks of the round have trained.", shown,
         of([](const v1::Training& training) {
           return training.has_samples() ? Value(training.samples()) : std::nullopt;
         }),
         text);
  PerJob("ddprun_job_seconds_since_progress", "Time since any rank reported anything.", shown,
         of([](const v1::Training& training) { return Value(absl::ToDoubleSeconds(ToDuration(training.ago()))); }),
         text);
}

// A job's time by phase. Not counters, because repeated steps move from training to lost.
void AddGoodput(const std::vector<const v1::Job*>& shown, Text* text) {
  using Time = const google::protobuf::Duration& (v1::Goodput::*)() const;
  constexpr std::pair<absl::string_view, Time> kPhases[] = {{"waiting", &v1::Goodput::waiting},
                                                            {"starting", &v1::Goodput::starting},
                                                            {"training", &v1::Goodput::training},
                                                            {"re_forming", &v1::Goodput::re_forming},
                                                            {"lost", &v1::Goodput::lost}};
  text->Family("ddprun_job_time_seconds", "gauge", "Time of the job by phase.");
  for (const v1::Job* job : shown) {
    if (!job->has_goodput()) continue;
    for (const auto& [phase, time] : kPhases) {
      const double seconds = absl::ToDoubleSeconds(ToDuration((job->goodput().*time)()));
      text->Sample(seconds, {{"job_id", job->job_id()}, {"phase", std::string(phase)}});
    }
  }
}

// The jobs that get series.
std::vector<const v1::Job*> JobsWithSeries(const std::vector<v1::Job>& jobs) {
  std::vector<const v1::Job*> shown;
  for (const v1::Job& job : jobs) {
    if (shown.size() < kMaxJobsWithSeries && !rendezvous::IsEnd(StateOf(job))) shown.push_back(&job);
  }
  return shown;
}

constexpr const char* kFailureKinds[] = {"exit", "signal", "oom", "start", "report"};

const char* KindOf(const WorkerFailure& failure) {
  if (failure.oom_killed()) return "oom";
  if (failure.signal() != 0) return "signal";
  if (failure.pid() == 0) return "start";
  return failure.exit_code() != 0 ? "exit" : "report";
}

}  // namespace

std::string MetricsText(const ServerView& server, const EventCounts& counts, const ProcessNumbers& process,
                        const std::vector<v1::Job>& jobs) {
  Text text;
  AddServer(server, counts, &text);
  const std::vector<const v1::Job*> shown = JobsWithSeries(jobs);
  AddJobs(jobs, shown, &text);
  AddTraining(shown, &text);
  AddGoodput(shown, &text);
  AddProcess(process, &text);
  return text.Take();
}

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
