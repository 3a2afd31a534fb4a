#ifndef DDPRUN_RENDEZVOUS_SERVER_DRIVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_DRIVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "proto/control.pb.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/registry.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/inspections.h"
#include "rendezvous/state/state_store.h"

namespace ddprun::rendezvous {

// One launcher's stream, as the driver sees it. Called from any thread, one call at a time, with no lock held;
// implementations return at once. Shared by the driver and the object that feeds it.
class Session {
 public:
  virtual ~Session() = default;

  // Queues a message for the launcher; dropped if the stream is gone.
  virtual void Send(const ServerMessage& message) = 0;

  // Ends the stream with `status` once everything queued was sent. Later calls of either method do nothing.
  virtual void End(const absl::Status& status) = 0;
};

// Runs a Registry: messages of sessions go in, its effects go out to the sessions in order, and a timer thread calls it
// when something is due. State changes are logged at kInfo. With a state store, a job's sessions receive what depends
// on a record only when the record is persisted; other jobs do not wait for that. While the store cannot persist
// records, of one job or of all, the launchers of the jobs that wait for one are notified with a Waiting. Once the
// store reports that the records belong to another server, incoming messages have no effect. Thread-safe; no session is
// called with a lock held. Outlives every Server and LocalClient that uses it.
class Driver {
 public:
  // The kind of process the driver runs in, which launchers receive in their Welcome: a server inside a launcher ends
  // with it, and another launcher may take over.
  enum class Host { kDaemon, kLauncher };

  explicit Driver(Host host = Host::kDaemon);
  // Resumes from `saved` and persists changes in `store`, unless that is nullptr. The store outlives the driver, but
  // must have stopped calling it before the driver is destroyed. `events` starts with the events in `saved`, receives
  // new ones and outlives the driver; it may be nullptr.
  Driver(Host host, SavedState saved, StateStore* store, EventLog* events = nullptr);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Handles a message of the launcher at `session`. The session is ended with:
  //   INVALID_ARGUMENT     its first message is not a Join, or a later one is.
  //   FAILED_PRECONDITION  the registry refused the Join (a Rejected came before).
  //   ABORTED              its node has joined with a newer incarnation, or twice with this one.
  //   RESOURCE_EXHAUSTED   too many jobs (a Rejected came before).
  //   UNAVAILABLE          it was silent and counts as lost; it may join again.
  //   OK                   it said Leave, and has no workers left.
  // REQUIRES: OnClosed was not called for the session.
  void OnMessage(const std::shared_ptr<Session>& session, const LauncherMessage& message);

  // The launcher at `session` sends nothing more: it closed the stream (which is then ended with OK after a Finish or a
  // Leave, else with INVALID_ARGUMENT) or the stream broke. The last call for a session; required for each.
  void OnClosed(const std::shared_ptr<Session>& session);

  // Blocks until the streams of all launchers in other processes are closed, so that each could receive its Finish, and
  // until no launcher that was disconnected when its job ended is expected any more (Registry::UnheardUntil). Returns
  // false if that is not the case by `deadline`.
  bool WaitUntilLaunchersLeft(SteadyTime deadline);

  // Likewise for launchers that sent Leave and are stopping their workers: without a server they would have to kill
  // them (protocol 4.5). Also returns false once all of them have been silent long enough to have done so.
  bool WaitUntilLeaversLeft(SteadyTime deadline);

  // Makes both waits, current and later ones, return false at once.
  void StopWaiting();

  // Executes a command (Registry::OnCommand). `answer` is called once, from any thread, with OK or a refusal, and only
  // when everything that the job (for hosts: the server) has handed to the store is persisted, so that the answer holds
  // after a crash. Also:
  //   UNAVAILABLE        records cannot be persisted now, or this server is no longer the leader: nothing was done.
  //   DEADLINE_EXCEEDED  it is unknown whether the command takes effect, because its record cannot be persisted.
  void OnCommand(const Command& command, const Caller& caller, std::function<void(absl::Status)> answer);

  // Collects what the question asks for (Registry::Inspect, Inspections) in `response`, which must exist until `answer`
  // is called, once and from any thread. Refuses calls as Registry::Inspect and Inspections do, and with:
  //   UNAVAILABLE  this server is shutting down or is no longer the leader.
  void Inspect(v1::InspectRequest question, const Caller& caller, v1::InspectResponse* response,
               std::function<void(absl::Status)> answer);

  // Answers commands that wait for a record with DEADLINE_EXCEEDED, ends Inspect with UNAVAILABLE, and refuses later
  // ones.
  void StopCommands();

  // Return what Registry does. If a job cannot continue because its record cannot be persisted, its reason says so.
  std::vector<v1::Job> ListJobs(absl::string_view after, size_t limit) const;
  std::optional<v1::Job> GetJob(absl::string_view job_id) const;

