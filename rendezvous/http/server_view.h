#ifndef DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_
#define DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

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
  absl::Duration age;  // of this process

  // Returns "" if this server can serve launchers and persist their jobs' records; else why it cannot.
  std::string WhyNotReady() const {
    if (!leads)
      return leader.empty() ? "this server is not the leader" : "this server is not the leader; " + leader + " is";
    return trouble;
  }
};

// Counts since the server started.
struct EventCounts {
  std::map<std::string, uint64_t> events;    // by kind: "round.assigned"
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

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_
