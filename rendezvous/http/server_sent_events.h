#ifndef DDPRUN_RENDEZVOUS_HTTP_SERVER_SENT_EVENTS_H_
#define DDPRUN_RENDEZVOUS_HTTP_SERVER_SENT_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::http {

// Server-sent events of one job, or of all. An id is "SERVER-NUMBER": SERVER is random for each process, because
// restored events have other numbers in another process. Besides events, which have no name, the stream contains
//   reset  the client's last event came from another process: its state is outdated, the newest events follow.
//   gap    events are missing: the client was away, or slow, for longer than the server keeps them.
// Thread-compatible.
class EventStream {
 public:
  static constexpr size_t kMaxBacklog = 1000;

  struct Options {
    std::string job_id;   // empty: all jobs and hosts
    std::string last_id;  // the Last-Event-ID header; empty if there is none
    size_t backlog = 0;   // number of old events to send first, unless last_id says where to resume
  };

  // The log outlives it.
  EventStream(const rendezvous::EventLog* log, const std::string& server, Options options);

  // Returns what to send next, at most about 64 KiB; empty: nothing yet.
  std::string Next();

 private:
  // The number of the event after which to start, so that at most options_.backlog old events are sent.
  uint64_t BacklogStart() const;
  bool Matches(const rendezvous::Event& event) const;

  const rendezvous::EventLog* const log_;
  const std::string server_;
  const Options options_;
  uint64_t after_ = 0;
  std::string head_;  // sent before the first event
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_SERVER_SENT_EVENTS_H_
