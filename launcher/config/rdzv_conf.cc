#include "launcher/config/rdzv_conf.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

// Settings as given, before synonyms are combined.
struct Draft {
  RdzvConf conf;
  std::optional<absl::Duration> join_timeout;
  std::optional<absl::Duration> timeout;
  std::optional<absl::Duration> keep_alive_interval;
  std::optional<int64_t> keep_alive_max_attempt;
};

template <typename Parsed, typename Target>
absl::Status Store(absl::StatusOr<Parsed> parsed, Target* target) {
  DDPRUN_ASSIGN_OR_RETURN(*target, parsed);
  return absl::OkStatus();
}

absl::Status Store(absl::StatusOr<absl::Duration> parsed, google::protobuf::Duration* target) {
  if (parsed.ok()) *target = FromDuration(*parsed);
  return parsed.status();
}

absl::Status CheckStoreType(absl::string_view value) {
  if (value == "tcp") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Quoted(value), " is not supported: only tcp is"));
}

absl::Status StoreRank(absl::string_view value, Draft* draft) {
  int64_t rank = 0;
  absl::Status status = Store(ParseInteger(value, 0, kMaxNodes - 1), &rank);
  if (status.ok()) draft->conf.rank = static_cast<int32_t>(rank);
  return status;
}

absl::Status StoreMaxFailures(absl::string_view value, Draft* draft) {
  int64_t failures = 0;
  absl::Status status = Store(ParseInteger(value, 0, rendezvous::kMaxRestarts), &failures);
  if (status.ok()) draft->conf.job.set_max_failures_at_step(static_cast<int32_t>(failures));
  return status;
}

struct Key {
  const char* name;
  absl::Status (*set)(absl::string_view value, Draft* draft);
};

constexpr Key kKeys[] = {
    {"join_timeout", [](absl::string_view v, Draft* d) { return Store(ParsePositiveSeconds(v), &d->join_timeout); }},
    {"timeout", [](absl::string_view v, Draft* d) { return Store(ParsePositiveSeconds(v), &d->timeout); }},
    {"last_call_timeout",
     [](absl::string_view v, Draft* d) { return Store(ParseSeconds(v), d->conf.job.mutable_last_call()); }},
    {"heartbeat_timeout",
     [](absl::string_view v, Draft* d) { return Store(ParsePositiveSeconds(v), &d->conf.heartbeat_timeout); }},
    {"keep_alive_interval",
     [](absl::string_view v, Draft* d) { return Store(ParsePositiveSeconds(v), &d->keep_alive_interval); }},
    {"keep_alive_max_attempt",
     [](absl::string_view v, Draft* d) { return Store(ParseInteger(v, 1, 1000), &d->keep_alive_max_attempt); }},
    {"reconnect_timeout",
     [](absl::string_view v, Draft* d) { return Store(ParsePositiveSeconds(v), &d->conf.reconnect_timeout); }},
    {"reconnect_grace",
     [](absl::string_view v, Draft* d) { return Store(ParseSeconds(v), d->conf.job.mutable_reconnect_grace()); }},
    {"restart_window",
     [](absl::string_view v, Draft* d) { return Store(ParseSeconds(v), d->conf.job.mutable_restart_window()); }},
    {"restart_backoff",
     [](absl::string_view v, Draft* d) { return Store(ParseSeconds(v), d->conf.job.mutable_restart_backoff()); }},
    {"max_failures_at_step", StoreMaxFailures},
    {"node_cooldown",
     [](absl::string_view v, Draft* d) { return Store(ParseSeconds(v), d->conf.job.mutable_node_cooldown()); }},
    {"is_host", [](absl::string_view v, Draft* d) { return Store(ParseBool(v), &d->conf.is_host); }},
    {"rank", StoreRank},
    {"store_type", [](absl::string_view v, Draft*) { return CheckStoreType(v); }},
    {"use_libuv", [](absl::string_view v, Draft*) { return ParseBool(v).status(); }},
    {"close_timeout", [](absl::string_view v, Draft*) { return ParseSeconds(v).status(); }},
    {"read_timeout", [](absl::string_view v, Draft*) { return ParseSeconds(v).status(); }},
    {"cas_backoff_max_seconds", [](absl::string_view v, Draft*) { return ParseSeconds(v).status(); }},
};

absl::Status SetPair(absl::string_view pair, std::set<std::string>* seen, Draft* draft) {
  const size_t equals = pair.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(pair), " is not KEY=VALUE, such as join_timeout=60"));
  }
  const absl::string_view name = TrimValue(pair.substr(0, equals));
  const absl::string_view value = TrimValue(pair.substr(equals + 1));
  const Key* key = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name; });
  if (key == std::end(kKeys)) {
    const std::string known = absl::StrJoin(kKeys, ", ", [](std::string* out, const Key& k) { out->append(k.name); });
    return absl::InvalidArgumentError(absl::StrCat("unknown key ", Quoted(name), "; known are ", known));
  }
  if (!seen->emplace(name).second) {
    return absl::InvalidArgumentError(absl::StrCat("the key ", name, " is given twice"));
  }
  if (absl::Status status = key->set(value, draft); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<RdzvConf> Combine(const Draft& draft) {
  RdzvConf conf = draft.conf;
  if (draft.timeout) *conf.job.mutable_join_timeout() = FromDuration(*draft.timeout);
  if (draft.join_timeout) *conf.job.mutable_join_timeout() = FromDuration(*draft.join_timeout);
  const bool keep_alive = draft.keep_alive_interval || draft.keep_alive_max_attempt;
  if (keep_alive && !conf.heartbeat_timeout) {
    conf.heartbeat_timeout =
        draft.keep_alive_interval.value_or(absl::Seconds(5)) * draft.keep_alive_max_attempt.value_or(3);
  }
  if (conf.heartbeat_timeout && *conf.heartbeat_timeout < kMinHeartbeatTimeout) {
    return absl::InvalidArgumentError(
        absl::StrCat("a node would be considered lost after ", absl::FormatDuration(*conf.heartbeat_timeout),
                     " of silence: give at least ", absl::FormatDuration(kMinHeartbeatTimeout)));
  }
  return conf;
}

}  // namespace

absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text) {
  Draft draft;
  std::set<std::string> seen;
  text = TrimValue(text);
  if (text.empty()) return Combine(draft);
  for (const absl::string_view pair : absl::StrSplit(text, ',')) DDPRUN_RETURN_IF_ERROR(SetPair(pair, &seen, &draft));
  return Combine(draft);
}

}  // namespace ddprun::launcher
