#ifndef DDPRUN_LAUNCHER_CONFIG_HANG_POLICY_H_
#define DDPRUN_LAUNCHER_CONFIG_HANG_POLICY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// Handling of workers that report progress and hang (progress_watch.h).
struct HangPolicy {
  bool watch = true;
  absl::Duration fixed_limit;  // for one phase; zero: limits are learned
  bool restart = false;        // a hung worker is killed and counts as failed

  friend bool operator==(const HangPolicy&, const HangPolicy&) = default;
};

// Value of --on-hang: "report" or "restart", with ":SECONDS" for a fixed limit; 0 seconds: nothing is watched.
// InvalidArgument: one line, without the flag's name.
absl::StatusOr<HangPolicy> ParseHangPolicy(absl::string_view text);

// "report", "restart, limit 1m30s" or "none".
std::string HangPolicyText(const HangPolicy& policy);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_HANG_POLICY_H_
