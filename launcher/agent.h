#ifndef DDPRUN_LAUNCHER_AGENT_H_
#define DDPRUN_LAUNCHER_AGENT_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/capsule/capsule_folder.h"
#include "launcher/config/launch_config.h"
#include "launcher/hang/hang_monitor.h"
#include "launcher/hang/uninterruptible_watch.h"
#include "launcher/host_addresses.h"
#include "launcher/inspect/inspector.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/log_pump.h"
#include "launcher/job_end.h"
#include "launcher/machine/agent_machine.h"
#include "launcher/process/guard.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/run_command.h"
#include "launcher/process/signal_source.h"
#include "launcher/progress/display.h"
#include "launcher/progress/progress_monitor.h"
#include "launcher/rendezvous_link.h"
#include "launcher/report/failure_summary.h"
#include "launcher/round_store.h"
#include "launcher/workers/worker_group.h"

namespace ddprun::launcher {

// One node's launcher: passes events from the loop to an AgentMachine and executes its effects. Belongs to the main
// thread (workers die with the thread that started them).
class Agent {
 public:
  struct Settings {
    LaunchConfig config;
    std::string launcher_id;
    Guard* guard;  // outlives the agent
    // Receives the failure of the job; empty: its summary is shown on standard error.
    std::function<bool(const hosts::v1::JobFailure&)> send_failure;
  };

  Agent(Settings settings, std::unique_ptr<SignalSource> signals);
  ~Agent();

  // Runs the job to its end on this node and returns the exit code. May be called only once.
  int Run();

 private:
  absl::Status SetUp();
  AgentSettings MachineSettings() const;
  std::unique_ptr<RoundStore> CreateStore();
  absl::Status CreateWorkers();
  void Handle(const rendezvous::ClientEvent& event);
  void OnSignal(const ReceivedSignal& signal);
  std::unique_ptr<ProgressMonitor> MonitorProgress();
  std::unique_ptr<HangMonitor> MonitorHangs();
  std::unique_ptr<Inspector> CreateInspector();

  // Calls a method of the machine with these arguments and the current time, then executes its effects.
  template <typename... Parameters, typename... Arguments>
  void Step(void (AgentMachine::*method)(Parameters...), const Arguments&... arguments);
  // Executes pending effects, but stops at a sweep that has to wait.
  void ExecutePending();
  void FindUninterruptible(SteadyTime now);
  void OnTimer(SteadyTime now);
  void Execute(const AgentEffect& effect);
  void Do(const effect::Send& send);
  void Do(const effect::ResetConnection&);
  void Do(const effect::OpenStore&);
  void Do(const effect::SpawnWorkers& spawn);
  void Do(const effect::SignalWorkers& signal);
  void Do(const effect::NotifyStop& stop);
  void Do(const effect::SendToWorkers& tell);
  void Do(const effect::ReformWorkers& reform);
  void Do(const effect::KillWorkers& kill);
  void Do(const effect::DescribeStuck& workers);
  // Later effects wait until the orphans are gone; the loop does not block.
  void Do(const effect::SweepOrphans&);
  void ContinueSweep();
  // Child processes that are not orphans.
  std::vector<pid_t> KnownChildren() const;
  void Do(const effect::ReportMissingRanks&);
  void Do(const effect::Print& print);
  void Do(const effect::ShowHang& hang);
  void Do(const effect::ReplaceHung& hung);
  void Do(const effect::CollectStacks& stacks);
  void Do(const effect::ShowStatus& status);
  void Do(const effect::Exit& exit);

  int Finish();
  hosts::v1::JobFailure Summary() const;
  // --on-end and --result. Returns when the command has ended.
  void ReportEnd(const hosts::v1::JobFailure& summary);
  // Begins to write what is known about the round, if it has failed.
  void WriteCapsule();
  // Advice for the user about a failed job; may be empty.
  std::string HintFor(const rendezvous::Verdict& verdict) const;
  // Keeps the rendezvous server in this process running for the other launchers, until a signal arrives.
  void LingerForOthers();

  const Settings settings_;
  std::string host_;
  const std::vector<std::string> words_;  // may have secrets; a mask is made of them when a text leaves this process
  CapsuleWriter capsules_;
  HostAddresses place_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<SignalSource> signals_;
  LogPump pump_;
  TerminalLine terminal_;
  std::unique_ptr<AgentMachine> machine_;
  std::unique_ptr<RoundStore> store_;
  std::unique_ptr<WorkerGroup> workers_;
  std::unique_ptr<ProgressMonitor> progress_;
  std::unique_ptr<HangMonitor> hangs_;
  UninterruptibleWatch uninterruptible_;
  std::unique_ptr<Inspector> inspector_;
  std::unique_ptr<RendezvousLink> link_;
  std::unique_ptr<Command> end_time_query_;
  std::shared_ptr<const EventLoop::Timer> timer_;
  std::optional<absl::Time> end_time_;  // the job's
  SteadyTime round_started_;
  SteadyTime guard_kills_at_ = SteadyTime::InfiniteFuture();
  // True if the server that was lost ran in a launcher, or if no server has been seen yet: then this launcher may take
  // over.
  bool may_take_over_ = true;
  std::deque<AgentEffect> pending_;  // effects not executed yet, oldest first
  bool executing_ = false;
  OrphanSweep sweep_;
  std::optional<effect::Exit> exit_;
  const absl::Time began_ = absl::Now();
  std::unique_ptr<EndCommand> end_command_;  // not null while it runs
  bool staying_ = false;                     // see LingerForOthers
  bool signaled_ = false;                    // `ddprun --hosts` has sent a signal
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_H_
