#include "rendezvous/core/phrases.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/failure_text.h"

namespace ddprun::rendezvous {

std::string HostList(const std::vector<std::string>& hosts, size_t all) {
  std::string text;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool last = i + 1 == hosts.size() && all <= hosts.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", hosts[i]);
  }
  if (all > hosts.size()) absl::StrAppend(&text, " and ", all - hosts.size(), " more");
  return text;
}

std::string DescribeGivingUp(const WorkerFailure& failure, int32_t max_restarts, absl::Duration window) {
  const std::string what = DescribeFailure(failure);
  const bool said_so = failure.pid() != 0;
  if (!failure.restartable()) return said_so ? what : absl::StrCat(what, "; non-restartable");
  if (max_restarts == 0) return absl::StrCat(what, "; restarts are disabled (--max-restarts 0)");
  const std::string within =
      window > absl::ZeroDuration() ? absl::StrCat(" within ", absl::FormatDuration(window)) : "";
  return absl::StrCat(what, "; restart limit reached (", max_restarts, "/", max_restarts, within, ")");
}

std::string DescribeNoProgress(const WorkerFailure& failure, int32_t times) {
  return absl::StrCat(DescribeFailure(failure), "; no progress: failed ", Counted(times, "time"), " in a row at step ",
                      failure.step(), " (max_failures_at_step)");
}

std::string DescribeTooFew(const JobSettings& settings, absl::string_view what, bool told_to_stop) {
  return absl::StrCat(what, "; the job needs all ", settings.min_nodes(), " nodes",
                      told_to_stop ? "" : ", and restarts are disabled (--max-restarts 0)");
}

std::string DescribeJoinTimeout(const JobSettings& settings, absl::Duration waited, size_t joined,
                                const std::vector<std::string>& hosts, absl::string_view waits_because) {
  std::string text = absl::StrCat("timed out: ", joined, " of ", Counted(settings.min_nodes(), "node"),
                                  " joined within ", absl::FormatDuration(waited));
  if (joined > 0) absl::StrAppend(&text, ": ", HostList(hosts, joined));
  if (!waits_because.empty()) absl::StrAppend(&text, " (", waits_because, ")");
  return text;
}

std::string DescribeHeldUp(absl::string_view reason, const HeldUp& held_up) {
  std::string what;
  if (held_up.all_nodes > 0) {
    what = absl::StrCat("waiting for workers to stop on ", HostList(held_up.hosts, held_up.all_nodes));
  } else if (held_up.by_unknown) {
    what = "workers of a round before the server started may still run";
  } else if (held_up.by_gone) {
    what = "workers of nodes that are gone may still run";
  } else if (held_up.by_backoff) {
    what = "waiting for the restart backoff";
  }
  return absl::StrCat(reason, reason.empty() || what.empty() ? "" : "; ", what);
}

WorkerFailure NodeFailure(absl::string_view host, absl::string_view message) {
  WorkerFailure failure = NewFailure();
  failure.set_host(std::string(host));
  failure.set_exit_code(1);
  failure.set_message(std::string(message));
  return failure;
}

}  // namespace ddprun::rendezvous
