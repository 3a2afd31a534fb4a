#include "rendezvous/core/join_check.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

// A setting that differs: its flag, the job's value and the joining node's value.
struct Difference {
  std::string flag, job, other;
};

std::optional<Difference> FirstDifference(const JobSettings& a, const JobSettings& b) {
  if (a.min_nodes() != b.min_nodes() || a.max_nodes() != b.max_nodes()) {
    return Difference{"--nnodes", MinMaxText(a.min_nodes(), a.max_nodes()), MinMaxText(b.min_nodes(), b.max_nodes())};
  }
  if (a.max_restarts() != b.max_restarts()) {
    return Difference{"--max-restarts", absl::StrCat(a.max_restarts()), absl::StrCat(b.max_restarts())};
  }
  if (a.max_failures_at_step() != b.max_failures_at_step()) {
    return Difference{"--rdzv-conf max_failures_at_step", absl::StrCat(a.max_failures_at_step()),
                      absl::StrCat(b.max_failures_at_step())};
  }
  const struct {
    absl::string_view key;
    const google::protobuf::Duration &job, &other;
  } durations[] = {
      {"restart_window", a.restart_window(), b.restart_window()},
      {"restart_backoff", a.restart_backoff(), b.restart_backoff()},
      {"node_cooldown", a.node_cooldown(), b.node_cooldown()},
      {"join_timeout", a.join_timeout(), b.join_timeout()},
      {"last_call_timeout", a.last_call(), b.last_call()},
      {"heartbeat_timeout", a.heartbeat_timeout(), b.heartbeat_timeout()},
      {"reconnect_grace", a.reconnect_grace(), b.reconnect_grace()},
  };
  for (const auto& [key, job, other] : durations) {
    if (ToDuration(job) == ToDuration(other)) continue;
    return Difference{absl::StrCat("--rdzv-conf ", key), absl::FormatDuration(ToDuration(job)),
                      absl::FormatDuration(ToDuration(other))};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> CheckSurvivors(const google::protobuf::RepeatedPtrField<Survivor>& survivors,
                                          int32_t slots) {
  int32_t before = -1;
  for (const Survivor& survivor : survivors) {
    const int32_t rank = survivor.local_rank();
    if (rank < 0 || rank >= slots) {
      return absl::StrCat("has local rank ", rank, "; it must be 0 to ", slots - 1);
    }
    if (rank <= before) return absl::StrCat("has local rank ", rank, " after ", before, "; they must ascend");
    if (survivor.committed_step() < 0) {
      return absl::StrCat("has step ", survivor.committed_step(), " of local rank ", rank, "; it must not be negative");
    }
    before = rank;
  }
  return std::nullopt;
}

std::optional<std::string> CheckSameSettings(absl::string_view job_id, absl::string_view job_host,
                                             const JobSettings& job, absl::string_view host,
                                             const JobSettings& settings) {
  const std::optional<Difference> d = FirstDifference(job, settings);
  if (!d) return std::nullopt;
  return absl::StrCat(d->flag, " is ", d->other, " on ", host, " but ", d->job, " on ", job_host,
                      "; all nodes of job \"", job_id, "\" must use the same value");
}

std::string OtherLaunchersId(absl::string_view job_id, absl::string_view host) {
  return absl::StrCat("the node id of ", host, " is in use by another launcher of job \"", job_id,
                      "\"; each launcher needs its own");
}

std::optional<std::string> CheckHostName(const std::string& host) {
  if (host.empty()) return "the host's name is empty";
  if (host.size() > kMaxNameBytes) return absl::StrCat("the host's name has more than ", kMaxNameBytes, " bytes");
  if (!IsUtf8(host) || HasControl(host)) return "the host's name is not UTF-8 without control characters";
  return std::nullopt;
}

}  // namespace ddprun::rendezvous
