#ifndef DDPRUN_LAUNCHER_CONFIG_RDZV_CONF_H_
#define DDPRUN_LAUNCHER_CONFIG_RDZV_CONF_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Value of --rdzv-conf: "key=value,key=value", durations in seconds.
//
//   join_timeout            how long a job waits for missing nodes (600); also called `timeout`
//   last_call_timeout       how long it waits for more nodes once the minimum number has joined (30)
//   heartbeat_timeout       a node that is silent for this long is lost (3; with several endpoints 10)
//   keep_alive_interval, keep_alive_max_attempt
//                           torchrun's equivalent: their product (defaults 5 and 3 if only one is given)
//                           is the heartbeat timeout, unless heartbeat_timeout itself is given
//   reconnect_timeout       how long a launcher tries to reconnect to a lost server (server_line.h)
//   reconnect_grace         how long a node whose connection broke may take to reconnect (0.08)
//   restart_window          --max-restarts applies to any window of this length; 0: to the job's life (0)
//   restart_backoff         delay before the first restart of a series, doubled for each further one (0)
//   max_failures_at_step    the job ends when one rank fails this often in a row at one step; 0: never (3)
//   node_cooldown           a node whose workers fail round after round is excluded for this long; 0: never (60)
//   is_host                 true if this launcher hosts the rendezvous server; default: its address decides
//   rank                    same as --node-rank
//   store_type=tcp, use_libuv, close_timeout, read_timeout
//                           torchrun's; checked, but without effect
struct RdzvConf {
  // Settings that all nodes of the job must share. heartbeat_timeout and fields without a key keep their defaults.
  rendezvous::JobSettings job = rendezvous::DefaultSettings();
  std::optional<absl::Duration> heartbeat_timeout;  // its default depends on the endpoints
  std::optional<absl::Duration> reconnect_timeout;
  std::optional<bool> is_host;
  std::optional<int32_t> rank;

  friend bool operator==(const RdzvConf&, const RdzvConf&) = default;
};

// Minimum heartbeat timeout: heartbeats are sent at a third of it.
inline constexpr absl::Duration kMinHeartbeatTimeout = absl::Milliseconds(100);

// An empty text gives the defaults. InvalidArgument (one line, without the flag's name): a pair without '=', an unknown
// or repeated key, an invalid value. Unknown keys are errors because a misspelt timeout would otherwise be noticed only
// when it is needed.
absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_RDZV_CONF_H_