  // Number of launchers in other processes that have joined and whose streams are open.
  int Launchers() const;

  // Why records cannot be persisted now; "" if they can, or if there is no store.
  std::string StoreTrouble() const;

  // Names of the drained hosts.
  std::vector<std::string> DrainedHosts() const;

  EventLog* events() const { return events_; }

 private:
  // A session between its first message and OnClosed.
  struct Peer {
    enum class State {
      kNew,     // has sent nothing yet
      kJoined,  // has a key in `joined_`
      kEnded,   // End was called; its further messages are ignored
    };
    State state = State::kNew;
    NodeKey key;
    std::string name;  // host and address, for the log
    bool in_process = false;
    bool finished = false;      // received Finish
    bool left = false;          // sent Leave
    bool cut = false;           // ended at once: messages that still wait for a record are dropped
    SteadyTime heard;           // time of the last message
    absl::Duration fence_time;  // how long after `heard` its workers can be alive
  };

  // Something to do with no lock held: send a message, end a session, log a line, publish an event, answer a command.
  // In held_ it can also be just a marker that waits for a record.
  struct Action {
    std::shared_ptr<Session> session;
    std::optional<ServerMessage> message;
    std::optional<absl::Status> end;
    std::string log;
    std::unique_ptr<Event> event = nullptr;
    std::function<void(absl::Status)> answer = nullptr;
    absl::Status answered = absl::OkStatus();  // argument of `answer`
    bool wait = false;
  };

  // The current time; call before each call of the registry, which also needs the wall clock.
  SteadyTime NowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinLocked(const std::shared_ptr<Session>& session, Peer* peer, const Join& join)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const std::shared_ptr<Session>& session, Peer* peer, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When the workers of all launchers that left must be gone.
  SteadyTime LeaversGoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetKeyLocked(Peer* peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PeerGoneLocked(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueEffectsLocked(Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Tell tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Close close) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Report report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Persist persist) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues `action` until all records that the job has handed to the store are persisted.
  void QueueAfterRecordsLocked(const std::string& job_id, Action action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job's oldest pending record is persisted.
  void OnRecordPersisted(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The store cannot persist records, or can again ("").
  void OnStoreError(const std::string& trouble) ABSL_LOCKS_EXCLUDED(mutex_);
  // The store cannot persist records of one job, or can again ("").
  void OnJobStoreError(const std::string& job_id, const std::string& trouble) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the job's records cannot be persisted now; "" if they can.
  std::string StoreErrorLocked(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notifies all launchers of a job whose record is pending what it waits for.
  void NotifyStoreErrorLocked(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers the job's commands whose record is pending that it is unknown whether they take effect.
  void AnswerOutcomeUnknownLocked(const std::string& job_id, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowStoreErrorLocked(v1::Job* job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Waiting DescribeStoreErrorLocked(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stream with this key is over, for the registry or for the launcher.
  void RemoveKeyLocked(const NodeKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerLocked(Inspections::Answers answers, const absl::Status& status = absl::OkStatus())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SteadyTime NextDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogLocked(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeTimerIfEarlierLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if this server may act; once false, it stays false (StateStore::Owned).
  bool OwnedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return store_ == nullptr || store_->Owned(); }
  // Runs queued actions, unless another thread is running them, which then runs these too.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer();

  const Host host_;
  const std::string process_name_;  // name of this process; empty unless it is a launcher
  StateStore* const store_;         // nullptr: nothing is persisted
  EventLog* const events_;          // nullptr: events are dropped
  mutable Mutex mutex_;
  Registry registry_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<const Session*, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeKey, std::shared_ptr<Session>> joined_ ABSL_GUARDED_BY(mutex_);
  Inspections inspections_ ABSL_GUARDED_BY(mutex_);
  int remote_launchers_ ABSL_GUARDED_BY(mutex_) = 0;  // peers of other processes that joined
  int leavers_ ABSL_GUARDED_BY(mutex_) = 0;           // how many of them sent Leave
  bool stop_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool takes_commands_ ABSL_GUARDED_BY(mutex_) = true;
  CondVar everyone_left_;  // signaled when remote_launchers_ or leavers_ changes, or stop_waiting_ is set
  std::deque<Action> actions_ ABSL_GUARDED_BY(mutex_);
  // Actions waiting for a record on its way to the store, in order, per job. Each queue begins with a wait.
  std::unordered_map<std::string, std::deque<Action>> held_ ABSL_GUARDED_BY(mutex_);
  std::string store_trouble_ ABSL_GUARDED_BY(mutex_);  // "": none
  std::unordered_map<std::string, std::string> job_troubles_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime armed_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();  // when the timer thread wakes
  CondVar timer_;
  std::thread timer_thread_;  // last: started when all else exists
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_DRIVER_H_
