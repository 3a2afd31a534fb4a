// Job records that a rendezvous server reads from its state directory or from etcd.

#include "rendezvous/core/job_record.h"
#include "rendezvous/core/registry.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;              // NOLINT
  using namespace ddprun::rendezvous;  // NOLINT
  absl::StatusOr<JobRecord> record = RecordFromBytes({reinterpret_cast<const char*>(data), size});
  if (!record.ok()) return 0;
  // A record that was read can be written and read again, now and at any later time.
  FUZZ_CHECK(RecordFromBytes(ToBytes(*record)).ok());
  AddAge(kMaxDuration, &*record);
  FUZZ_CHECK(RecordFromBytes(ToBytes(*record)).ok());
  // A server resumes from it, and writes records that it can read.
  const SteadyTime began = SteadyTime::FromStart(absl::Seconds(100));
  Registry registry(began, true);
  SavedState saved;
  saved.jobs.push_back(*std::move(record));
  registry.Restore(saved);
  Effects effects;
  registry.OnDeadline(began + 2 * kMaxDuration, &effects);
  registry.ListJobs(began + 2 * kMaxDuration);
  for (const Effect& effect : effects) {
    if (const auto* persist = std::get_if<Persist>(&effect))
      FUZZ_CHECK(RecordFromBytes(ToBytes(*persist->record)).ok());
  }
  return 0;
}
