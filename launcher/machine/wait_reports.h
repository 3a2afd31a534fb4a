#ifndef DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_
#define DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/machine/agent_effect.h"
#include "launcher/machine/server_line.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// PURE: reports, in log and status lines, what the launcher waits for: the server, other nodes, ranks that have not
// connected to the store, a store that is unreachable. Short waits are not reported. Thread-compatible.
class WaitReports {
 public:
  struct Names {
    std::string self;    // "node1 (10.0.0.5)"
    std::string server;  // address of the rendezvous server
    std::string job_id;
    std::vector<std::string> expected_hosts;  // names of the expected nodes; empty: unknown
  };

  // `line` must outlive this object; only its state and last error are read.
  WaitReports(Names names, const ServerLine* line) : names_(std::move(names)), line_(line) {}

  // `where`: "this node serves at 10.0.0.5:29400" if this launcher hosts the server, else empty.
  void OnServing(std::string where) { serving_ = std::move(where); }

  // The node has no round and starts to wait for one.
  void StartWait(SteadyTime now);
  void OnWaiting(const rendezvous::Waiting& waiting, SteadyTime now);
  // Returns one line: "waiting for ...".
  std::string WaitText(SteadyTime now) const;
  // The expected nodes that have not joined; empty if unknown.
  std::vector<std::string> Absent() const;
  // The job failed while this node waited: logs which nodes did not join.
  void ReportFailedWait(AgentEffects* effects) const;

  // A round begins: from now on only its ranks and its store are watched.
  void StartRound(const rendezvous::Assignment& assignment, SteadyTime now);
  void OnRanksJoined(int joined, SteadyTime now);
  // The workers run, and the store of another node is asked to serve them. Its timeout starts here.
  void OnRegistering(SteadyTime now);
  void OnStoreReached(const absl::Status& status, SteadyTime now);
  // The workers have ended or are being stopped: their ranks and store are no longer watched.
  void EndRound();
  // Stops all reports.
  void Clear();

  void OnDeadline(SteadyTime now, AgentEffects* effects);
  SteadyTime NextDeadline() const;

 private:
  std::string StoreText() const;

  const Names names_;
  const ServerLine* const line_;
  std::string serving_;
  std::optional<rendezvous::Waiting> waiting_;  // received at waiting_at_
  SteadyTime waiting_at_;
  rendezvous::Assignment round_;
  SteadyTime round_started_;
  int ranks_joined_ = 0;
  std::string store_problem_;  // empty: nothing to report about the store
  Timer next_report_;          // next WaitText
  Timer missing_;              // ReportMissingRanks
  Timer store_late_;           // report of store_problem_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_WAIT_REPORTS_H_
