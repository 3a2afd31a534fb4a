#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "launcher/config/host_spec.h"
#include "launcher/hosts/hosts_plan.h"
#include "launcher/hosts/node_comparison.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {

// Actions that a HostsMachine requests from its shell.
namespace hosts_effect {
struct Send {
  size_t host;
  hosts::v1::HostCommand command;
};
struct Print {
  LogLevel level;
  std::string text;
};
// Whole lines for this process's own standard output or error.
struct Show {
  bool is_stderr;
  std::string text;
};
// Connect to the host again. Its earlier connection is of no more use.
struct Connect {
  size_t host;
};
// End this process. The agents end with their connections, and stop what they have started (unless it is detached).
struct Exit {
  int code;
};
}  // namespace hosts_effect

using HostsEffect = std::variant<hosts_effect::Send, hosts_effect::Print, hosts_effect::Show, hosts_effect::Connect,
                                 hosts_effect::Exit>;
using HostsEffects = std::vector<HostsEffect>;

// PURE. Starts a job on several hosts and follows it to its end: prepares the hosts, compares them, finds an address of
// the first at which all others reach it, and starts a launcher on each. With `may_reconnect`, it connects again to a
// host that is lost later, as long as the job runs: its launcher is found there, or another is started. Every function
// appends to `effects`; after an Exit nothing else may be called.
class HostsMachine {
 public:
  HostsMachine(HostsPlan plan, SteadyTime now);

  // The agent of a host runs.
  void OnConnected(size_t host, SteadyTime now, HostsEffects* effects);
  // Bytes went to the host or came from it; it is not stuck.
  void OnSignOfLife(size_t host, SteadyTime now) { hosts_[host].heard = now; }
  void OnReport(size_t host, const hosts::v1::HostReport& report, SteadyTime now, absl::Time wall_time,
                HostsEffects* effects);
  // The connection has ended, `reason` says why in one line.
  void OnLost(size_t host, const std::string& reason, SteadyTime now, HostsEffects* effects);
  void OnSignal(int number, SteadyTime now, HostsEffects* effects);

  SteadyTime NextDeadline() const;
  void OnDeadline(SteadyTime now, HostsEffects* effects);

 private:
  enum class State {
    kConnecting,
    kPreparing,
    kReady,
    kListening,  // asked to listen
    kReaching,   // asked to connect to the first host
    kRunning,
    kLost,          // was running; to be connected to again
    kReconnecting,  // ssh runs again
    kReturning,     // its agent prepares
    kEnded,
    kGone,  // can't take part, or was lost for good
  };
  struct Host {
    HostSpec spec;
    State state = State::kConnecting;
    int node_rank = 0;
    SteadyTime retry_at;  // kLost
    SteadyTime returned;
    absl::Duration backoff;
    std::string complaint;      // why its agent could not start a launcher again
    bool has_launcher = false;  // as far as we know
    SteadyTime heard;
    SteadyTime asked;  // Prepare was sent
    HostReading reading;
    std::vector<std::string> errors;     // of Reached
    std::array<std::string, 2> partial;  // the unfinished lines of stdout and stderr
    std::optional<int> code;
    std::optional<hosts::v1::JobFailure> failure;
    std::string output;  // of a detached launcher
  };

  size_t Count(State state) const;
  bool IsWaiting(const Host& host) const;
  std::vector<size_t> TakingPart() const;
  void Fail(size_t host, const std::string& reason, SteadyTime now, HostsEffects* effects);
  void Proceed(SteadyTime now, HostsEffects* effects);
  void Compare(SteadyTime now, HostsEffects* effects);
  void AskToReach(const hosts::v1::HostReport::Listening& listening, SteadyTime now, HostsEffects* effects);
  void ChooseAddress(HostsEffects* effects);
  void StartAll(const std::string& endpoint, HostsEffects* effects);
  void Start(size_t host, HostsEffects* effects);
  // A lost host.
  bool MayReconnect() const;
  void FailOrLose(size_t host, const std::string& reason, SteadyTime now, HostsEffects* effects);
  void Lose(size_t host, const std::string& reason, SteadyTime now, HostsEffects* effects);
  void Return(size_t host, SteadyTime now, HostsEffects* effects);
  void GiveUpLost();
  bool IsLost(const Host& host) const;
  void EndLines(Host& host, HostsEffects* effects);
  void Show(Host& host, bool is_stderr, const std::string& data, HostsEffects* effects);
  void CheckEnd(SteadyTime now, HostsEffects* effects);
  void TellDetached(HostsEffects* effects) const;
  // Shows how the job failed, once for all hosts.
  void Exit(int code, HostsEffects* effects) const;
  void GiveUp(const std::string& why, HostsEffects* effects) const;

  const HostsPlan plan_;
  std::vector<Host> hosts_;
  hosts::v1::HostReport::Listening listening_;
  std::string endpoint_;
  bool started_ = false;
  int signals_ = 0;
  SteadyTime next_ping_;
  SteadyTime all_lost_until_ = SteadyTime::InfiniteFuture();
  SteadyTime stop_rest_at_ = SteadyTime::InfiniteFuture();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_MACHINE_H_
