#include "rendezvous/core/join_check.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/text.h"
#include "base/text_check.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

using Problem = std::optional<std::string>;

std::string OutOfBounds(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  return absl::StrCat("Join.", field, " is ", value, "; it must be ", low, " to ", high);
}

Problem CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return OutOfBounds(field, value, low, high);
}

Problem CheckText(absl::string_view field, absl::string_view text, size_t min_bytes, size_t max_bytes) {
  if (text.size() < min_bytes) return absl::StrCat("Join.", field, " is empty; it must be given");
  if (text.size() > max_bytes) {
    return absl::StrCat("Join.", field, " has ", text.size(), " bytes; at most ", max_bytes, " are allowed");
  }
  if (!IsUtf8(text)) return absl::StrCat("Join.", field, " is not UTF-8");
  if (HasControl(text)) return absl::StrCat("Join.", field, " holds a control character");
  return std::nullopt;
}

Problem CheckSecret(absl::string_view field, absl::string_view secret) {
  if (secret.empty() || (secret.size() >= kMinSecretBytes && secret.size() <= kMaxSecretBytes)) return std::nullopt;
  return absl::StrCat("Join.", field, " has ", secret.size(), " bytes; it must have ", kMinSecretBytes, " to ",
                      kMaxSecretBytes);
}

Problem CheckDuration(absl::string_view field, absl::Duration value) {
  if (value >= absl::ZeroDuration() && value < absl::InfiniteDuration()) return std::nullopt;
  return absl::StrCat("Join.settings.", field, " is ", absl::FormatDuration(value),
                      "; it must be finite and not negative");
}

Problem CheckTexts(const Join& join) {
  if (auto p = CheckText("job_id", join.job_id, 1, kMaxNameBytes)) return p;
  if (auto p = CheckText("node_id", join.node_id, 1, kMaxNameBytes)) return p;
  if (auto p = CheckText("host", join.host, 1, kMaxNameBytes)) return p;
  if (auto p = CheckText("address", join.address, 1, kMaxNameBytes)) return p;
  if (auto p = CheckText("role", join.role, 0, kMaxNameBytes)) return p;
  if (auto p = CheckText("topology", join.topology, 0, kMaxTopologyBytes)) return p;
  if (auto p = CheckSecret("session_secret", join.session_secret)) return p;
  return CheckSecret("store_secret", join.store_secret);
}

Problem CheckCurrent(const Join& join) {
  if (!join.current) {
    if (join.phase == Join::Phase::kIdle) return std::nullopt;
    return "Join.current is missing; it must be given unless Join.phase is idle";
  }
  const Assignment& a = *join.current;
  if (a.round < 1) return "Join.current.round is 0; it must be at least 1";
  // The job may have been resized.
  if (auto p = CheckRange("current.group_world_size", a.group_world_size, 1, kMaxNodes)) return p;
  if (auto p = CheckRange("current.group_rank", a.group_rank, 0, a.group_world_size - 1)) return p;
  if (auto p = CheckRange("current.world_size", a.world_size, 1, int64_t{kMaxSlots} * kMaxNodes)) return p;
  if (auto p = CheckRange("current.base_rank", a.base_rank, 0, a.world_size - 1)) return p;
  if (auto p = CheckRange("current.role_world_size", a.role_world_size, 1, a.world_size)) return p;
  if (auto p = CheckRange("current.base_role_rank", a.base_role_rank, 0, a.role_world_size - 1)) return p;
  if (auto p = CheckRange("current.master_port", a.master_port, 1, 65535)) return p;
  if (auto p = CheckText("current.master_addr", a.master_addr, 1, kMaxNameBytes)) return p;
  if (auto p = CheckText("current.master_host", a.master_host, 0, kMaxNameBytes)) return p;
  if (auto p = CheckText("current.reason", a.reason, 0, 2 * kMaxTextBytes)) return p;
  if (auto p = CheckRange("current.state_source", a.state_source.value_or(0), 0, a.world_size - 1)) return p;
  if (auto p = CheckRange("current.state_step", a.state_step.value_or(0), 0, INT64_MAX)) return p;
  if (auto p = CheckRange("current.server_node", a.server_node.value_or(0), 0, a.group_world_size - 1)) return p;
  return CheckRange("current.restart_count", a.restart_count, 0, INT32_MAX);
}

// The first setting that differs, as its flag and the two values.
struct Difference {
  absl::string_view flag;
  std::string job, other;
};

