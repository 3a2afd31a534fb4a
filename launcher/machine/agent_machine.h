#ifndef DDPRUN_LAUNCHER_MACHINE_AGENT_MACHINE_H_
#define DDPRUN_LAUNCHER_MACHINE_AGENT_MACHINE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/machine/agent_effect.h"
#include "launcher/machine/round_failures.h"
#include "launcher/machine/server_line.h"
#include "launcher/machine/wait_reports.h"
#include "launcher/workers/link_peer.h"
#include "launcher/workers/worker_set.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

// PURE: what one launcher does next, as a function of (state, event, now). The shell (launcher/agent.h) turns
// messages, deaths of processes and signals into calls, and carries out the effects in order.
//
//                  Welcome            Assign                all workers ended with 0
//   kConnecting ------------> kIdle ----------> kRunning ---------------------------> kSucceeded
//                               ^                  |  StopRound, a worker's failure         | StopRound
//         workers quiet, a      |                  v                                        v
//         fresh store is open   +------------- kStopping <----------------------------------+
//                                                  |  Finish, a signal, no server for too long
//                                                  v
//                                                kDone    (from any state; at once if no worker runs)
//
// Workers are quiet when each has ended, or is suspended and waits for the next round (docs/worker_protocol.md, section
// 5). Workers that can re-form keep their processes if the server and all workers of this node can re-form; otherwise
// all are stopped.
//
// AgentMachine decides when the workers start and stop. Its parts: the connection to the server (server_line.h), the
// deadlines of stopping workers (StopSequence), the workers by local rank (worker_set.h), the failures of a round
// (round_failures.h), and the messages about waiting (wait_reports.h). A launcher whose lease has expired stops its
// workers (server_line.h) and is idle: the server may have started a round without it.
//
// A worker that is still alive long after SIGKILL hangs in the kernel and may hold its device. The launcher reports it
// to the server, which leaves the node out for `node_cooldown` (protocol 3.9) or ends a job of one node, and starts no
// worker before it has ended. If it has not ended after `node_cooldown`, the launcher leaves the job.
namespace ddprun::launcher {

// The store for this node's next round.
struct OpenedStore {
  int32_t port = 0;
  std::string secret;  // see rendezvous::Join::store_secret
};

struct AgentSettings {
  rendezvous::Join join =
      rendezvous::NewJoin();  // identity of this node; AgentMachine sets phase, current, incarnation and the store
  std::string server;         // the rendezvous server's address, for messages
  std::vector<std::string> expected_hosts;              // names of the expected nodes; empty: unknown
  absl::Duration shutdown_timeout = absl::Seconds(30);  // from SIGTERM to SIGKILL
  std::optional<absl::Duration> reconnect_timeout;      // how long to look for a lost server (server_line.h)
  std::optional<BatchSystem> batch;                     // the batch system that started the launcher
  std::vector<int> warning_signals;                     // passed on to the workers; all others stop the job
  bool replaced = false;                                // a stopped launcher is replaced by a new one
  bool has_end_command = false;  // there is something to do at the job's end, by the node that the server chooses
  bool is_only_node = false;     // no other launcher can join the job: this one is that node
};

// PURE: the deadlines of workers that are stopping. After the grace they get SIGKILL; workers that are still alive
// kAbandonAfter later hang in the kernel and are abandoned. `limit`: time until which workers may run at all, which
// bounds the grace. Thread-compatible value type.
class StopSequence {
 public:
  enum class Step { kNone, kKill, kAbandon };
  static constexpr absl::Duration kAbandonAfter = absl::Seconds(30);

  // Workers were asked to end or to suspend within `grace`.
  void Start(absl::Duration grace, SteadyTime now) {
    kill_.Set(now + grace);
    abandon_.Clear();
  }

  // Workers were sent SIGKILL. Others may still have their grace.
  void OnKilled(SteadyTime now) {
    if (!kill_.running()) abandon_.Set(now + kAbandonAfter);
  }

  // Makes the next step due now.
  void Hurry(SteadyTime now) {
    if (kill_.running()) kill_.Set(now);
    if (abandon_.running()) abandon_.Set(now);
  }

  // All workers have ended or are suspended.
  void Clear() { *this = StopSequence(); }

