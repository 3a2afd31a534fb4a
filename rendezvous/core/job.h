#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/departure.h"
#include "rendezvous/core/effect.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/fence.h"
#include "rendezvous/core/goodput.h"
#include "rendezvous/core/job_history.h"
#include "rendezvous/core/job_progress.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_state.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_cooldowns.h"
#include "rendezvous/core/notice_timer.h"
#include "rendezvous/core/participants.h"
#include "rendezvous/core/previous_job.h"
#include "rendezvous/core/recovery.h"
#include "rendezvous/core/round.h"
#include "rendezvous/core/verdicts.h"

namespace ddprun::rendezvous {

// Bounds on the number of nodes of a job.
struct JobSize {
  int32_t min_nodes = 1;
  int32_t max_nodes = 1;
};

// One job, from the Join of its first node to its verdict: the state machine of rounds, whose diagram is in
// job_state.h. Registry passes it the events of its nodes, and it answers each with effects (effect.h). Job combines
// its parts, each of which keeps one piece of knowledge:
//   - Membership: the nodes, and when each was last heard from;
//   - Round: the latest round; Recovery: what nodes have reported about it after a restart of the server;
//   - Fence: nodes that are gone, but may still have workers, so that no round may start;
//   - HeldFailure: a worker's failure that may be the consequence of the loss of a node;
//   - RestartBudget: the restarts charged; NodeCooldowns: nodes whose workers fail repeatedly.
// The code is in job.cc (events), job_join.cc (joins, returns, recovery), job_round.cc (rounds and the end of the job)
// and job_command.cc (commands). Messages must have passed Validate (validate.h). Thread-compatible.
class Job {
 public:
  // The context of an event: when it happens, and the list to which its effects are appended.
  struct Turn {
    SteadyTime now;
    Effects* effects;
    absl::Time wall_time = {};  // for Event::time and Hang::at only
  };

  // If workers do not stop within the join timeout plus this time, the job fails (protocol 3.3).
  static constexpr absl::Duration kStopTimeout = absl::Minutes(10);

  // Begins a job with the settings of `first`, the Join of its first node. Call ReportCreated and OnJoin(first) next.
  Job(const Join& first, JobOrigin origin, const JobServer& server, SteadyTime now);
  // Resumes a job of an earlier server from its record, in state kRecovering (protocol 4.4). REQUIRES:
  // server.keeps_records; the record has a round and no verdict.
  Job(const JobRecord& record, const JobServer& server);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Events. All may be called in every state except kFinished and kFailed.
  void OnJoin(const Join& join, const Turn& turn);
  // Emits the event kJobCreated. Call once for a new job, before its first OnJoin.
  void ReportCreated(const Turn& turn);
  // True if both jobs wait for nodes and would fit into one job, so that a job id may be mistyped.
  bool MayBeOneJobWith(const Job& other) const;
  // Adds `hint`, a possible reason why nodes are missing, to the reason that waiting nodes receive, until the next
  // round is decided. No effect unless the job is in kWaiting.
  void Hint(std::string hint, const Turn& turn);
  void OnMessage(absl::string_view node_id, uint64_t incarnation, const LauncherMessage& message, const Turn& turn);
  void OnStreamClosed(absl::string_view node_id, uint64_t incarnation, const Turn& turn);
  void OnDeadline(const Turn& turn);

  // Execute a command (protocol 3.10) of the user `actor`. REQUIRES: !ended(). A command that fails changes nothing:
  //   NOT_FOUND         the job has no such node.
  //   INVALID_ARGUMENT  a size out of bounds, or a host name that several nodes have.
  //   UNAVAILABLE       impossible at the moment; the message says what to wait for.
  absl::Status Stop(const std::string& actor, const Turn& turn);
  absl::Status Kick(const std::string& name, const std::string& actor, const Turn& turn);
  absl::Status Resize(const JobSize& size, const std::string& actor, const Turn& turn);
  absl::StatusOr<InspectedNodes> Inspect(const v1::Inspect& question, const Turn& turn) const;
  // Adapts the job to a change of its size or of the drained hosts, e.g. stops a round that has nodes of a drained
  // host. `what` describes the change.
  void ApplyChange(const std::string& what, const Turn& turn);

  SteadyTime NextDeadline() const;

  const std::string& owner() const { return owner_; }
  JobState state() const { return state_; }
  bool ended() const { return IsEnd(state_); }
  size_t nodes() const { return members_.size(); }
  bool HasHost(absl::string_view host) const { return members_.HasHost(host); }
  bool HasNode(absl::string_view node_id) const { return members_.Find(node_id) != nullptr; }
  // Returns the job for display: node ids are replaced by ShownId. `start`: wall time at SteadyTime's start.
  v1::Job View(SteadyTime now, absl::Time start, bool with_nodes) const;
  JobRecord Record(SteadyTime now) const;
  // Adds goodput and events to the record that was emitted during this event, if any. Call at the end of every event.
  void CompleteRecord(SteadyTime now);

  // Returns what the server remembers of this job after its end. REQUIRES: ended().
  EndedJob Ended(SteadyTime now, absl::Time start) const;

