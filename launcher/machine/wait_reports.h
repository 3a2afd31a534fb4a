#ifndef DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_
#define DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/timer.h"
#include "launcher/machine/agent_effect.h"
#include "launcher/machine/server_line.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: what a launcher says about what it waits for, and when: the server, other nodes, ranks that have not come to
// the store, a store that can't be reached. Nothing is said of a wait that is short. Thread-compatible.
class WaitReports {
 public:
  struct Names {
    std::string self;    // "node1 (10.0.0.5)"
    std::string server;  // address of the rendezvous server
    std::string job_id;
    std::vector<std::string> expected_hosts;  // names of the nodes that are to come; empty: not known
  };

  // `line` outlives this; only what it knows of the server is looked at.
  WaitReports(Names names, const ServerLine* line) : names_(std::move(names)), line_(line) {}

  // This launcher hosts the server; where, for people: "this node serves at 10.0.0.5:29400". Empty: it does not.
  void OnServing(std::string where) { serving_ = std::move(where); }

  // The node has no round and waits for one.
  void StartWait(SteadyTime now);
  void OnWaiting(const rendezvous::Waiting& waiting, SteadyTime now);
  // "waiting for ...": one line.
  std::string WaitText(SteadyTime now) const;
  // The job failed while this node waited: who did not come.
  void ReportFailedWait(AgentEffects* effects) const;

  // A round begins: nothing is waited for but its workers, whose ranks and store are looked at.
  void StartRound(const rendezvous::Assignment& assignment, SteadyTime now);
  void OnRanksJoined(int joined, SteadyTime now);
  // The workers run, and another node's store is asked to serve them: only from now on can it be late.
  void OnRegistering(SteadyTime now);
  void OnStoreReached(const absl::Status& status, SteadyTime now);
  // The workers have ended or are to end: their ranks and store are of no interest any more.
  void EndRound();
  // Nothing is waited for.
  void Clear();

  void OnDeadline(SteadyTime now, AgentEffects* effects);
  SteadyTime NextDeadline() const;

 private:
  std::string StoreText() const;

  const Names names_;
  const ServerLine* const line_;
  std::string serving_;
  std::optional<rendezvous::Waiting> waiting_;  // as the server said at waiting_at_
  SteadyTime waiting_at_;
  rendezvous::Assignment round_;
  SteadyTime round_started_;
  int ranks_joined_ = 0;
  std::string store_problem_;  // empty: nothing is to be reported of the store
  Timer next_report_;          // of what is waited for
  Timer missing_;              // report of missing ranks
  Timer store_late_;           // report of store_problem_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_
