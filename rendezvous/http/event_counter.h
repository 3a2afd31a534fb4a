#ifndef DDPRUN_RENDEZVOUS_HTTP_EVENT_COUNTER_H_
#define DDPRUN_RENDEZVOUS_HTTP_EVENT_COUNTER_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/core/event.h"
#include "rendezvous/http/server_view.h"

namespace ddprun::http {

// PURE: counts events for the metrics. Thread-compatible.
class EventCounter {
 public:
  EventCounter();

  void Add(const rendezvous::Event& event);
  const EventCounts& counts() const { return counts_; }

 private:
  EventCounts counts_;
  absl::flat_hash_map<std::string, int32_t> restarts_;  // of live jobs, as far as known
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_EVENT_COUNTER_H_
