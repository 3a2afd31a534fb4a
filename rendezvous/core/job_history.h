#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_

#include <cstddef>
#include <vector>

#include "rendezvous/core/event.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// PURE: what is remembered of a job's events, for its record: how it was created, the newest kMaxEvents of the job's
// own, and the newest kMaxNodeEvents of nodes that came and went, of which a large job has so many that they would
// leave no room for others. Texts are cut to kMaxText. The server's hosts have a history as well. Thread-compatible.
class JobHistory {
 public:
  static constexpr size_t kMaxEvents = 32;
  static constexpr size_t kMaxNodeEvents = 16;
  static constexpr size_t kMaxText = 512;  // bytes of each text of an event

  JobHistory() = default;
  // Restores the events of a record.
  explicit JobHistory(std::vector<Event> events);

  void Add(Event event);

  // In the order in which they were added.
  const std::vector<Event>& events() const { return events_; }

 private:
  std::vector<Event> events_;
};

// The events of all these records by time, but those of one record in its order: another server's clock may have been
// ahead.
std::vector<Event> Timeline(const std::vector<JobRecord>& records);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_HISTORY_H_
