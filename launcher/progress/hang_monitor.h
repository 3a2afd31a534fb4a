#ifndef DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_
#define DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/flag_value.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/stack_probe.h"
#include "launcher/progress/progress_board.h"
#include "launcher/progress/progress_watch.h"

namespace ddprun::launcher {

// Watches the progress of this node's workers. Logs a hang together with the workers' stacks, and has hung workers
// killed if configured. Belongs to the loop's thread, and must be destroyed before the loop.
class HangMonitor {
 public:
  struct Events {
    // True while the round's workers are running: none has failed, and they are not being stopped.
    std::function<bool()> workers_running;
    // The process that reports for this worker: the worker itself or a descendant. 0: the worker has exited.
    std::function<pid_t(int32_t local_rank)> process_of;
    // Reads reports that have arrived but not been processed.
    std::function<void()> read_reports;
    std::function<void(const std::string& line)> warn;
    std::function<void(const std::string& lines)> print;  // follows the last line of `warn`
    // Kills this worker, which failed with this message and traceback.
    std::function<void(int32_t local_rank, const std::string& message, const std::string& traceback)> kill;
    // Kills this worker, which has succeeded but does not exit.
    std::function<void(int32_t local_rank)> kill_finished;
  };

  // The board outlives the monitor.
  HangMonitor(HangPolicy policy, const ProgressBoard* board, EventLoop* loop, Events events);

  // The board has begun a round.
  void OnRound();
  // The board has a new report of this rank.
  void OnProgress(int32_t local_rank);
  void OnEnded(int32_t local_rank);

  SteadyTime NextDeadline() const { return policy_.watch ? watch_.NextDeadline() : SteadyTime::InfiniteFuture(); }
  void OnDeadline(SteadyTime now);

 private:
  // A report that is logged once the stacks have been collected.
  struct Report {
    std::string line;
    std::vector<WorkerStanding> hung;  // to be killed
    uint64_t round = 0;
    std::map<int32_t, std::unique_ptr<StackProbe>> probes;  // by local rank
    std::map<int32_t, std::string> stacks;
  };
  void Handle(ProgressEffects effects);
  void OnHang(const effect::Hang& hang);
  void OnNotExited(const effect::NotExited& not_exited);
  // Collects the stacks of at most kMostStacks of these.
  void Begin(Report report, std::vector<int32_t> ranks);
  void OnStacks(int32_t local_rank, const std::string& text);
  void End();

  const HangPolicy policy_;
  const ProgressBoard* const board_;
  EventLoop* const loop_;
  const Events events_;
  ProgressWatch watch_;
  std::unique_ptr<Report> report_;
  std::map<int32_t, absl::Duration> cpu_times_;  // by local rank, at the last check
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_