 private:
  // Events (job.cc).
  Job(const JobRecord& record, JobOrigin origin, const JobServer& server, SteadyTime now);
  void RemoveExpired(const Turn& turn);
  void RemoveSilent(Node* node, Departure* departure, const Turn& turn);
  // Answers a Join with Welcome, and determines the node's heartbeat timeout, which Welcome contains (protocol 4.7).
  void SendWelcome(Node* node, const Join& join, const Turn& turn);
  void OnLeave(Node* node, const Leave& leave, const Turn& turn);
  // Schedules Waiting messages (protocol 6), if any node waits. Call after every change that they show.
  void NoteChange(SteadyTime now);
  void OnReady(Node* node, const Ready& ready, const Turn& turn);
  void OnSucceeded(Node* node, const GroupSucceeded& message, const Turn& turn);
  // Passes the report of a hang on to the other nodes of the round (protocol 6.2).
  void OnHang(const Node& node, Hang hang, const Turn& turn);
  // Event about the first of its ranks.
  Event HangEvent(const char* kind, const Hang& hang) const;
  void OnStateDeadline(const Turn& turn);
  SteadyTime StateDeadline() const;
  void SendNotices(const Turn& turn);
  Waiting DescribeWaiting(SteadyTime now) const;
  void Send(const Node& node, ServerMessage message, const Turn& turn) const;
  void Close(const std::string& node_id, uint64_t incarnation, rendezvous::Close::Why why, const Turn& turn) const;
  void Refuse(const std::string& node_id, uint64_t incarnation, std::string reason, const Turn& turn) const;
  // Emits a record, if the server keeps records. Call after a change of recorded state, before messages that depend on
  // it. `event`: one line that says why.
  void Persist(std::string event, const Turn& turn);
  // Emits an event, with the job's id and latest round filled in. Call after the Persist of the same change.
  void Report(Event event, const Turn& turn);
  static Event EventOf(absl::string_view kind, const Node& node, std::string detail);

  // Joins, returns and recovery (job_join.cc).
  void OnNewcomer(const Join& join, const Turn& turn);
  void LearnRound(uint64_t number, const Turn& turn);
  void OnRejoin(Node* node, const Join& join, const Turn& turn);
  void ReconcileRunning(Node* node, const Join& join, const Turn& turn);
  // Applies the reported phase to a node that is not in the latest round, and stops the workers that it still has.
  void TakePhase(Node* node, const Join& join, const Turn& turn);
  // Stops the running round if it has room for this node, which joined or became idle during the round (protocol 3.6).
  void ConsiderLate(const Node& node, const Turn& turn);
  // Calls ConsiderLate for the first idle node that is not in the running round and not left out.
  void ConsiderAllLate(const Turn& turn);
  // True if the Join reports a round of an earlier server, so that the job has to recover (protocol 4.4).
  bool StartsRecovery(const Join& join) const;
  // Processes what a node reports about the round to recover (protocol 4.4).
  void TakeReport(Node* node, const Join& join, const Turn& turn);
  // Processes the Join of a node that has not received the round to recover.
  void TakeReportOfOlder(Node* node, const Join& join, const Turn& turn);
  // False if the Join's node id belongs to another launcher process: its session secret differs (protocol 2.4).
  bool IsTrueNode(const Join& join) const;
  // Answers a Join with Finish, and remembers the workers that the launcher still has to stop.
  void SendVerdict(const Join& join, Verdict verdict, const Turn& turn);
  // Adopts a reported round that is higher than the round to recover, and stops the nodes of the latter.
  void ResumeRound(const Assignment& assignment, const Turn& turn);
  void ForgetReport(Node* node);
  // Stops the round to recover. The job continues once all nodes of the round have reported.
  void LeaveInRecovery(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn);
  void CompleteRecoveryIfAllReported(const Turn& turn);
  void CompleteRecovery(const Turn& turn);
  // Ends the recovery at its deadline, without the nodes that have not reported.
  void GiveUpRecovery(const Turn& turn);

