#ifndef DDPRUN_LAUNCHER_CORE_AGENT_MACHINE_H_
#define DDPRUN_LAUNCHER_CORE_AGENT_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/core/cluster_environment.h"
#include "launcher/core/first_cause.h"
#include "launcher/core/lease.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/messages.h"

// PURE: what one launcher does next, as a function of (state, event, now). The shell (launcher/agent.h) turns
// messages, deaths of processes and signals into calls, and carries out the effects in order.
//
//                  Welcome            Assign                all workers ended with 0
//   kConnecting ------------> kIdle ----------> kRunning ---------------------------> kSucceeded
//                               ^                  |  StopRound, a worker's failure         | StopRound
//                               |   workers gone   v                                      v
//                               +------------- kStopping <--------------------------------+
//                                                  |  Finish, a signal, no server for too long
//                                                  v
//                                                kDone    (from any state; at once if no worker runs)
//
// A launcher that can't be certain any more that the server counts on it stops its workers (lease.h) and is idle.
namespace ddprun::launcher {

struct AgentSettings {
  rendezvous::Join join;  // who this node is; phase, current, incarnation and store_port are filled in
  std::string server;     // the rendezvous server's address, for messages
  std::vector<std::string> expected_hosts;               // names of the nodes that are to come; empty: not known
  absl::Duration shutdown_timeout = absl::Seconds(30);   // from SIGTERM to SIGKILL
  absl::Duration reconnect_timeout = absl::Seconds(30);  // how long workers run on without the server
  std::optional<BatchSystem> batch;                      // that started the launcher
  std::vector<int> warning_signals;                      // passed on to the workers; all others stop the job
};

// A signal that the launcher got.
struct Signal {
  int number = 0;
  std::string text;                // for people: "SIGTERM from process 123 (bash)"
  bool from_batch_system = false;  // which then sends it to all nodes of the job
  // Until the job's time is over; infinite if nobody has said when that is.
  absl::Duration time_left = absl::InfiniteDuration();
};

// How one worker ended. `failure` is set unless it exited with 0.
struct WorkerEnd {
  int32_t local_rank = 0;
  std::optional<rendezvous::WorkerFailure> failure;
  FailureClass failure_class = FailureClass::kCrash;  // of the failure
};

namespace effect {
// Give the message to the client, with the present store's port in a Join or Ready.
struct Send {
  rendezvous::LauncherMessage message;
};
struct ResetConnection {};
// Close the store there is, if any, and listen on another port.
struct OpenStore {};
struct SpawnWorkers {
  rendezvous::Assignment assignment;
};
// To the workers themselves, not to their children.
struct SignalWorkers {
  int signal;
};
// SIGKILL to the process groups of workers that still run.
struct KillWorkers {};
// Kill what workers of the ended round left behind outside their process groups.
struct SweepOrphans {};
// Say which ranks have not come to the store, if some have and others have not.
struct ReportMissingRanks {};
struct Print {
  LogLevel level;
  std::string text;
};
// What the launcher waits for: a line on a terminal that the next one replaces; empty ends it.
struct ShowStatus {
  std::string text;
};
// The end. `verdict` is set if the server gave one; `siblings` failed on this node in the same instant.
struct Exit {
  int code;
  std::optional<rendezvous::Verdict> verdict;
  std::vector<rendezvous::WorkerFailure> siblings;
};
}  // namespace effect

using AgentEffect = std::variant<effect::Send, effect::ResetConnection, effect::OpenStore, effect::SpawnWorkers,
                                 effect::SignalWorkers, effect::KillWorkers, effect::SweepOrphans,
                                 effect::ReportMissingRanks, effect::Print, effect::ShowStatus, effect::Exit>;

// Code is in agent_machine.cc and, how a node stops, in agent_machine_stop.cc.
// Thread-compatible; the launcher's loop owns it. Every method may be called in every state. Effects are appended.
class AgentMachine {
 public:
  using Effects = std::vector<AgentEffect>;
  enum class State { kConnecting, kIdle, kRunning, kSucceeded, kStopping, kDone };

  AgentMachine(AgentSettings settings, SteadyTime now);

  // The first call. Opens the store; the client is to be connected after it.
  void Start(Effects* effects);

  void OnConnected(SteadyTime now, Effects* effects);
  // `refused`: when an attempt to connect began which said that nobody listens any more where the server was.
  void OnDisconnected(const std::string& reason, bool permanent, std::optional<SteadyTime> refused, SteadyTime now,
                      Effects* effects);
  void OnServerMessage(const rendezvous::ServerMessage& message, SteadyTime now, Effects* effects);

  // Workers of the present round that ended since the last call, all at once so that the first cause can be told
  // from what followed from it. `cause` indexes the failure in `ends` to be reported (ignored if none failed).
  void OnWorkersEnded(const std::vector<WorkerEnd>& ends, size_t cause, SteadyTime now, Effects* effects);

  // SpawnWorkers could not start all: `started` of them run, `failure` says why not the next one.
  void OnSpawnFailed(int started, const rendezvous::WorkerFailure& failure, SteadyTime now, Effects* effects);

  // How many of the round's ranks have come to the store that this launcher hosts.
  void OnRanksJoined(int joined, SteadyTime now, Effects* effects);

  // The round's store, on another node, has answered this launcher, or why it can't be reached.
  void OnStoreReached(const absl::Status& status, SteadyTime now, Effects* effects);

  // This launcher hosts the server; where it does, for people: "this node serves at 10.0.0.5:29400". Empty: it does not.
  void OnServing(std::string where) { serving_ = std::move(where); }

