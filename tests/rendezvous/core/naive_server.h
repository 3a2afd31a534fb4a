#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_SERVER_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_SERVER_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/lateness.h"
#include "rendezvous/core/messages.h"
#include "tests/rendezvous/core/naive_job.h"

namespace ddprun::rendezvous {

// Many naive jobs, with the ended ones.
class NaiveServer {
 public:
  // How late the server is the twin does not judge again: it asks the real one, which is called first.
  NaiveServer(SteadyTime began, const Lateness* lateness, bool keeps_records)
      : began_(began), lateness_(lateness), keeps_records_(keeps_records) {}
  // After a restart with all that matters of the server before.
  NaiveServer(const NaiveServer& before, const SavedState& saved, SteadyTime began, const Lateness* lateness);
  void OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                 const LauncherMessage& message, SteadyTime now, NaiveJob::Lines* lines);
  void OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now,
                      NaiveJob::Lines* lines);
  void OnTime(SteadyTime now, NaiveJob::Lines* lines);

  std::map<std::string, NaiveJob> jobs;  // the newest of each id

 private:
  std::map<std::string, NaiveJob> replaced_;  // ended jobs whose ids were used again
  const SteadyTime began_;
  const Lateness* const lateness_;
  const bool keeps_records_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_SERVER_H_
