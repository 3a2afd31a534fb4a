#include "launcher/config/hang_policy.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

absl::StatusOr<HangPolicy> ParseHangPolicy(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view action = text.substr(0, colon);
  if (action != "report" && action != "restart") {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is invalid: give report or restart, or with a limit, such as restart:60"));
  }
  HangPolicy policy;
  policy.restart = action == "restart";
  if (colon == absl::string_view::npos) return policy;
  const absl::StatusOr<absl::Duration> limit = ParseSeconds(text.substr(colon + 1));
  if (!limit.ok()) return limit.status();
  policy.fixed_limit = *limit;
  policy.watch = *limit > absl::ZeroDuration();
  return policy;
}

std::string HangPolicyText(const HangPolicy& policy) {
  if (!policy.watch) return "none";
  const std::string limit = policy.fixed_limit > absl::ZeroDuration()
                                ? absl::StrCat(", limit ", absl::FormatDuration(policy.fixed_limit))
                                : "";
  return absl::StrCat(policy.restart ? "restart" : "report", limit);
}

}  // namespace ddprun::launcher