  // Returns the step that is due, which is then over.
  Step Take(SteadyTime limit, SteadyTime now) {
    if (KillAt(limit) <= now) {
      kill_.Clear();
      abandon_.Set(now + kAbandonAfter);
      return Step::kKill;
    }
    return abandon_.Take(now) ? Step::kAbandon : Step::kNone;
  }

  // When SIGKILL is sent; infinite if no worker has a grace.
  SteadyTime KillAt(SteadyTime limit) const { return kill_.running() && limit < kill_.at() ? limit : kill_.at(); }
  // When Take will next return a step.
  SteadyTime NextDeadline(SteadyTime limit) const { return std::min(KillAt(limit), abandon_.at()); }

 private:
  Timer kill_;
  Timer abandon_;
};

// A signal received by the launcher.
struct Signal {
  int number = 0;
  std::string text;                // for people: "SIGTERM from process 123 (bash)"
  bool from_batch_system = false;  // the batch system sends it to all nodes of the job
  // Until the end of the job's time limit; infinite if unknown.
  absl::Duration time_left = absl::InfiniteDuration();
};

// Thread-compatible; the launcher's loop owns it. Every method may be called in every state. Effects are appended.
class AgentMachine {
 public:
  using Effects = AgentEffects;
  enum class State { kConnecting, kIdle, kRunning, kSucceeded, kStopping, kDone };

  AgentMachine(AgentSettings settings, SteadyTime now);
  AgentMachine(const AgentMachine&) = delete;
  AgentMachine& operator=(const AgentMachine&) = delete;

  // The first call. Opens the store; the client is to be connected once that is open.
  void Start(SteadyTime now, Effects* effects);

  // Answers OpenStore: the store listens on this port.
  void OnStoreOpened(OpenedStore store, SteadyTime now, Effects* effects);

  // `leader`: HOST:PORT of the server if it is the leader of several.
  void OnConnected(const std::string& leader, SteadyTime now, Effects* effects);
  // `refused`: see rendezvous::Disconnected.
  void OnDisconnected(const std::string& reason, bool permanent, std::optional<SteadyTime> refused, SteadyTime now,
                      Effects* effects);
  void OnServerMessage(const rendezvous::ServerMessage& message, SteadyTime now, Effects* effects);

  // Call with all workers that ended since the last call, so that the first cause can be told from its consequences.
  void OnWorkersEnded(const std::vector<WorkerEnd>& ends, SteadyTime now, Effects* effects);

  // SpawnWorkers could not start these ranks; the other ranks of the effect run. `failure` is that of the first one.
  void OnSpawnFailed(const LocalRanks& not_started, const rendezvous::WorkerFailure& failure, SteadyTime now,
                     Effects* effects);

  // A running worker has been in uninterruptible sleep for too long. `failure`: see rendezvous::IsStuckInKernel.
  void OnUninterruptible(const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects);

  // Answers DescribeStuck with the failures of those of its ranks that have a process.
  void OnStuck(const LocalRanks& ranks, const std::vector<rendezvous::WorkerFailure>& failures, SteadyTime now,
               Effects* effects);

  // Ignored if the worker's process has ended, or its round is over.
  void OnLink(int32_t local_rank, const LinkEvent& event, SteadyTime now, Effects* effects);

  // `joined`: number of the round's ranks that have connected to the store hosted by this launcher.
  void OnRanksJoined(int joined, SteadyTime now, Effects* effects);

  // The workers run, and the round's store, on another node, is asked to serve them.
  void OnRegistering(SteadyTime now, Effects* effects);

  // The result of connecting to that store.
  void OnStoreReached(const absl::Status& status, SteadyTime now, Effects* effects);

  // Shows a hang of the round, and reports it to the server, which passes it on to the other nodes; sets its round.
  // Call on the node of group rank 0 only. Reports that follow in less than rendezvous::kHangInterval do not reach the
  // other nodes, except for `continued` and `replace`.
  void OnHang(rendezvous::Hang hang, SteadyTime now, Effects* effects);
  // True if the rank was reported as a straggler in the current round.
  bool IsStraggler(int32_t rank) const;

  // Sends stacks, output or usage that the server has asked for (effect::CollectStacks).
  void OnStacks(const rendezvous::Inspection& stacks, SteadyTime now, Effects* effects);

