#ifndef DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_
#define DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// Where a server keeps what has to outlive it. Thread-safe.
class StateStore {
 public:
  virtual ~StateStore() = default;

  // Keeps `record` instead of the one before of its job, and `event`, if not empty, in the job's history. Returns at
  // once. `safe` is called, from any thread, when a server that is started after a crash at that moment would find the
  // record; never before those of earlier calls, and never if the store is destroyed before.
  virtual void Keep(std::shared_ptr<const JobRecord> record, std::string event, std::function<void()> safe) = 0;

  // `report` is called, from any thread, when records can't be kept for now, with a sentence that says why, and with ""
  // when they can be again, before their `safe`. Call once, before the first Keep.
  virtual void ReportTrouble(std::function<void(const std::string& trouble)> report) = 0;

  // `report` is called, from any thread, when the records of one job can't be kept, though others can, with a sentence
  // that says why and what to do; and with "" when they can be again, before their `safe`. Call once, before the first
  // Keep.
  virtual void ReportJobTrouble(std::function<void(const std::string& job_id, const std::string& trouble)>) {}

  // Whether the records are this server's at this moment. Once false it stays so: another server may be about to lead,
  // or does already, and this one must not answer anybody any more.
  virtual bool Owned() const { return true; }
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_STATE_STORE_H_
