#ifndef DDPRUN_RENDEZVOUS_HTTP_METRICS_H_
#define DDPRUN_RENDEZVOUS_HTTP_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/event.h"

// PURE: the metrics of a server. EventCounter counts its events, MetricsText writes the counts, the state of the server
// and its jobs as the answer to Prometheus.
namespace ddprun::http {

// State of the server itself.
struct ServerView {
  bool leads = true;         // it serves launchers
  std::string leader;        // HOST:PORT of another server that leads; empty: unknown
  std::string trouble;       // why records cannot be persisted now; empty: they can, or there is no store
  size_t launchers = 0;      // connected launchers of other processes
  size_t connections = 0;    // HTTP connections
  size_t event_streams = 0;  // HTTP event streams
  uint64_t refused_connections = 0;
  absl::Duration age;  // age of this process

  // Returns "" if this server can serve launchers and persist their jobs' records; else why it cannot.
  std::string WhyNotReady() const {
    if (!leads)
      return leader.empty() ? "this server is not the leader" : "this server is not the leader; " + leader + " is";
    return trouble;
  }
};

// Counts since the server started.
struct EventCounts {
  std::map<std::string, uint64_t> events;    // events by kind: "round.assigned"
  std::map<std::string, uint64_t> failures;  // worker failures, by kind: "exit", "signal", "oom", "start", "report"
  uint64_t restarts = 0;                     // rounds started with new workers after a failure
};

// Numbers of this process, from /proc; 0: unknown.
struct ProcessNumbers {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double open_files = 0;
  double max_files = 0;
  double start_time_seconds = 0;  // since 1970
};

// Counts the events of a server. Thread-compatible.
class EventCounter {
 public:
  EventCounter();

  void Add(const rendezvous::Event& event);
  const EventCounts& counts() const { return counts_; }

 private:
  EventCounts counts_;
  absl::flat_hash_map<std::string, int32_t> restarts_;  // restart counts of live jobs by job id, as far as known
};

// Maximum number of live jobs that get series of their own, in the order of their ids: series cost memory in
// Prometheus.
inline constexpr size_t kMaxJobsWithSeries = 200;

// Returns all metrics in Prometheus' text format (version 0.0.4), with names by its conventions: base units, "_total"
// for counters. A job's training metrics (step, loss) are omitted if no worker reported any.
std::string MetricsText(const ServerView& server, const EventCounts& counts, const ProcessNumbers& process,
                        const std::vector<v1::Job>& jobs);

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_METRICS_H_
