#ifndef DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_
#define DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/launch_config.h"
#include "launcher/io/event_loop.h"
#include "launcher/process/stack_probe.h"
#include "launcher/progress/display.h"
#include "launcher/progress/progress.h"
#include "launcher/progress/progress_watch.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Follows the progress of this node's workers: keeps the board, logs hung and slow workers together with the stacks of
// hung ones, has hung workers killed if configured, shows the progress (--progress), and gives what the server gets.
// Belongs to the loop's thread, and must be destroyed before the loop.
class ProgressMonitor {
 public:
  struct Events {
    // True while the round's workers are running: none has failed, and they are not being stopped.
    std::function<bool()> workers_running;
    // The process that reports for this worker: the worker itself or a descendant. 0: the worker has exited.
    std::function<pid_t(int32_t local_rank)> process_of;
    // True if the global rank was reported as a straggler, from its collectives: it is not reported again.
    std::function<bool(int32_t rank)> is_straggler;
    // Reads reports that have arrived but not been processed.
    std::function<void()> read_reports;
    std::function<void(const std::string& line)> warn;
    std::function<void(const std::string& lines)> print;  // follows the last line of `warn`
    // Kills this worker, which failed with this message and traceback.
    std::function<void(int32_t local_rank, const std::string& message, const std::string& traceback)> kill;
    // Kills this worker, which has succeeded but does not exit.
    std::function<void(int32_t local_rank)> kill_finished;
  };

  // `line` outlives the monitor.
  ProgressMonitor(const LaunchConfig& config, EventLoop* loop, TerminalLine* line, Events events);

  // Called when the workers begin the round; may be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment, int32_t slots);
  void OnProgress(int32_t local_rank, const ReportedProgress& report);
  void OnEnded(int32_t local_rank);

  SteadyTime NextDeadline() const;
  // Returns the message to send to the server now, if any.
  std::optional<rendezvous::Progress> OnDeadline(SteadyTime now);

  // The report of a hang in this round that is not over, with stacks; empty if there is none.
  const std::string& open_hang() const { return open_hang_; }

  // Hides the display until the next report.
  void Hide() { display_.Hide(); }

 private:
  // A report of a hang, which is logged once the stacks have been collected.
  struct Report {
    std::string line;
    bool is_hang = false;
    std::vector<WorkerStanding> hung;  // to be killed
    uint64_t round = 0;
    std::map<int32_t, std::unique_ptr<StackProbe>> probes;  // keyed by local rank
    std::map<int32_t, std::string> stacks;                  // keyed by local rank
  };
  SteadyTime HangDeadline() const { return policy_.watch ? watch_.NextDeadline() : SteadyTime::InfiniteFuture(); }
  void OnHangDeadline(SteadyTime now);
  void Handle(const ProgressEffects& effects);
  void OnHang(const effect::Hang& hang);
  void OnNotExited(const effect::NotExited& not_exited);
  // Collects the stacks of at most kMostStacks of these ranks for the report.
  void CollectStacks(Report report, std::vector<int32_t> ranks);
  void OnStacks(int32_t local_rank, const std::string& text);
  void EndReport();

  const HangPolicy policy_;
  EventLoop* const loop_;
  const Events events_;
  ProgressBoard board_;
  ProgressWatch watch_;
  ProgressReports reports_{&board_};
  ProgressDisplay display_;
  std::unique_ptr<Report> report_;
  std::string open_hang_;
  std::map<int32_t, absl::Duration> cpu_times_;  // CPU time of each local rank at the last check
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_PROGRESS_MONITOR_H_
