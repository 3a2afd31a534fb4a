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

// The first setting that differs, as its flag and the two values.
struct Difference {
  absl::string_view flag;
  std::string job, other;
};

std::optional<Difference> FirstDifference(const JobSettings& a, const JobSettings& b) {
  using google::protobuf::Duration;
  const auto durations = [](absl::string_view flag, const Duration& x, const Duration& y) {
    return Difference{flag, absl::FormatDuration(ToDuration(x)), absl::FormatDuration(ToDuration(y))};
  };
  const auto differ = [](const Duration& x, const Duration& y) {
    return x.seconds() != y.seconds() || x.nanos() != y.nanos();
  };
  if (a.min_nodes() != b.min_nodes() || a.max_nodes() != b.max_nodes()) {
    return Difference{"--nnodes", MinMaxText(a.min_nodes(), a.max_nodes()), MinMaxText(b.min_nodes(), b.max_nodes())};
  }
  if (a.max_restarts() != b.max_restarts()) {
    return Difference{"--max-restarts", absl::StrCat(a.max_restarts()), absl::StrCat(b.max_restarts())};
  }
  if (differ(a.restart_window(), b.restart_window())) {
    return durations("--rdzv-conf restart_window", a.restart_window(), b.restart_window());
  }
  if (differ(a.restart_backoff(), b.restart_backoff())) {
    return durations("--rdzv-conf restart_backoff", a.restart_backoff(), b.restart_backoff());
  }
  if (a.max_failures_at_step() != b.max_failures_at_step()) {
    return Difference{"--rdzv-conf max_failures_at_step", absl::StrCat(a.max_failures_at_step()),
                      absl::StrCat(b.max_failures_at_step())};
  }
  if (differ(a.node_cooldown(), b.node_cooldown()))
    return durations("--rdzv-conf node_cooldown", a.node_cooldown(), b.node_cooldown());
  if (differ(a.join_timeout(), b.join_timeout())) {
    return durations("--rdzv-conf join_timeout", a.join_timeout(), b.join_timeout());
  }
  if (differ(a.last_call(), b.last_call()))
    return durations("--rdzv-conf last_call_timeout", a.last_call(), b.last_call());
  if (differ(a.heartbeat_timeout(), b.heartbeat_timeout())) {
    return durations("--rdzv-conf heartbeat_timeout", a.heartbeat_timeout(), b.heartbeat_timeout());
  }
  if (differ(a.reconnect_grace(), b.reconnect_grace())) {
    return durations("--rdzv-conf reconnect_grace", a.reconnect_grace(), b.reconnect_grace());
  }
  return std::nullopt;
}

}  // namespace

Problem CheckSurvivors(const google::protobuf::RepeatedPtrField<Survivor>& survivors, int32_t slots) {
  int32_t before = -1;
  for (const Survivor& survivor : survivors) {
    const int32_t rank = survivor.local_rank();
    if (rank < 0 || rank >= slots) {
      return absl::StrCat("has local rank ", rank, "; it must be 0 to ", slots - 1);
    }
    if (rank <= before) return absl::StrCat("has local rank ", rank, " after ", before, "; they must ascend");
    if ((survivor.has_committed_step() ? survivor.committed_step() : 0) < 0) {
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

std::string Bounded(std::string text, size_t max_bytes) {
  text.resize(Utf8Prefix(text, max_bytes).size());
  return text;
}

WorkerFailure Bounded(WorkerFailure failure) {
  failure.set_host(Bounded(std::move(failure.host()), kMaxNameBytes));
  failure.set_message(Bounded(std::move(failure.message()), kMaxTextBytes));
  failure.set_traceback(Bounded(std::move(failure.traceback()), kMaxTracebackBytes));
  failure.set_error_file(Bounded(std::move(failure.error_file()), kMaxTextBytes));
  failure.set_progress(Bounded(std::move(failure.progress()), kMaxTextBytes));
  return failure;
}

}  // namespace ddprun::rendezvous
