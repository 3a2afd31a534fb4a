#ifndef DDPRUN_LAUNCHER_WORKER_GROUP_H_
#define DDPRUN_LAUNCHER_WORKER_GROUP_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/agent_machine.h"
#include "launcher/core/launch_config.h"
#include "launcher/os/child_watch.h"
#include "launcher/os/error_file.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/oom.h"
#include "launcher/worker_output.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// The workers of one node: starts those of a round, signals them, and turns their ends into failures with all that
// is known about them. Belongs to the loop's thread, which must be the main thread (see Spawn).
class WorkerGroup {
 public:
  struct Settings {
    const LaunchConfig* config;  // outlives the group
    std::string launcher_id;     // value of the workers' DDPRUN_LAUNCHER_ID
    std::string host;
    std::vector<std::string> environment;  // the launcher's own
    std::string gloo_interface;            // see GroupSettings
  };
  // As AgentMachine::OnWorkersEnded. Never called from within Start.
  using OnEnded = std::function<void(std::vector<WorkerEnd> ends, size_t cause)>;

  // InvalidArgument: a port range is given, but what keeps workers to it is not there.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Create(Settings settings, EventLoop* loop, LogPump* pump,
                                                             OnEnded on_ended);

  // Starts all workers of the round. Forgets those of the round before, which must have ended or been abandoned.
  // If one can't be started, those before it run (started() of them) and the result says why.
  std::optional<rendezvous::WorkerFailure> Start(const rendezvous::Assignment& assignment);
  // Told to the workers that are started from now on.
  void SetJobEnd(absl::Time end) { job_end_ = end; }
  int started() const { return static_cast<int>(started_.size()); }

  // By local rank, of those started.
  const std::vector<pid_t>& started_pids() const { return started_; }

  // To each worker that runs, but not to its children. After another than a warning it is to be expected that
  // workers end.
  void Signal(int signal);
  // SIGKILL to each worker that runs and its process group.
  void Kill();

  // Processes that are this group's to reap.
  std::vector<pid_t> running_pids() const { return watch_->pids(); }

 private:
  struct Worker {
    int32_t local_rank;
    SteadyTime started;
    ErrorFile error_file;
    bool signalled = false;  // by us
  };

  WorkerGroup(Settings settings, WorkerOutput output, OnEnded on_ended);
  absl::Status StartWorker(const rendezvous::Assignment& assignment, int32_t local_rank);
  // The file to execute, looked for once.
  absl::StatusOr<std::string> Program();
  void OnProcessesEnded(const std::vector<ProcessEnd>& ends);
  rendezvous::WorkerFailure NewFailure(int32_t local_rank) const;

  const Settings settings_;
  std::string port_guard_;  // path of the library; empty without a port range
  WorkerOutput output_;
  const OnEnded on_ended_;
  std::unique_ptr<ChildWatch> watch_;
  std::string program_;
  std::optional<absl::Time> job_end_;
  rendezvous::Assignment assignment_;
  std::unordered_map<pid_t, Worker> workers_;  // of the present round, running
  std::vector<pid_t> started_;
  OomSample oom_before_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKER_GROUP_H_