  // Rounds and the end of the job (job_round.cc).
  static constexpr absl::string_view kRecoveringReason =
      "server restarted; waiting for the nodes of the running round to rejoin";
  // Changes the state. Aborts the process if job_state.h does not list the transition.
  void Enter(JobState to, std::string reason);
  // Begins the last call, or decides the next round, if enough nodes have joined. Call in kWaiting and kLastCall when a
  // node has joined.
  void Gather(const Turn& turn);
  // Decides the next round (protocol 3.3), because of `reason`, and assigns it if all nodes are ready.
  void StartRound(std::string reason, const Turn& turn);
  // Stops the running round (StopRound to its nodes). If min nodes remain, the next round follows, otherwise the job
  // waits. `at_step_end`: nothing is broken, so workers may finish their step.
  void LeaveRound(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn, bool at_step_end = false);
  void StopAll(const Turn& turn);
  // Emits the event kRoundStopped, once per round.
  void ReportStopped(const Turn& turn);
  // Returns the StopRound message for the round that this node may still run.
  StopRound StopOf(const Node& node) const;
  void EnterWaiting(std::string reason, const Turn& turn);
  // Returns the reason of the current state; in kStopping with what the next round waits for.
  std::string ReasonAt(SteadyTime now) const;
  // True if all nodes that are in the job are ready for the next round, so that at most the fence and the restart
  // backoff delay it. Called after every event, so it examines all nodes (LeftOutNow) only if their workers have
  // stopped.
  bool WaitsForGoneOnly() const {
    return members_.all_stopped() && ReadyForRound(members_, size_.max_nodes, LeftOutNow());
  }
  // Returns the nodes that are left out of the next round, or of the running one (protocol 3.9, 3.10).
  LeftOutNodes LeftOutNow() const;
  std::string DescribeLeftOut(const Node& node) const;
  // Sends ExcludedFromRound to the nodes of LeftOutNow() that may claim to be in touch (protocol 3.9): they must answer
  // before the round starts.
  void NotifyLeftOut(const Turn& turn);
  // Assigns the round that has been decided, if nothing delays it any more.
  void TryAssign(const Turn& turn);
  // Stops survivors that the next round can't keep (protocol 3.8): all of them if one participant can't keep its
  // workers, and those that missed a round. Returns true if there were any; the round then waits for them.
  bool StopSurvivors(const Turn& turn);
  // Removes waiting nodes that were silent for the heartbeat timeout, so that they are not assigned a round (protocol
  // 4.7). Returns true if there were any.
  bool RemoveQuiet(const Turn& turn);
  void Assign(const Turn& turn);
  void OnWorkerFailed(Node* node, const WorkerFailed& message, const Turn& turn);
  // Charges one restart for the failure on this node. Returns the verdict instead if the failure ends the job.
  std::optional<Verdict> Charge(absl::string_view node_id, const WorkerFailure& failure, const Turn& turn);
  // Removes a node that is gone and adds it to `departure`. Call OnDeparture after the last node of the same event.
  void Remove(Node* node, Going going, Departure* departure, const Turn& turn);
  // Decides what follows from the loss of all nodes of `departure` together, so that no round is assigned to a node
  // that is about to be removed.
  void OnDeparture(const Departure& departure, const Turn& turn);
  // Removes one node, and decides what follows.
  void OnGone(Node* node, Going going, const Turn& turn);
  // Returns how long the job waits for nodes while it has fewer than min (protocol 3.1, 4.2).
  absl::Duration WaitLimit() const;
  // Returns the number of nodes that may get ranks: all except newcomers of drained hosts.
  int32_t usable_nodes() const {
    return static_cast<int32_t>(members_.size() - CountDrainedNewcomers(members_, *server_.drained));
  }
  bool TooFew() const { return usable_nodes() < size_.min_nodes; }
  // Upper bound on the number of nodes of any round of the job, before or after a resize.
  size_t LargestSize() const { return std::max(settings_.max_nodes(), size_.max_nodes); }
  // Returns the job's settings with its current size.
  JobSettings SettingsNow() const;
  // Fails a fixed-size job that lost a node (protocol 4.2). `what`: the loss.
  void EndWithTooFew(absl::string_view what, const Turn& turn);
  // Ends the job and sends the verdict to all nodes. `actor`: the user whose command stopped the job, if one did.
  void End(Verdict verdict, const Turn& turn, std::string actor = "");

  const std::string job_id_;
  const JobSettings settings_;       // required from every node; size_ overrides the number of nodes
  const std::string settings_host_;  // host whose Join determined settings_
  const std::string owner_;          // see JobRecord::owner
  const SteadyTime created_;
  const PreviousJob previous_;
  const JobServer server_;
  JobSize size_;          // number of nodes: from settings_, or from the last resize
  bool resized_ = false;  // true if a command changed size_

  JobState state_ = JobState::kWaiting;
  std::string state_reason_;
  std::string hint_;
  Membership members_;
  Fence fence_;
  RestartBudget budget_;
  Round round_;
  Recovery recovery_;
  NodeCooldowns cooldowns_;
  HeldFailure held_;
  std::string held_node_;  // id of the node whose worker's failure held_ holds
  JobProgress progress_;
  std::optional<Hang> hang_;       // last hang of the latest round, if it is not over; not in records
  std::optional<Hang> straggler_;  // last report of stragglers in the latest round; not in records
  SteadyTime next_hang_ = SteadyTime::InfinitePast();  // earlier reports are ignored
  Goodput goodput_;
  JobHistory history_;                                  // empty unless the server keeps records
  std::shared_ptr<JobRecord> kept_;                     // record that was emitted during the current event, if any
  SteadyTime restart_at_ = SteadyTime::InfinitePast();  // the next round starts no earlier
  DeparturesOfRound departures_;
  DepartedNodes departed_;
  std::string next_reason_;        // reason of the next round
  uint64_t reported_stopped_ = 0;  // last round for which kRoundStopped was emitted

  std::optional<SteadyTime> waiting_since_;  // when the job began to wait; unset while a round runs
  SteadyTime last_call_end_;
  SteadyTime stop_deadline_;
  NoticeTimer notices_;
  std::optional<Verdict> verdict_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_H_
