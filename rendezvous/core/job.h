#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/departed_nodes.h"
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
#include "rendezvous/core/job_view.h"
#include "rendezvous/core/membership.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/node_cooldowns.h"
#include "rendezvous/core/notice_timer.h"
#include "rendezvous/core/participants.h"
#include "rendezvous/core/previous_job.h"
#include "rendezvous/core/recovery.h"
#include "rendezvous/core/restart_budget.h"
#include "rendezvous/core/round.h"

namespace ddprun::rendezvous {

// One job from its first node's Join to its verdict: the round state machine (job_state.h has its diagram and its
// transitions). It answers every event in every state; what it knows lies in its parts: who is there (Membership), the
// round and its nodes' reports after a server's restart (Round, Recovery), whose workers may be left (Fence), which
// failure followed from a loss (HeldFailure), what failures cost (RestartBudget), and whom (NodeCooldowns).
// Thread-compatible. Joins were checked by CheckJoin. Code is in job.cc (events), job_join.cc (who joins and comes
// back), job_round.cc (rounds and the end) and job_command.cc.
class Job {
 public:
  // The context of an event.
  struct Turn {
    SteadyTime now;
    Effects* effects;
    absl::Time wall_time = {};  // for events
  };

  // Workers that do not end within the join timeout and this hold up a round for good: the job fails.
  static constexpr absl::Duration kStopTimeout = absl::Minutes(10);

  // `first` is about to join and brings the settings that all nodes must bring.
  Job(const Join& first, JobOrigin origin, const JobServer& server, SteadyTime now);
  // Resumes a job of an earlier server, whose nodes will report. REQUIRES: server.keeps_records; the job has a round
  // and no verdict.
  Job(JobRecord record, const JobServer& server);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Each is answered in every state but the end's.
  void OnJoin(const Join& join, const Turn& turn);
  // The job has just begun: to be called before its first OnJoin.
  void ReportCreated(const Turn& turn);
  // True if the nodes that wait in both jobs may be meant to be one job: one has a mistyped id.
  bool MayBeOneJobWith(const Job& other) const;
  // Shown to the nodes of this job while others are missing: why they may be. Until the next round begins.
  void Hint(std::string hint, const Turn& turn);
  void OnMessage(absl::string_view node_id, uint64_t incarnation, const LauncherMessage& message, const Turn& turn);
  void OnStreamClosed(absl::string_view node_id, uint64_t incarnation, const Turn& turn);
  void OnDeadline(const Turn& turn);

  // Commands of `actor`. REQUIRES: !ended(). A command that fails changes nothing:
  //   NOT_FOUND         no such node.
  //   INVALID_ARGUMENT  a name that several nodes have.
  //   UNAVAILABLE       not at this moment; the text says what to wait for.
  absl::Status Stop(const std::string& actor, const Turn& turn);
  absl::Status Kick(const std::string& name, const std::string& actor, const Turn& turn);
  absl::Status Resize(const JobSize& size, const std::string& actor, const Turn& turn);
  // The size or the set of drained hosts has changed; `what` says how.
  void ApplyChange(const std::string& what, const Turn& turn);

  SteadyTime NextDeadline() const;

  const std::string& owner() const { return owner_; }
  JobState state() const { return state_; }
  bool ended() const { return IsEnd(state_); }
  size_t nodes() const { return members_.size(); }
  bool HasHost(absl::string_view host) const { return members_.HasHost(host); }
  bool HasNode(absl::string_view node_id) const { return members_.Find(node_id) != nullptr; }
  JobView View(SteadyTime now, bool with_nodes) const;
  JobRecord Record(SteadyTime now) const;
  // The event was answered: its record, if it handed one out, gets all that people are to know afterwards.
  void CompleteRecord(SteadyTime now);

  // REQUIRES: ended().
  EndedJob Ended(SteadyTime now) const;

 private:
  // job.cc
  Job(const JobRecord& record, JobOrigin origin, const JobServer& server, SteadyTime now);
  void RemoveExpired(const Turn& turn);
  void RemoveSilent(Node* node, Departure* departure, const Turn& turn);
  // Settles how long the node may be silent from this Join on, and tells it.
  void SendWelcome(Node* node, const Join& join, const Turn& turn);
  void OnLeave(Node* node, const Leave& leave, const Turn& turn);
  // Waiting nodes have to be told, if there are any.
  void NoteChange(SteadyTime now);
  void OnReady(Node* node, const Ready& ready, const Turn& turn);
  void OnSucceeded(Node* node, const GroupSucceeded& message, const Turn& turn);
  void OnStateDeadline(const Turn& turn);
  SteadyTime StateDeadline() const;
  void SendNotices(const Turn& turn);
  Waiting DescribeWaiting(SteadyTime now) const;
  void Send(const Node& node, ServerMessage message, const Turn& turn) const;
  void Close(const std::string& node_id, uint64_t incarnation, rendezvous::Close::Why why, const Turn& turn) const;
  void Refuse(const std::string& node_id, uint64_t incarnation, std::string reason, const Turn& turn) const;
  // To be called after a change of recorded state, before messages that depend on it.
  void Persist(std::string event, const Turn& turn);
  // Something happened, in the job's latest round; to be called after Persist.
  void Report(Event event, const Turn& turn);
  void Report(Event::Kind kind, const Node& node, std::string detail, const Turn& turn);

