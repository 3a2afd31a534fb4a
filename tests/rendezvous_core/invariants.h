#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "rendezvous/core/registry.h"

namespace ddprun::rendezvous {

// What must hold after every event of a Registry, whatever is said to it. Failures are gtest failures.
class Invariants {
 public:
  // Who may be spoken to: streams that are open.
  struct Stream {
    std::string job_id, node_id;
    uint64_t incarnation;
    auto operator<=>(const Stream&) const = default;
  };

  // `job_id`: whose event it was; empty: a deadline's.
  void Check(const Registry& registry, bool keeps_records, const std::string& job_id, const Effects& effects,
             const std::set<Stream>& open, SteadyTime now);

  // Another server, that knows nothing yet or what the one before has kept.
  void ServerRestarted(bool with_records);

 private:
  struct Seen {
    JobState state = JobState::kWaiting;
    uint64_t round = 0;
    int32_t restarts = 0;
    std::set<std::string> connected;  // nodes before the event
  };

  // Nobody is told what has not been kept. Of a server that keeps records.
  void CheckKept(const Effects& effects);
  void CheckEffects(const std::string& job_id, const Effects& effects, const std::set<Stream>& open);
  void CheckRound(const JobView& view, const Effects& effects);
  void CheckJob(const JobView& view, const Effects& effects);

  std::map<std::string, Seen> seen_;
  std::map<std::string, JobRecord> kept_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_INVARIANTS_H_
