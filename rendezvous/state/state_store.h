#ifndef DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_
#define DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// Persistent storage of a server's state. Thread-safe.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // Persists `record` in place of its job's previous one, and appends `event`, if not empty, to the job's history.
  // Returns at once. `safe` is called, from any thread, when a server that is started after a crash would find the
  // record; never before the `safe` of earlier calls, and never if the store is destroyed first.
  virtual void SaveRecord(std::shared_ptr<const JobRecord> record, std::string event, std::function<void()> safe) = 0;

  // `report` is called, from any thread, when records can't be persisted for now, with a sentence that says why; and
  // with "" when they can again, before their `safe`. Call once, before the first Keep.
  virtual void SetErrorHandler(std::function<void(const std::string& trouble)> report) = 0;

  // `report` is called, from any thread, when the records of one job can't be persisted although others can, with a
  // sentence that says why and what to do; and with "" when they can again, before their `safe`. Call once, before the
  // first Keep.
  virtual void SetJobErrorHandler(std::function<void(const std::string& job_id, const std::string& trouble)>) {}

  // True if this server owns the records now. Once false it stays false: another server leads or may be about to, and
  // this one must not answer any request.
  virtual bool Owned() const { return true; }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_
