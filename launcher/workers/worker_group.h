#ifndef DDPRUN_LAUNCHER_WORKERS_WORKER_GROUP_H_
#define DDPRUN_LAUNCHER_WORKERS_WORKER_GROUP_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/fork_server/fork_server.h"
#include "launcher/io/error_file.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/output_source.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/spawn_process.h"
#include "launcher/workers/link_peer.h"
#include "launcher/workers/link_server.h"
#include "launcher/workers/rank_environment.h"
#include "launcher/workers/worker_output.h"
#include "launcher/workers/worker_set.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// The workers of one node: starts the workers of a round, signals them, and reports their exits with details of
// failures. Belongs to the loop's thread, which must be the main thread (see CreateChild).
class WorkerGroup {
 public:
  struct Settings {
    const LaunchConfig* config;  // outlives the group
    std::string launcher_id;
    std::string host;
    std::vector<std::string> environment;  // the launcher's own
    LauncherFacts facts;                   // the group adds the libraries, the link and the end of the job
  };
  // Reason for a failed start; `not_started` are the failed worker and those after it, which were not started either.
  struct StartError {
    LocalRanks not_started;
    rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  };
  struct Events {
    // Workers whose exits were seen at the same time.
    std::function<void(const std::vector<WorkerEnd>& ends)> on_ended;
    // True if a worker may begin to run user code now. Called for each worker after its process exists and can be
    // killed by the launcher and the guard. Must not call back.
    std::function<bool()> may_start;
    // All workers passed to Start exist.
    std::function<void()> on_all_started;
    std::function<void(const StartError& error)> on_start_failed;
    // A worker is about to be started, and its output will be found here. May be null. Must not call back.
    std::function<void(int32_t local_rank, const OutputSource& out, const OutputSource& err)> on_output;
    // A message on a running worker's link.
    std::function<void(int32_t local_rank, const LinkEvent& event)> on_link;
    // A process of a worker has a process group, and answers questions on this socket (launcher/hang).
    std::function<void(int32_t local_rank, pid_t process, UniqueFd socket)> on_probe;
    // A worker's progress report. Must not call back.
    std::function<void(int32_t local_rank, const ReportedProgress& progress)> on_progress;
  };
  // Listens for the worker link, and starts the fork server if the configuration asks for it. Events are never called
  // from within Start, Signal or Kill. InvalidArgument: a port range is given, but the port guard library is missing.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Create(Settings settings, EventLoop* loop, LogPump* pump,
                                                             Events events);
  ~WorkerGroup();

  // Starts these workers of the round. Their earlier processes must have exited or been abandoned, and are forgotten;
  // the node's other workers are not affected. Does not block: workers are created once their files are open, those of
  // the fork server once it has forked them, see all_started. If a program can't be executed, or the fork server can't
  // fork, that is reported as the end of the worker.
  void Start(const rendezvous::Assignment& assignment, const LocalRanks& ranks);
  bool all_started() const { return opening_.empty() && starting_.empty(); }
  // Passed to workers started from now on.
  void SetJobEnd(absl::Time end) { settings_.facts.job_end = end; }

  // The last process started for each local rank; 0 if there was none.
  const std::vector<pid_t>& pids() const { return pids_; }

  // Signals the running workers among these, and of a worker that is a shell the programs that it runs, but no other
  // children. A warning signal is not sent to a process that neither handles nor ignores it, because it would be
  // killed. After any other signal the workers are expected to exit (see ChildWatch).
  void Signal(int signal, const LocalRanks& ranks);
  // Notifies the connected workers among these when they will be killed, and why.
  void NotifyStop(const LocalRanks& ranks, SteadyTime killed_at, const std::string& reason);
  // Sends this message to the connected workers among these.
  void Tell(const LocalRanks& ranks, const worker_contract::LauncherLinkMessage& line);
  // Continues these suspended workers in this round. Start follows for the node's other workers.
  void Reform(const rendezvous::Assignment& assignment, const LocalRanks& ranks);
  // Sends SIGKILL to the running workers among these and to their process groups.
  void Kill(const LocalRanks& ranks);

  // Returns the failure of this worker, which is stuck in the kernel (rendezvous::IsStuckInKernel): `why`, and where it
  // is. Nullopt if it has no process.
  std::optional<rendezvous::WorkerFailure> DescribeStuck(int32_t local_rank, absl::string_view why) const;
  // Kills this worker with SIGKILL and reports it as failed with this message and traceback, unless it left an error
  // file.
  void KillHung(int32_t local_rank, const std::string& message, const std::string& traceback);
  // Kills this worker with SIGKILL and reports it as succeeded.
  void KillFinished(int32_t local_rank);
  // Reads everything that workers have sent so far.
  void ReadReports();
  // The process that reports for a running worker: itself or a descendant. 0 if the worker is not running.
  pid_t ReporterOf(int32_t local_rank) const;

  // Processes that are not orphans: the workers, which this group reaps, and the fork server.
  std::vector<pid_t> known_pids() const;

 private:
  struct Worker {
    int32_t local_rank;
    SteadyTime started;
    ErrorFile error_file;
    std::function<std::string()> error_tail;  // see WorkerStreams
    OomSample oom_before;
    StartGate gate;
    bool signalled = false;  // this launcher has signaled it
    bool finished = false;   // succeeded, regardless of how it exits
    std::string hung;        // error message if it was killed for hanging
    std::string hung_at;     // its stacks
  };
  // A worker that is about to be started.
  struct Launch {
    int32_t local_rank;
    SpawnRequest request;
    WorkerStreams streams;
    OomSample oom_before;
    std::vector<int> signals;  // to be sent once it has started
    UniqueFd input = {};       // its standard input; invalid: the launcher's
  };

  WorkerGroup(Settings settings, WorkerOutput output, EventLoop* loop, Events events);
  absl::Status FindPreloaded();
  void OpenLink();
  void StartForkServer();
  void OnOpened(const LocalRanks& ranks, std::vector<absl::StatusOr<WorkerStreams>> streams);
  absl::StatusOr<Launch> Prepare(int32_t local_rank, absl::StatusOr<WorkerStreams> streams,
                                 const OomSample& oom_before);
  absl::Status Spawn(Launch launch);
  // Signals that workers ignore when they start.
  std::vector<int> IgnoredSignals() const;
  // Opens the worker's gate if it may start, else kills it.
  absl::Status OnCreated(Child child, Launch launch);
  void OnForked(ForkServer::Ticket ticket, Child child);
  void OnForkServerEnded(const absl::Status& why, const std::vector<ForkServer::Ticket>& not_started);
  // Signals workers that do not exist yet.
  void SignalStarting(int signal, bool stops, const LocalRanks& ranks);
  void ReportLater(std::vector<WorkerEnd> ends);
  WorkerEnd Describe(const ProcessEnd& end, const Worker& worker,
                     const std::optional<ReportedProgress>& progress) const;
  // Path of the program to execute; resolved once.
  absl::StatusOr<std::string> Program();
  void OnLinkLine(pid_t pid, worker_contract::WorkerLinkMessage line);
  void OnLinkClosed(pid_t pid);
  void OnProcessesEnded(const std::vector<ProcessEnd>& ends);
  rendezvous::WorkerFailure NewFailure(int32_t local_rank) const;
  rendezvous::WorkerFailure StartFailure(int32_t local_rank, const absl::Status& status) const;

  Settings settings_;
  WorkerOutput output_;
  EventLoop* const loop_;
  const Events events_;
  std::unique_ptr<ChildWatch> watch_;
  std::string program_;
  rendezvous::Assignment assignment_;
  std::unordered_map<pid_t, Worker> workers_;  // running and not abandoned
  std::vector<pid_t> pids_;
  std::map<int32_t, std::vector<int>> opening_;  // local ranks whose files are being opened, with pending signals
  std::map<ForkServer::Ticket, Launch> starting_;
  std::unique_ptr<LinkServer> link_;                            // null: workers can't connect
  std::unique_ptr<ForkServer> fork_server_;                     // null: each worker imports for itself
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_WORKER_GROUP_H_