  // A warning is passed on to the workers, any other signal stops the job. What a batch system sends to every process
  // by itself is not sent to the workers a second time. It sends the signal to all nodes of the job, but not
  // in the same instant. So what happens in the quarter of a second around it is not taken for anything else:
  //   - a failure that may be the signal's work (an exit code, SIGTERM, a lost peer) is held back before it is told
  //     the server, and forgotten if the signal comes, or the word that the round is over;
  //   - the launcher tells the server that it leaves only after that time. A verdict that comes before still counts.
  void OnSignal(const Signal& signal, SteadyTime now, Effects* effects);

  // Something that the launcher itself needs is broken (no port for the store, say): leave and exit with 1.
  void OnFatal(const std::string& reason, SteadyTime now, Effects* effects);

  void OnDeadline(SteadyTime now, Effects* effects);
  SteadyTime NextDeadline() const;

  State state() const { return state_; }

  // By then no worker may run any more, unless this has changed: for whoever sees to it if this launcher hangs.
  SteadyTime WorkersMayRunUntil() const;

 private:
  enum class Link { kDown, kJoining, kUp };

  // A batch system's signal reaches all processes of a job, on all nodes, within this.
  static constexpr absl::Duration kSignalSpread = absl::Milliseconds(250);

  void SendJoin(SteadyTime now, Effects* effects);
  void SayLeave(const std::string& reason, SteadyTime now, Effects* effects);
  void LostStream(const std::string& reason, SteadyTime now, Effects* effects);
  void LeaveSilentServer(SteadyTime now, Effects* effects);
  void OnWelcome(const rendezvous::Welcome& welcome, SteadyTime now, Effects* effects);
  void OnWaiting(const rendezvous::Waiting& waiting, SteadyTime now, Effects* effects);
  void OnAssign(const rendezvous::Assignment& assignment, SteadyTime now, Effects* effects);
  void OnStopRound(const rendezvous::StopRound& stop, SteadyTime now, Effects* effects);
  void OnFinish(const rendezvous::Verdict& verdict, SteadyTime now, Effects* effects);
  void OnFailure(const WorkerEnd& cause, SteadyTime now, Effects* effects);
  void TellHeldFailure(SteadyTime now, Effects* effects);
  void ReportFailure(const rendezvous::WorkerFailure& failure, Effects* effects);
  void OnWarning(const Signal& signal, Effects* effects);
  // Whether the workers have got the signal already.
  bool Delivered(const Signal& signal) const;
  // Stops the workers if any run, then goes idle, or exits if exit_ is set. Without a signal: they have it already.
  void Stop(std::optional<int> signal, SteadyTime now, Effects* effects);
  void OnStopped(SteadyTime now, Effects* effects);
  // The others may go on without this node: its workers have to be gone before they do.
  void StopBecauseCutOff(SteadyTime now, Effects* effects);
  SteadyTime CutOffAt() const;
  SteadyTime KillAt() const;
  void BecomeIdle(SteadyTime now);
  void ReportStore(Effects* effects);
  std::string Self() const;  // "node1 (10.0.0.5)"
  std::string DescribeRound(const rendezvous::Assignment& assignment) const;
  std::string WaitText(SteadyTime now) const;

  AgentSettings settings_;
  State state_ = State::kConnecting;
  Link link_ = Link::kDown;
  uint64_t incarnation_ = 0;
  rendezvous::Join::Phase joined_as_ = rendezvous::Join::Phase::kIdle;  // what the last Join said

  // The last assignment taken, and what is left of its workers.
  std::optional<rendezvous::Assignment> current_;
  int running_ = 0;
  int ranks_joined_ = 0;
  std::optional<rendezvous::WorkerFailure> reported_;  // of current_; told again after a reconnection
  std::vector<rendezvous::WorkerFailure> siblings_;
  std::optional<WorkerEnd> held_;     // a failure that may turn out to be a signal's work
  std::optional<effect::Exit> exit_;  // what follows the stop
  std::string leave_reason_;          // to be told at leave_at_
  std::optional<rendezvous::Waiting> waiting_;
  SteadyTime waiting_at_;
  std::string last_disconnect_;
  std::string serving_;
  std::string store_problem_;  // what is to be said at store_late_at_
  bool ever_up_ = false;
  Lease lease_;
  bool leaving_ = false;  // the server was told on the present stream: beats go on until the workers are gone

  absl::Duration heartbeat_interval_ = absl::InfiniteDuration();
  SteadyTime started_;
  SteadyTime round_started_;
  SteadyTime next_heartbeat_ = SteadyTime::InfiniteFuture();
  SteadyTime silent_at_ = SteadyTime::InfiniteFuture();   // the server counts as silent from then on
  SteadyTime give_up_at_ = SteadyTime::InfiniteFuture();  // no server until then: exit
  SteadyTime kill_at_ = SteadyTime::InfiniteFuture();     // SIGKILL (or before, see KillAt), then abandon
  bool killed_ = false;
  SteadyTime next_report_ = SteadyTime::InfiniteFuture();    // of what is waited for
  SteadyTime missing_at_ = SteadyTime::InfiniteFuture();     // report of missing ranks
  SteadyTime store_late_at_ = SteadyTime::InfiniteFuture();  // report of a store that can't be reached
  SteadyTime held_until_ = SteadyTime::InfiniteFuture();     // held_ is a failure like any other
  SteadyTime leave_at_ = SteadyTime::InfiniteFuture();       // the server is told; the launcher does not exit before
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_AGENT_MACHINE_H_
