#ifndef DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_
#define DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace ddprun::http {

// What is shown of the server itself.
struct ServerView {
  bool leads = true;         // it serves launchers
  std::string leader;        // HOST:PORT of the server that does, if it is another one; empty: not known
  std::string trouble;       // why records can't be kept at present; empty: they can, or none are kept
  size_t launchers = 0;      // connected, of other processes
  size_t connections = 0;    // of HTTP
  size_t event_streams = 0;  // of HTTP
  uint64_t refused_connections = 0;
  uint64_t events_dropped = 0;  // events that --event-log could not write
  absl::Duration age;           // of this process

  // "": it can serve launchers and keep their jobs' records; else why it can't.
  std::string WhyNotReady() const {
    if (!leads) return leader.empty() ? "this server does not lead" : "this server does not lead; " + leader + " does";
    return trouble;
  }
};

// What happened since the server started.
struct EventCounts {
  std::map<std::string, uint64_t> events;    // by kind: "round.assigned"
  std::map<std::string, uint64_t> failures;  // of workers, by kind: "exit", "signal", "oom", "start", "report"
  uint64_t restarts = 0;                     // rounds that began with new workers after a failure
};

// Of this process, from /proc; 0: not known.
struct ProcessNumbers {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double open_files = 0;
  double max_files = 0;
  double start_time_seconds = 0;  // since 1970
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_SERVER_VIEW_H_
