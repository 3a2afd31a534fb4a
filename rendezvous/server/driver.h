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
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/registry.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/session.h"
#include "rendezvous/state/state_store.h"

namespace ddprun::rendezvous {

// Runs a Registry: what sessions say goes in, its effects go out to the sessions in order, and a timer thread calls
// it when something is due (it sleeps for good while nothing is). State changes are logged at kInfo. With a state store
// a job's sessions are told what follows a record only when the record is safe; other jobs do not wait for that. While
// the store can't keep records, of one job or of all, the launchers of jobs that wait for one are told that (a
// Waiting). When the store says that the records are another server's, nothing that is said here has an effect any
// more. Thread-safe; no session is called with a lock held. Outlives every Server and LocalClient that uses it.
class Driver {
 public:
  // Whose process this is, as launchers are told in their Welcome: if a launcher's, another one may take its place.
  enum class Host { kDaemon, kLauncher };

  explicit Driver(Host host = Host::kDaemon);
  // Goes on with `saved`, and keeps what changes in `store`, unless that is nullptr. The store outlives the driver, but
  // must have stopped calling it before it is destroyed.
  // `events` begins with what `saved` has of them, gets what happens, and outlives the driver; nullptr: nobody wants to
  // know.
  Driver(Host host, SavedState saved, StateStore* store, EventLog* events = nullptr);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // The launcher at `session` says something. A session that breaks the protocol is ended:
  //   INVALID_ARGUMENT     its first message is not a Join, or a later one is.
  //   FAILED_PRECONDITION  the registry refused the Join (a Rejected came before).
  //   ABORTED              its node has joined with a newer incarnation, or twice with this one.
  //   RESOURCE_EXHAUSTED   too many jobs (a Rejected came before).
  //   UNAVAILABLE          it was silent and counts as lost; it may join again.
  //   OK                   it said Leave, and has no workers left.
  // REQUIRES: OnClosed was not called for the session.
  void OnMessage(const std::shared_ptr<Session>& session, const LauncherMessage& message);

  // The launcher at `session` will say no more: it closed the stream (which is then ended with OK after a Finish
  // or a Leave, else with INVALID_ARGUMENT) or the stream broke. The last call for a session; needed for each.
  void OnClosed(const std::shared_ptr<Session>& session);

  // Blocks until the streams of all launchers in other processes are closed, so that each could fetch its Finish, and
  // until nobody is expected any more who was cut off when its job ended (Registry::UnheardUntil). False at `deadline`
  // if it is not so by then.
  bool WaitUntilEveryoneLeft(SteadyTime deadline);

  // The same for those that left and stop their workers: without a server they would have to kill them (protocol 4.5).
  // One that has been silent for so long that it has done so is not waited for.
  bool WaitUntilLeaversLeft(SteadyTime deadline);

  // The two waits end at once, those under way and those to come: they return false.
  void StopWaiting();

  // As Registry::OnCommand. `answer` is called once, from any thread, with OK or a refusal only when all that the job
  // (of hosts: the server) has handed to the store is safe: what was answered holds after a crash. Also:
  //   UNAVAILABLE        no records can be kept at present, or this server does not lead any more: nothing was done.
  //   DEADLINE_EXCEEDED  it is not known whether the command takes effect, because its record can't be kept.
  void OnCommand(const Command& command, const Caller& caller, std::function<void(absl::Status)> answer);

  // Commands that wait for a record are answered that their effect is not known. Later ones are refused.
  void StopCommands();

  // As Registry has them. A job that can't go on because its record can't be kept is shown as waiting for that.
  std::vector<JobView> ListJobs(absl::string_view after, size_t limit) const;
  std::optional<JobView> GetJob(absl::string_view job_id) const;

  // Launchers of other processes that have joined and whose streams are open.
  int Launchers() const;

  // Why records can't be kept at present; "": they can, or none are kept.
  std::string StoreTrouble() const;

  // Hosts, by name.
  std::vector<std::string> DrainedHosts() const;

  EventLog* events() const { return events_; }

 private:
  using NodeKey = std::tuple<std::string, std::string, uint64_t>;  // job, node, incarnation

  // A session between its first message and OnClosed.
  struct Peer {
    enum class State {
      kNew,     // has said nothing yet
      kJoined,  // has a key in `joined_`
      kEnded,   // was told End; what it still says is ignored
    };
    State state = State::kNew;
    NodeKey key;
    std::string name;  // of host and address, for the log
    bool in_process = false;
    bool finished = false;        // was told Finish
    bool left = false;            // said Leave
    bool cut = false;             // was told End at once: what still waits for a record is not sent any more
    SteadyTime heard;             // last
    absl::Duration workers_live;  // after that
  };

  // Something to do with no lock held: a message, the end of a session, a line to log, an event, the answer to a
  // command. Or, in held_ only, nothing but the wait for a record.
  struct Action {
    std::shared_ptr<Session> session;
    std::optional<ServerMessage> message;
    std::optional<absl::Status> end;
    std::string log;
    std::unique_ptr<Event> event = nullptr;
    std::function<void(absl::Status)> answer = nullptr;
    absl::Status answered = absl::OkStatus();  // what it is called with
    bool wait = false;
  };

  // What the registry is told next happens now.
  SteadyTime NowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinLocked(const std::shared_ptr<Session>& session, Peer* peer, const Join& join)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLocked(const std::shared_ptr<Session>& session, Peer* peer, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From when on none of those that left can have workers.
  SteadyTime LeaversGoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetKeyLocked(Peer* peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PeerGoneLocked(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueEffectsLocked(Effects effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Tell tell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Close close) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Report report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueLocked(Persist persist) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be done when all records that the job has handed to the store are safe.
  void QueueInOrderLocked(const std::string& job_id, Action action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The oldest record of the job that was not safe yet is.
  void OnSafe(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The store can't keep records, or it can again ("").
  void OnStoreTrouble(const std::string& trouble) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same of one job.
  void OnJobTrouble(const std::string& job_id, const std::string& trouble) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the job's records can't be kept at present; "": they can.
  std::string TroubleOfLocked(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What keeps a job whose record is not safe; to all of its launchers.
  void TellTroubleLocked(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job's commands whose record is not safe are answered that it is not known whether they take effect.
  void AnswerUnknownLocked(const std::string& job_id, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowTroubleLocked(JobView* job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Waiting DescribeTroubleLocked(const std::string& job_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogLocked(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeTimerIfEarlierLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this server may act; once false, it never may again (StateStore::Owned).
  bool OwnedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return store_ == nullptr || store_->Owned(); }
  // Carries out queued actions unless another thread is at it, which then does these too.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer();

  const Host host_;
  const std::string process_name_;  // of this process; empty: it is no launcher's
  StateStore* const store_;         // nullptr: nothing is kept
  EventLog* const events_;          // nullptr: nobody is told of events
  mutable Mutex mutex_;
  Registry registry_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<const Session*, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeKey, std::shared_ptr<Session>> joined_ ABSL_GUARDED_BY(mutex_);
  int remote_launchers_ ABSL_GUARDED_BY(mutex_) = 0;  // peers of other processes that joined
  int leavers_ ABSL_GUARDED_BY(mutex_) = 0;           // those of them that said Leave
  bool stop_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  bool takes_commands_ ABSL_GUARDED_BY(mutex_) = true;
  CondVar everyone_left_;  // one of the two came to zero, or stop_waiting_ was set
  std::deque<Action> actions_ ABSL_GUARDED_BY(mutex_);
  // Jobs of which a record is on its way to the store: what waits for that, in order. Each begins with a wait.
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