  // See WaitReports.
  void OnServing(std::string where) { reports_.OnServing(std::move(where)); }
  std::vector<std::string> AbsentHosts() const { return reports_.Absent(); }

  // A warning is passed on to the workers, any other signal stops the job. A signal that the batch system sends to
  // every process is not sent to the workers a second time. The batch system signals all nodes of the job, but not in
  // the same instant, so for a quarter of a second before and after the signal:
  //   - a failure that the signal may have caused (an exit code, SIGTERM, a lost peer) is not reported yet, and is
  //     discarded if the signal arrives, or the message that the round is over;
  //   - the launcher does not yet report to the server that it leaves. A verdict that arrives meanwhile counts.
  void OnSignal(const Signal& signal, SteadyTime now, Effects* effects);

  // The launcher has an internal error, such as no port for the store: leave and exit with 1.
  void OnFatal(const std::string& reason, SteadyTime now, Effects* effects);

  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const;

  State state() const { return state_; }
  // The latest round of this node; unset: it had none.
  const std::optional<rendezvous::Assignment>& last_round() const { return current_; }
  // The hang of that round that was reported and is not over; nullptr: none.
  const rendezvous::Hang* OpenHang() const;

  // True if a worker may begin to run user code now: its round is under way, and the lease holds.
  bool MayStartWorkers(SteadyTime now) const;

  // Deadline at which the guard kills the workers if this launcher hangs.
  SteadyTime WorkersMayRunUntil() const;

 private:
  // A batch system's signal reaches all processes of a job, on all nodes, within this time.
  static constexpr absl::Duration kSignalSpread = absl::Milliseconds(250);
  // How long a launcher that leaves waits for the server to say whether the job has ended with it.
  static constexpr absl::Duration kFinishWait = absl::Seconds(1);

  // The server.
  void SendJoin(uint64_t incarnation, SteadyTime now, Effects* effects);
  void SendReady(uint64_t left_round, Effects* effects);
  // " for 2.5s", until the workers have to be stopped; empty: they may run without the server.
  std::string HowLong(absl::Duration workers_run) const;
  void ReportLostServer(bool was_up, SteadyTime now, Effects* effects);
  void LeaveSilentServer(SteadyTime now, Effects* effects);
  void GiveUpServer(SteadyTime now, Effects* effects);
  void OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now, Effects* effects);
  // A delayed Assign counts once the server has answered a heartbeat sent now (protocol 4.7).
  void Confirm(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects);
  void OnAssign(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects);
  void OnStopRound(const rendezvous::StopRound& stop, SteadyTime now, Effects* effects);
  void OnExcludedFromRound(const rendezvous::ExcludedFromRound& without, Effects* effects);
  void OnHangReport(const rendezvous::Hang& hang, Effects* effects);
  void OnInspect(const rendezvous::Inspect& inspect, Effects* effects);
  // Remembers the hang, until it is over. Returns false if the message says nothing new.
  bool LearnHang(const rendezvous::Hang& hang);
  void OnFinish(const rendezvous::Finish& finish, SteadyTime now, Effects* effects);
  std::string Self() const;                                // "node1 (10.0.0.5)"
  std::string RanksText(const LocalRanks& workers) const;  // in current_: "rank 3", "ranks 0, 2-3", "no rank"
  // Line about a round that begins.
  std::string DescribeRound(const rendezvous::Assignment& assignment) const;

  // The workers.
  std::vector<FailureEvidence> TakeEnds(const std::vector<WorkerEnd>& ends);
  void ReportFailure(const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects);
  void OnReFormed(int32_t local_rank, const worker_contract::LinkReFormed& line, Effects* effects);
  void OnGroupBroken(const GroupBroken& broken, SteadyTime now);
  void OnLinkClosed(int32_t local_rank, SteadyTime now, Effects* effects);