  // job_join.cc
  void OnNewcomer(const Join& join, const Turn& turn);
  void LearnRound(uint64_t number, const Turn& turn);
  void OnRejoin(Node* node, const Join& join, const Turn& turn);
  void ReconcileRunning(Node* node, const Join& join, const Turn& turn);
  // Takes the phase of a node that is in no round, and stops the workers that it still runs.
  void TakePhase(Node* node, const Join& join, const Turn& turn);
  // A node that joined, or became idle, while a round runs without it.
  void ConsiderLate(const Node& node, const Turn& turn);
  // Considers all nodes that are not in the running round.
  void ConsiderAllLate(const Turn& turn);
  bool StartsRecovery(const Join& join) const;
  void TakeReport(Node* node, const Join& join, const Turn& turn);
  // Takes the report of a node that does not know the round that is resumed.
  void TakeReportOfOlder(Node* node, const Join& join, const Turn& turn);
  // False if the node id is known to belong to another launcher process.
  bool IsTrueNode(const Join& join) const;
  // For the launcher of this Join the job is over.
  void SendVerdict(const Join& join, Verdict verdict, const Turn& turn);
  void ResumeRound(const Assignment& assignment, const Turn& turn);
  void ForgetReport(Node* node);
  void LeaveInRecovery(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn);
  void CompleteRecoveryIfAllReported(const Turn& turn);
  void CompleteRecovery(const Turn& turn);
  void GiveUpRecovery(const Turn& turn);

  // job_round.cc
  static constexpr absl::string_view kRecoveringReason =
      "server restarted; waiting for the nodes of the running round to rejoin";
  void Enter(JobState to, std::string reason);
  // More nodes while no round is decided: begins the last call or the round.
  void Gather(const Turn& turn);
  void StartRound(std::string reason, const Turn& turn);
  // Ends the present round before its time: with min nodes the next follows, else the job waits.
  // `at_step_end`: nothing is broken, workers may finish their step.
  void LeaveRound(std::string reason, std::optional<WorkerFailure> cause, const Turn& turn, bool at_step_end = false);
  void StopAll(const Turn& turn);
  // Once for each round.
  void ReportStopped(const Turn& turn);
  // Of the round that it may still run.
  StopRound StopOf(const Node& node) const;
  void EnterWaiting(std::string reason, const Turn& turn);
  // The reason of the present state, with what holds up a round that has been decided.
  std::string ReasonAt(SteadyTime now) const;
  // The nodes at hand are ready for the next round. Asked after every event, so it looks at all nodes (LeftOutNow) only
  // when their workers have stopped.
  bool WaitsForGoneOnly() const {
    return members_.all_stopped() && ReadyForRound(members_, size_.max_nodes, LeftOutNow());
  }
  // Nodes that the next round begins without, or that the present round leaves out.
  LeftOutNodes LeftOutNow() const;
  std::string DescribeLeftOut(const Node& node) const;
  // Notifies these nodes. Nodes that may claim to be in touch must answer before the round begins (protocol 3.9).
  void NotifyLeftOut(const Turn& turn);
  void TryAssign(const Turn& turn);
  // Survivors that can't go on in the next round, of nodes that are about to take part in it, have to stop first: all
  // of them if one of these nodes can't keep its workers, and those that missed a round. True if there were any.
  bool StopSurvivors(const Turn& turn);
  // A node that may be gone is not assigned a round, but is lost. Returns true if there was one.
  bool RemoveQuiet(const Turn& turn);
  void Assign(const Turn& turn);
  void OnWorkerFailed(Node* node, const WorkerFailed& message, const Turn& turn);
  // Returns the verdict if the failure on this node ends the job. Otherwise charges one restart.
  std::optional<Verdict> Charge(absl::string_view node_id, const WorkerFailure& failure, const Turn& turn);
  // Takes away a node that is gone.
  void Remove(Node* node, Going going, Departure* departure, const Turn& turn);
  // Decides once for all nodes that went in the same moment: none of them may be given ranks first.
  void OnDeparture(const Departure& departure, const Turn& turn);
  void OnGone(Node* node, Going going, const Turn& turn);
  // How long to wait for nodes while there are fewer than min (protocol 3.1, 4.2).
  absl::Duration WaitLimit() const;
  // Nodes that may get ranks: all but those that came from drained hosts.
  int32_t usable_nodes() const {
    return static_cast<int32_t>(members_.size() - CountDrainedNewcomers(members_, *server_.drained));
  }
  bool TooFew() const { return usable_nodes() < size_.min_nodes; }
  // That a round can have had, before or after a command.
  size_t LargestSize() const { return std::max(settings_.max_nodes(), size_.max_nodes); }
  // With the size that holds now.
  JobSettings SettingsNow() const;
  void EndWithTooFew(absl::string_view what, const Turn& turn);
  // `actor`: who stopped the job with a command, if it ends by that.
  void End(Verdict verdict, const Turn& turn, std::string actor = "");

  const std::string job_id_;
  const JobSettings settings_;       // that nodes bring; but size_ says how many nodes
  const std::string settings_host_;  // whose settings they are
  const std::string owner_;          // as JobRecord has it
  const SteadyTime created_;
  const PreviousJob previous_;
  const JobServer server_;
  JobSize size_;          // as the settings have it, or as the last command said
  bool resized_ = false;  // by a command

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
  std::string held_node_;  // whose worker's failure is held
  JobProgress progress_;
  Goodput goodput_;
  JobHistory history_;                                  // only with records
  std::shared_ptr<JobRecord> kept_;                     // the last record of this turn
  SteadyTime restart_at_ = SteadyTime::InfinitePast();  // not before
  DeparturesOfRound departures_;
  DepartedNodes departed_;
  std::string next_reason_;        // of the round that comes next
  uint64_t reported_stopped_ = 0;  // the last round of which it was said that it is over

  std::optional<SteadyTime> waiting_since_;  // since no round ran
  SteadyTime last_call_end_;
  SteadyTime stop_deadline_;
  NoticeTimer notices_;
  std::optional<Verdict> verdict_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_H_
