#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/preflight/node_comparison.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {

// Actions that a HostsMachine requests. They must not call the machine.
class HostsShell {
 public:
  virtual ~HostsShell() = default;
  // Again, if that was done before.
  virtual void Connect(size_t host) = 0;
  virtual void Send(size_t host, const hosts::v1::HostCommand& command) = 0;
  virtual void Print(LogLevel level, const std::string& text) = 0;
  // Text for standard output or error.
  virtual void Show(bool is_stderr, const std::string& text) = 0;
  // Output of a host's launcher, whose lines get the host's name. Absent data: its last line ends here.
  virtual void ShowOutput(size_t host, bool is_stderr, std::optional<std::string> data) = 0;
  // Ends this process once everything is shown, `summary` (may be empty) last. The agents end with their connections.
  virtual void Exit(int code, const std::string& summary) = 0;
};

// PURE. Starts a job on several hosts and follows it to its end: prepares the hosts, compares them, finds an address of
// the first at which all others reach it, starts a launcher on each, and shows its output. A lost connection changes
// nothing on the host: it is made again, and the output continues where it was. If the launcher there is gone, the host
// gets another one if the job allows for that. After Exit nothing may be called.
//
//   kConnecting -> kReady -> kProbing -> kReady -> kStarting -> kRunning -> kEnded      any -> kGone
//     ^    |                                           |            |^
//     |    +--- its launcher is there -----------------|------------||
//     +- kLost <------------------- no connection, or silence -------+
class HostsMachine {
 public:
  HostsMachine(HostsPlan plan, HostsShell* shell, SteadyTime now);

  // Connects to all hosts.
  void Start();
  // The agent of a host runs.
  void OnConnected(size_t host, SteadyTime now);
  // The copy of the program makes progress.
  void OnCopying(size_t host, SteadyTime now) { hosts_[host].heard = now; }
  void OnReport(size_t host, const hosts::v1::HostReport& report, SteadyTime now, absl::Time wall_time);
  // The connection has ended, `reason` says why in one line.
  void OnLost(size_t host, const std::string& reason, SteadyTime now);
  void OnSignal(int number);
  // `blocked`: standard output or error does not take what is shown, so the hosts keep their output for it.
  void OnOutputBlocked(bool is_stderr, bool blocked);

  SteadyTime NextDeadline() const;
  void OnDeadline(SteadyTime now);

 private:
  enum class State {
    kConnecting,  // until the agent has answered to Prepare
    kReady,       // for a launcher
    kProbing,     // listens, or connects to the first host
    kStarting,    // a launcher
    kRunning,     // its launcher is followed
    kLost,        // to be connected to at retry_at
    kEnded,       // its launcher has ended; of a detached job: it runs
    kGone,        // can't take part, or was lost for good
  };
  struct Host {
    HostSpec spec;
    State state = State::kConnecting;
    int node_rank = 0;
    bool launched = false;      // has had a launcher
    bool has_launcher = false;  // or may have one
    bool prepares = false;      // Prepare was sent
    SteadyTime heard, asked, retry_at;
    std::string complaint;  // the last one printed since it was lost
    HostReading reading;
    std::array<int64_t, 2> positions{};  // in its launcher's stdout and stderr
    std::optional<int> code;
    std::optional<hosts::v1::JobFailure> failure;
    std::string folder;  // folder of its job; empty: no launcher was seen there
  };

  int Count(State state) const;
  int Running() const { return Count(State::kRunning) + Count(State::kStarting); }
  // Its launcher is, or may be, out of reach.
  static bool IsAway(const Host& host);
  bool MayConnectAgain() const;
  std::vector<size_t> TakingPart() const;
  std::vector<HostReading> Readings() const;
  void Print(LogLevel level, const Host& host, const std::string& text);
  void Proceed();
  void AskToListen();
  void AskToReach(const hosts::v1::HostReport::Listening& listening);
  void ChooseAddress();
  void StartAll(const std::string& endpoint);
  void StartOn(size_t host);
  void StartAgain(size_t host);
  void OnFollowing(size_t host, const std::string& folder);
  // The host is connected to again if it has a launcher, else it is gone.
  void Lose(size_t host, const std::string& reason);
  void Fail(size_t host, const std::string& reason);
  void EndOutput(size_t host);
  void SendToRunning(const hosts::v1::HostCommand& command);
  void Signal(int number);
  void Ping();
  void CheckEnd();
  std::string DetachedText() const;
  // Shows how the job failed, once for all hosts.
  void Exit(int code);
  void GiveUp(const std::string& why);

  const HostsPlan plan_;
  HostsShell* const shell_;
  SteadyTime now_;  // time of the current call
  std::vector<Host> hosts_;
  hosts::v1::HostReport::Listening listening_;
  std::string endpoint_;
  bool started_ = false;
  bool exited_ = false;
  std::array<bool, 2> holds_output_{};  // indexed by is_stderr
  int signals_ = 0;
  SteadyTime next_ping_;
  SteadyTime all_lost_until_ = SteadyTime::InfiniteFuture();
  SteadyTime stop_rest_at_ = SteadyTime::InfiniteFuture();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_
