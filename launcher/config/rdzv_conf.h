#ifndef DDPRUN_LAUNCHER_CONFIG_RDZV_CONF_H_
#define DDPRUN_LAUNCHER_CONFIG_RDZV_CONF_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Value of --rdzv-conf: "key=value,key=value", durations in seconds. docs/restarts.md describes the keys.
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