std::optional<Difference> FirstDifference(const JobSettings& a, const JobSettings& b) {
  const auto durations = [](absl::string_view flag, absl::Duration x, absl::Duration y) {
    return Difference{flag, absl::FormatDuration(x), absl::FormatDuration(y)};
  };
  if (a.min_nodes != b.min_nodes || a.max_nodes != b.max_nodes) {
    return Difference{"--nnodes", MinMaxText(a.min_nodes, a.max_nodes), MinMaxText(b.min_nodes, b.max_nodes)};
  }
  if (a.max_restarts != b.max_restarts) {
    return Difference{"--max-restarts", absl::StrCat(a.max_restarts), absl::StrCat(b.max_restarts)};
  }
  if (a.restart_window != b.restart_window) {
    return durations("--rdzv-conf restart_window", a.restart_window, b.restart_window);
  }
  if (a.restart_backoff != b.restart_backoff) {
    return durations("--rdzv-conf restart_backoff", a.restart_backoff, b.restart_backoff);
  }
  if (a.max_failures_at_step != b.max_failures_at_step) {
    return Difference{"--rdzv-conf max_failures_at_step", absl::StrCat(a.max_failures_at_step),
                      absl::StrCat(b.max_failures_at_step)};
  }
  if (a.node_cooldown != b.node_cooldown)
    return durations("--rdzv-conf node_cooldown", a.node_cooldown, b.node_cooldown);
  if (a.join_timeout != b.join_timeout) {
    return durations("--rdzv-conf join_timeout", a.join_timeout, b.join_timeout);
  }
  if (a.last_call != b.last_call) return durations("--rdzv-conf last_call_timeout", a.last_call, b.last_call);
  if (a.heartbeat_timeout != b.heartbeat_timeout) {
    return durations("--rdzv-conf heartbeat_timeout", a.heartbeat_timeout, b.heartbeat_timeout);
  }
  if (a.reconnect_grace != b.reconnect_grace) {
    return durations("--rdzv-conf reconnect_grace", a.reconnect_grace, b.reconnect_grace);
  }
  return std::nullopt;
}

}  // namespace

Problem CheckSettings(const JobSettings& s) {
  if (auto p = CheckRange("settings.max_nodes", s.max_nodes, 1, kMaxNodes)) return p;
  if (auto p = CheckRange("settings.min_nodes", s.min_nodes, 1, s.max_nodes)) return p;
  if (auto p = CheckRange("settings.max_restarts", s.max_restarts, 0, kMaxRestarts)) return p;
  if (auto p = CheckDuration("join_timeout", s.join_timeout)) return p;
  if (auto p = CheckDuration("last_call", s.last_call)) return p;
  if (auto p = CheckDuration("heartbeat_timeout", s.heartbeat_timeout)) return p;
  if (auto p = CheckDuration("reconnect_grace", s.reconnect_grace)) return p;
  if (auto p = CheckDuration("restart_window", s.restart_window)) return p;
  if (auto p = CheckDuration("restart_backoff", s.restart_backoff)) return p;
  if (auto p = CheckRange("settings.max_failures_at_step", s.max_failures_at_step, 0, kMaxRestarts)) return p;
  if (auto p = CheckDuration("node_cooldown", s.node_cooldown)) return p;
  if (s.heartbeat_timeout < absl::Milliseconds(1)) {
    return absl::StrCat("Join.settings.heartbeat_timeout is ", absl::FormatDuration(s.heartbeat_timeout),
                        "; it must be at least 1ms");
  }
  return std::nullopt;
}

std::optional<std::string> CheckJoin(const Join& join) {
  if (auto p = CheckTexts(join)) return p;
  if (join.incarnation == 0) return "Join.incarnation is 0; it must be at least 1";
  if (auto p = CheckRange("slots", join.slots, 1, kMaxSlots)) return p;
  if (auto p = CheckSettings(join.settings)) return p;
  // Of a node that is not idle the port is not needed: its Ready brings a fresh one.
  const int lowest_port = join.phase == Join::Phase::kIdle ? 1 : 0;
  if (auto p = CheckRange("store_port", join.store_port, lowest_port, 65535)) return p;
  if (join.node_rank) {
    if (auto p = CheckRange("node_rank", *join.node_rank, 0, join.settings.max_nodes - 1)) return p;
  }
  if (auto p = CheckSurvivors(join.survivors, join.slots)) return absl::StrCat("Join.survivors ", *p);
  if (!join.survivors.empty() && !join.current) return "Join.current is missing; it must be given with Join.survivors";
  return CheckCurrent(join);
}

Problem CheckSurvivors(const std::vector<Survivor>& survivors, int32_t slots) {
  int32_t before = -1;
  for (const Survivor& survivor : survivors) {
    const int32_t rank = survivor.local_rank;
    if (rank < 0 || rank >= slots) {
      return absl::StrCat("has local rank ", rank, "; it must be 0 to ", slots - 1);
    }
    if (rank <= before) return absl::StrCat("has local rank ", rank, " after ", before, "; they must ascend");
    if (survivor.committed_step.value_or(0) < 0) {
      return absl::StrCat("has step ", *survivor.committed_step, " of local rank ", rank, "; it must not be negative");
    }
    before = rank;
  }
  return std::nullopt;
}

bool IsPort(int32_t port) { return port >= 1 && port <= 65535; }

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
  if (auto problem = CheckText("host", host, 1, kMaxNameBytes)) return problem;
  return std::nullopt;
}

std::string Bounded(std::string text, size_t max_bytes) {
  text.resize(Utf8Prefix(text, max_bytes).size());
  return text;
}

WorkerFailure Bounded(WorkerFailure failure) {
  failure.host = Bounded(std::move(failure.host), kMaxNameBytes);
  failure.message = Bounded(std::move(failure.message), kMaxTextBytes);
  failure.traceback = Bounded(std::move(failure.traceback), kMaxTracebackBytes);
  failure.error_file = Bounded(std::move(failure.error_file), kMaxTextBytes);
  failure.progress = Bounded(std::move(failure.progress), kMaxTextBytes);
  return failure;
}

}  // namespace ddprun::rendezvous
