#ifndef DDPRUN_LAUNCHER_ROUND_STORE_H_
#define DDPRUN_LAUNCHER_ROUND_STORE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/host_addresses.h"
#include "launcher/io/event_loop.h"
#include "launcher/machine/agent_machine.h"
#include "launcher/progress/store_wait_watch.h"
#include "launcher/store/registration.h"
#include "launcher/store/store_server.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// This node's side of the store in which a round's workers rendezvous: opens a new store for each round, which serves
// the job if this node is group rank 0, and registers this node's workers at the round's store, local or remote.
// Belongs to the loop's thread; must be closed before the loop is destroyed.
class RoundStore {
 public:
  struct Events {
    // The number of ranks that have joined this node's store has changed.
    std::function<void(int joined)> on_ranks_joined;
    // Registration at another node's store begins.
    std::function<void()> on_registering;
    // A connection to that store was made (OK), or the store is currently unreachable.
    std::function<void(const absl::Status& status)> on_store_reached;
    // Evidence about a hang from another node's launcher (proto/hang.proto), if this node is group rank 0.
    std::function<void(const std::string& payload)> on_evidence;
    // One line about ranks that have joined and have been waiting for a key for a long time.
    std::function<void(const std::string& text)> on_long_wait;
  };

  // `config` and `loop` must outlive it; `host` is this node's name.
  RoundStore(const LaunchConfig* config, HostAddresses place, std::string host, EventLoop* loop, Events events);
  ~RoundStore() { Close(); }

  struct Opened {
    OpenedStore store;
    std::string note;  // set if --master-port was not available
  };
  // Opens a store for the next round and closes the previous one. Errors say what to change.
  absl::StatusOr<Opened> Open();

  // Begins the round. Afterwards Register may be called once. REQUIRES: the store is open.
  void BeginRound(const rendezvous::Assignment& assignment);
  // Registers this node's running workers. No-op without a round, or if they are already registered.
  void Register(const std::vector<pid_t>& pids);

  // Text that names the ranks that have not joined and those waiting for them, `waited` after the round began; empty if
  // no rank is known to be missing.
  std::string MissingText(absl::Duration waited) const;

  // Sends evidence about a hang to the launcher of group rank 0. No-op if that is this launcher, or can't be reached.
  void SendEvidence(absl::string_view payload);

  void Close();

  SteadyTime NextDeadline() const { return waits_.NextDeadline(); }
  void OnDeadline(SteadyTime now);

 private:
  absl::StatusOr<std::unique_ptr<StoreServer>> OpenServer(std::string* note);
  absl::StatusOr<std::unique_ptr<StoreServer>> OpenAtFreePort(StoreOptions options);
  void RegisterElsewhere(const rendezvous::Assignment& assignment, const NodeRegistration& node);
  void ReportRanksJoined();
  std::vector<StoreWait> Waits() const;
  void CloseRegistration();

  const LaunchConfig* const config_;
  const HostAddresses place_;
  const std::string host_;
  EventLoop* const loop_;
  const Events events_;
  std::unique_ptr<StoreServer> server_;
  StoreWaitWatch waits_;
  std::string secret_;       // proves to the store that a launcher belongs to its round
  int reported_joined_ = 0;  // last reported number of joined ranks
  int last_port_ = 0;        // within a port range
  std::unique_ptr<RegistrationClient> registration_;
  std::optional<rendezvous::Assignment> unregistered_;  // round whose workers are not all started yet
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_ROUND_STORE_H_
