#ifndef DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_
#define DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_

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
#include "launcher/config/launch_config.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/stack_probe.h"
#include "launcher/progress/progress_watch.h"
#include "launcher/workers/link_peer.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Watches the progress of this node's workers. When one hangs it says so in the log, with the stacks of the workers,
// and has it killed if that is configured. Belongs to the loop's thread, and must be destroyed before the loop.
class HangMonitor {
 public:
  struct Events {
    // The workers of the round are at work: none has failed, and they are not being stopped.
    std::function<bool()> at_work;
    // The process that reports for this worker: the worker, or one below it. 0: it has ended.
    std::function<pid_t(int32_t local_rank)> process_of;
    // Reports that have come are read at once.
    std::function<void()> read_reports;
    std::function<void(const std::string& line)> warn;
    std::function<void(const std::string& lines)> print;  // behind the last line
    // Kill this worker. It failed with this message and traceback.
    std::function<void(int32_t local_rank, const std::string& message, const std::string& traceback)> kill;
    // Kill this worker, which has succeeded.
    std::function<void(int32_t local_rank)> kill_finished;
  };

  HangMonitor(HangPolicy policy, EventLoop* loop, Events events);

  // The workers begin the round. May be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment, int32_t slots);
  void OnProgress(int32_t local_rank, const ReportedProgress& progress);
  void OnEnded(int32_t local_rank);

  SteadyTime NextDeadline() const { return policy_.watch ? watch_.NextDeadline() : SteadyTime::InfiniteFuture(); }
  void OnDeadline(SteadyTime now);

 private:
  // What is logged once the stacks have been collected.
  struct Report {
    std::string line;
    std::vector<Standing> hung;  // to be killed
    uint64_t round = 0;
    std::map<int32_t, std::unique_ptr<StackProbe>> probes;  // by local rank
    std::map<int32_t, std::string> stacks;
  };
  void Handle(ProgressEffects effects);
  void OnHang(const effect::Hang& hang);
  void OnNotExited(const effect::NotExited& not_exited);
  // Collects the stacks of some of these.
  void Begin(Report report, std::vector<int32_t> ranks);
  void OnStacks(int32_t local_rank, const std::string& text);
  void End();

  const HangPolicy policy_;
  EventLoop* const loop_;
  const Events events_;
  ProgressWatch watch_;
  uint64_t round_ = 0;
  int32_t base_rank_ = 0;
  std::unique_ptr<Report> report_;
  std::map<int32_t, absl::Duration> cpu_times_;  // by local rank, when last looked at
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_HANG_MONITOR_H_
