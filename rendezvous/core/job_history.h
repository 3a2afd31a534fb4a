#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_

#include <cstddef>
#include <vector>

#include "rendezvous/core/event.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// PURE: the events of a job that its record contains: its creation, the newest kMaxNodeEvents events of nodes that
// joined, returned, left or were lost, and the newest kMaxEvents other events, for which the many events of nodes in a
// large job would leave no room. Texts are truncated to kMaxText. The server has a history as well, for drained hosts.
// Thread-compatible.
class JobHistory {
 public:
  static constexpr size_t kMaxEvents = 32;
  static constexpr size_t kMaxNodeEvents = 16;
  static constexpr size_t kMaxText = 512;  // length of each text of an event

  JobHistory() = default;
  // Restores the events of a record.
  explicit JobHistory(std::vector<Event> events);

  void Add(Event event);

  // Returns the events in the order in which they were added.
  const std::vector<Event>& events() const { return events_; }

 private:
  std::vector<Event> events_;
};

// Returns the events of all records in order of time. Events of the same record stay in their order, even if the wall
// clock of another server was ahead.
std::vector<Event> Timeline(const std::vector<JobRecord>& records);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_
