#ifndef DDPRUN_RENDEZVOUS_HTTP_SERVER_SENT_EVENTS_H_
#define DDPRUN_RENDEZVOUS_HTTP_SERVER_SENT_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::http {

// The events of one job, or of all, as server-sent events. An id is "SERVER-NUMBER": SERVER is random for each process,
// because restored events have other numbers with it. Besides events, which have no name, there are
//   reset  the client's last event was another process's: what it knows is out of date, the newest events follow.
//   gap    events are missing: the client was away, or slow, for longer than the server keeps them.
// Thread-compatible.
class EventStream {
 public:
  static constexpr size_t kMaxBacklog = 1000;

  struct Options {
    std::string job_id;   // empty: of all jobs and hosts
    std::string last_id;  // the Last-Event-ID header; empty: the client knows none
    size_t backlog = 0;   // so many old events come first, where last_id does not say where to go on
  };

  // The log outlives it.
  EventStream(const rendezvous::EventLog* log, const std::string& server, Options options);

  // What to send next, at most about 64 KiB; empty: nothing yet.
  std::string Next();

 private:
  // After which event to begin, that at most options_.backlog come.
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
