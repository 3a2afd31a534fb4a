#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "rendezvous/core/registry.h"

namespace ddprun::rendezvous {

// Checks invariants after every event of a Registry, whatever messages it receives. Violations are gtest failures; the
// text begins with the number that the invariant has in docs/explorer.md.
class Invariants {
 public:
  // An open stream: messages may be sent to it.
  struct Stream {
    std::string job_id, node_id;
    uint64_t incarnation;
    auto operator<=>(const Stream&) const = default;
  };

  // `job_id`: the job whose event caused `effects`; empty: a deadline.
  void Check(const Registry& registry, bool keeps_records, const std::string& job_id, const Effects& effects,
             const std::set<Stream>& open, SteadyTime now);

  // A new server starts, with or without the records of the previous one.
  void ServerRestarted(bool with_records);

 private:
  struct Seen {
    JobState state = JobState::kWaiting;
    uint64_t round = 0;
    int32_t restarts = 0;
    std::set<std::string> connected;  // nodes before the event
  };

  // Events reported of a job (design 0013, section 2) since this server's start; `assigned` survives restarts.
  struct Reported {
    std::optional<bool> lives;  // unknown right after a restart
    uint64_t assigned = 0;      // the last round.assigned
    uint64_t stopped = 0;
    uint64_t failed = 0;
    uint64_t latest = 0;  // round of any event
  };

  // For a server with records: no message depends on a state that has not been persisted.
  void CheckKept(const Effects& effects);
  void CheckEffects(const std::string& job_id, const Effects& effects, const std::set<Stream>& open);
  // Each round is reported once and rounds ascend; a job ends once, and nothing is reported of it afterwards.
  void CheckEvent(const Event& event);
  // The reported events match the changes of the jobs.
  void CheckReported(const Registry& registry, const Effects& effects, SteadyTime now);
  void CheckRound(const v1::Job& view, const Effects& effects);
  void CheckJob(const v1::Job& view, const Effects& effects);

  std::map<std::string, Seen> seen_;
  std::map<std::string, JobRecord> kept_;
  std::map<std::string, Reported> reported_;
  std::map<std::string, std::set<std::string>> kicked_;  // ids of nodes, by job
  std::map<std::string, Verdict> kept_verdicts_;         // the last one of each job id
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