  // The end of a round.
  // Ends this node's part in the round: workers that can re-form are suspended if `keep` says that this may help,
  // others are stopped.
  void LeaveRound(bool keep, worker_contract::LinkSuspend line, SteadyTime now, Effects* effects);
  // The other nodes may continue without this node: its workers must have ended before that.
  void StopBecauseCutOff(SteadyTime now, Effects* effects);
  // Stops all workers, suspended ones too, then goes idle, or exits if exit_ is set. `signal` is
  // nullopt if the workers have already received it.
  void Stop(std::optional<int> signal, const std::string& reason, SteadyTime now, Effects* effects);
  void StopThese(LocalRanks workers, std::optional<int> signal, const std::string& reason, SteadyTime now,
                 Effects* effects);
  void KillOrAbandon(SteadyTime now, Effects* effects);
  void LeaveStuck(SteadyTime now, Effects* effects);
  void OnSuspended(int32_t local_rank, const worker_contract::LinkSuspended& line, SteadyTime now, Effects* effects);
  // Asks workers that may still finish their step to suspend now.
  void SuspendNow(Effects* effects);
  // Stops suspended workers that can't continue.
  void StopSurvivors(const std::string& reason, SteadyTime now, Effects* effects);
  // Kills workers that can't be suspended or reached. They can be started again once they have ended.
  void KillSurvivors(const LocalRanks& ranks, SteadyTime now, Effects* effects);
  void ReportLostSurvivors(const std::vector<WorkerEnd>& ends, Effects* effects);
  // Called when a worker has ended or is suspended.
  void OnFewerWorkers(SteadyTime now, Effects* effects);
  // Nothing is left of the round: all workers are quiet, or gone if the launcher is to exit.
  bool Stopped() const { return exit_ ? !workers_.AnyAlive() : workers_.Quiet(); }
  void OnStopped(Effects* effects);
  SteadyTime CutOffAt() const;

  // Signals and the exit.
  void OnWarning(const Signal& signal, SteadyTime now, Effects* effects);
  // Asks the workers to write a checkpoint.
  void RequestCheckpoint(const LocalRanks& workers, SteadyTime now, Effects* effects);
  // True if the workers have received the signal already.
  bool Delivered(const Signal& signal) const;
  void SendLeaveForSignal(SteadyTime now, Effects* effects);
  void SendLeave(const std::string& reason, int signal, SteadyTime now, Effects* effects);
  void StopAndExit(effect::Exit exit, std::optional<int> signal, const std::string& reason, SteadyTime now,
                   Effects* effects);

  const AgentSettings settings_;
  State state_ = State::kConnecting;
  ServerLine line_;
  std::string leader_;  // address of the server if it leads several, else empty
  WorkerSet workers_;
  RoundFailures failures_;
  WaitReports reports_;
  std::optional<OpenedStore> store_;  // unset while it is being opened

  std::optional<rendezvous::Assignment> current_;                     // the latest accepted assignment
  bool left_out_ = false;                                             // a later round has started without the node
  std::optional<rendezvous::Assignment> unconfirmed_;                 // see Confirm
  rendezvous::Join::Phase joined_as_ = rendezvous::Join::PHASE_IDLE;  // phase in the last Join
  std::optional<rendezvous::Assignment> deferred_;     // accepted once a worker that is being killed has ended
  std::optional<rendezvous::WorkerFailure> reported_;  // failure of current_; sent again after a reconnection
  std::optional<rendezvous::Hang> straggler_;          // last report of stragglers, of any round
  std::optional<rendezvous::Hang> hang_;               // last reported hang; of current_, unless a newer round began

  std::optional<rendezvous::WorkerFailure> stuck_;  // a worker that could not be killed and has not ended
  Timer stuck_due_;                                 // end of the time that it may take to end

  std::optional<effect::Exit> exit_;  // exit once all workers have ended
  int leave_signal_ = 0;
  LocalRanks warned_;      // not connected at the last warning signal: receive the warning when they connect
  SteadyTime warned_end_;  // end of the job's time limit according to that signal
  Timer leave_;            // leave_signal_ is reported to the server; the launcher does not exit before
  Timer finish_wait_;      // the launcher has left, and does not exit before the server's answer or this time
  StopSequence stopping_;  // deadlines of workers that are stopping or suspending
  worker_contract::LinkSuspend suspend_;             // the request sent to suspending workers
  Timer suspend_now_;                                // end of the time for finishing their step
  std::optional<rendezvous::WorkerFailure> broken_;  // reported by a worker; a later failure may be its cause
  Timer broken_due_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_AGENT_MACHINE_H_
