#include "rendezvous/core/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/time.h"
#include "rendezvous/core/inspection.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxExitCode = 255;

void Check(Assignment* a, Fields fields) {
  if (a->round() == 0) fields.Fail("round", "must not be 0");
  a->set_group_world_size(fields.Number("group_world_size", a->group_world_size(), 1, kMaxNodes));
  a->set_group_rank(fields.Number("group_rank", a->group_rank(), 0, a->group_world_size() - 1));
  a->set_world_size(fields.Number("world_size", a->world_size(), 1, int64_t{kMaxSlots} * kMaxNodes));
  a->set_base_rank(fields.Number("base_rank", a->base_rank(), 0, a->world_size() - 1));
  a->set_role_world_size(fields.Number("role_world_size", a->role_world_size(), 1, a->world_size()));
  a->set_base_role_rank(fields.Number("base_role_rank", a->base_role_rank(), 0, a->role_world_size() - 1));
  fields.Name("master_addr", kMaxNameBytes, a->mutable_master_addr());
  a->set_master_port(fields.Number("master_port", a->master_port(), 1, 65535));
  fields.Line("master_host", kMaxNameBytes, a->mutable_master_host());
  fields.Secret("store_secret", a->store_secret());
  a->set_restart_count(fields.Number("restart_count", a->restart_count(), 0, kMaxInt));
  fields.Line("reason", kMaxTextBytes, a->mutable_reason());
  if (a->has_state_source()) {
    a->set_state_source(fields.Number("state_source", a->state_source(), 0, a->world_size() - 1));
  }
  if (a->has_state_step()) a->set_state_step(fields.Step("state_step", a->state_step()));
  if (a->has_server_node()) {
    a->set_server_node(fields.Number("server_node", a->server_node(), 0, a->group_world_size() - 1));
  }
}

void Check(const google::protobuf::RepeatedPtrField<Survivor>& survivors, int32_t slots, Fields* fields) {
  if (auto problem = CheckSurvivors(survivors, slots)) fields->Fail("survivors", *problem);
}

void CheckVersion(uint32_t version, Fields* fields) {
  if (version == 0) fields->Fail("protocol_version", "is missing");
}

void Check(Join* join, Fields fields) {
  fields.Name("job_id", kMaxNameBytes, join->mutable_job_id());
  fields.Name("node_id", kMaxNameBytes, join->mutable_node_id());
  if (join->incarnation() == 0) fields.Fail("incarnation", "must be at least 1");
  fields.Name("host", kMaxNameBytes, join->mutable_host());
  fields.Name("address", kMaxNameBytes, join->mutable_address());
  fields.OptionalName("role", kMaxNameBytes, join->mutable_role());
  fields.OptionalName("topology", kMaxTopologyBytes, join->mutable_topology());
  join->set_slots(fields.Number("slots", join->slots(), 1, kMaxSlots));
  fields.Required("settings", join->has_settings());
  Check(join->mutable_settings(), fields.Inside("settings"));
  if (join->phase() == Join::PHASE_UNSPECIFIED) fields.Fail("phase", "is missing");
  // An unknown phase, of a newer launcher, counts as running (protocol 7.3).
  if (!Join::Phase_IsValid(join->phase())) join->set_phase(Join::PHASE_RUNNING);
  // A node that is not idle needs no port yet: its Ready will have the port.
  const bool is_idle = join->phase() == Join::PHASE_IDLE;
  join->set_store_port(fields.Number("store_port", join->store_port(), is_idle ? 1 : 0, 65535));
  if (join->has_node_rank()) {
    join->set_node_rank(fields.Number("node_rank", join->node_rank(), 0, join->settings().max_nodes() - 1));
  }
  Check(join->survivors(), join->slots(), &fields);
  if (!is_idle || !join->survivors().empty()) fields.Required("current", join->has_current());
  if (join->has_current()) Check(join->mutable_current(), fields.Inside("current"));
  CheckVersion(join->protocol_version(), &fields);
  fields.Required("session_secret", !join->session_secret().empty());
  fields.Secret("session_secret", join->session_secret());
  fields.Secret("store_secret", join->store_secret());
  fields.Duration("heartbeat_timeout", join);
}

void Check(Heartbeat*, Fields) {}

void Check(WorkerFailed* failed, Fields fields) {
  fields.Required("failure", failed->has_failure());
  Check(failed->mutable_failure(), fields.Inside("failure"));
}

void Check(GroupSucceeded*, Fields) {}

void Check(Ready* ready, Fields fields) {
  ready->set_store_port(fields.Number("store_port", ready->store_port(), 1, 65535));
  fields.Secret("store_secret", ready->store_secret());
  Check(ready->survivors(), kMaxSlots, &fields);
}

void Check(Leave* leave, Fields fields) {
  fields.Line("reason", kMaxTextBytes, leave->mutable_reason());
  leave->set_signal(fields.Number("signal", leave->signal(), 0, kMaxSignal));
}

void Check(Progress* progress, Fields fields) {
  if (progress->ranks_size() > kMaxRanksInProgress) {
    return fields.Fail("ranks",
                       absl::StrCat("has ", progress->ranks_size(), " entries, more than ", kMaxRanksInProgress));
  }
  int32_t least = 0;
  for (RankProgress& rank : *progress->mutable_ranks()) {
    rank.set_local_rank(fields.Number("local_rank", rank.local_rank(), least, kMaxSlots - 1));
    least = rank.local_rank() + 1;
    Check(&rank, fields);
  }
}

void Check(Welcome* welcome, Fields fields) {
  fields.Duration("heartbeat_interval", welcome);
  // A shorter interval would keep the launcher busy with heartbeats.
  if (ToDuration(welcome->heartbeat_interval()) < absl::Milliseconds(1)) {
    fields.Fail("heartbeat_interval", "must be at least 1ms");
  }
  CheckVersion(welcome->protocol_version(), &fields);
  fields.Duration("heartbeat_timeout", welcome);
  fields.OptionalName("server_process", kMaxProcessNameBytes, welcome->mutable_server_process());
}

void Check(HeartbeatAck*, Fields) {}

void Check(Waiting* waiting, Fields fields) {
  waiting->set_nodes_joined(fields.Number("nodes_joined", waiting->nodes_joined(), 0, kMaxNodes));
  waiting->set_max_nodes(fields.Number("max_nodes", waiting->max_nodes(), 0, kMaxNodes));
  waiting->set_min_nodes(fields.Number("min_nodes", waiting->min_nodes(), 0, waiting->max_nodes()));
  if (waiting->hosts_size() > kMaxHostsTold) {
    return fields.Fail("hosts", absl::StrCat("names ", waiting->hosts_size(), ", more than ", kMaxHostsTold));
  }
  for (std::string& host : *waiting->mutable_hosts()) fields.OptionalName("hosts", kMaxNameBytes, &host);
  fields.Duration("remaining", waiting);
  fields.Line("reason", kMaxTextBytes, waiting->mutable_reason());
}

void Check(Assign* assign, Fields fields) {
  fields.Required("assignment", assign->has_assignment());
  Check(assign->mutable_assignment(), fields.Inside("assignment"));
}

void Check(StopRound* stop, Fields fields) {
  fields.Line("reason", kMaxTextBytes, stop->mutable_reason());
  if (stop->has_first_cause()) Check(stop->mutable_first_cause(), fields.Inside("first_cause"));
}

void Check(Finish* finish, Fields fields) {
  fields.Required("verdict", finish->has_verdict());
  Check(finish->mutable_verdict(), fields.Inside("verdict"));
}

void Check(Rejected* rejected, Fields fields) { fields.Line("reason", kMaxTextBytes, rejected->mutable_reason()); }

void Check(ExcludedFromRound* excluded, Fields fields) {
  fields.Line("reason", kMaxTextBytes, excluded->mutable_reason());
}

void Check(Hang* hang, Fields fields) {
  fields.Lines("text", kMaxHangBytes, hang->mutable_text());
  if (hang->ranks_size() > kMaxRanksInHang) {
    return fields.Fail("ranks", absl::StrCat("names ", hang->ranks_size(), ", more than ", kMaxRanksInHang));
  }
  for (int32_t& rank : *hang->mutable_ranks()) rank = fields.Number("ranks", rank, 0, kMaxInt);
  if (hang->has_at()) fields.Time("at", hang->mutable_at());
  if (hang->kind() == Hang::KIND_UNSPECIFIED) fields.Fail("kind", "is missing");
}

// Fails if a list has more than `most` entries.
template <typename List>
bool HasAtMost(int most, const List& list, const char* name, Fields* fields) {
  if (list.size() <= most) return true;
  fields->Fail(name, absl::StrCat("has ", list.size(), " entries, more than ", most));
  return false;
}

// Returns an amount that can be shown and written as JSON.
double Amount(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

void Check(RankUsage* usage, Fields fields) {
  usage->set_rank(fields.Number("rank", usage->rank(), 0, kMaxInt));
  usage->set_pid(fields.Number("pid", usage->pid(), 0, kMaxInt));
  usage->clear_host();
  usage->set_cpu(Amount(usage->cpu()));
  usage->set_memory_bytes(std::max<int64_t>(0, usage->memory_bytes()));
  usage->set_io(Amount(usage->io()));
  usage->set_net(Amount(usage->net()));
  if (usage->has_collectives()) usage->set_collectives(Amount(usage->collectives()));
  if (usage->has_gpu()) usage->set_gpu(Amount(usage->gpu()));
  if (usage->has_gpu_memory_bytes()) usage->set_gpu_memory_bytes(std::max<int64_t>(0, usage->gpu_memory_bytes()));
}

void Check(Inspection* inspection, Fields fields) {
  if (!HasAtMost(kMaxRanksInInspection, inspection->ranks(), "ranks", &fields) ||
      !HasAtMost(kMaxOutputsInInspection, inspection->outputs(), "outputs", &fields) ||
      !HasAtMost(kMaxUsagesInInspection, inspection->usages(), "usages", &fields)) {
    return;
  }
  for (RankOutput& output : *inspection->mutable_outputs()) {
    output.set_rank(fields.Number("rank", output.rank(), 0, kMaxInt));
    output.clear_host();
    if (output.text().size() > kMaxOutputBytes) {
      fields.Fail("text", absl::StrCat("has ", output.text().size(), " bytes, more than ", kMaxOutputBytes));
    }
  }
  for (RankUsage& usage : *inspection->mutable_usages()) Check(&usage, fields);
  for (RankStacks& rank : *inspection->mutable_ranks()) {
    rank.set_rank(fields.Number("rank", rank.rank(), 0, kMaxInt));
    rank.set_pid(fields.Number("pid", rank.pid(), 0, kMaxInt));
    rank.clear_host();
    fields.Line("state", kMaxTextBytes, rank.mutable_state());
    fields.Lines("text", kMaxStackBytes, rank.mutable_text());
    fields.Lines("native", kMaxNativeStackBytes, rank.mutable_native());
  }
}

void Check(Inspect* inspect, Fields fields) {
  if (inspect->ranks_size() > kMaxSlots) {
    return fields.Fail("ranks", absl::StrCat("names ", inspect->ranks_size(), ", more than ", kMaxSlots));
  }
  for (int32_t& rank : *inspect->mutable_ranks()) rank = fields.Number("ranks", rank, 0, kMaxInt);
  if (!HasAtMost(2 * kMaxSlots, inspect->after(), "after", &fields)) return;
  if (inspect->has_since()) fields.FiniteDuration("since", inspect);
}

constexpr const char* kLauncherMessageNames[] = {"join",  "heartbeat", "worker_failed", "group_succeeded", "ready",
                                                 "leave", "progress",  "hang",          "inspection"};
constexpr const char* kServerMessageNames[] = {"welcome",    "heartbeat_ack", "waiting",  "assign",
                                               "stop_round", "finish",        "rejected", "excluded_from_round",
                                               "hang",       "inspect"};

template <typename Message, size_t kCount>
absl::Status ValidateAny(Message* message, const char* const (&names)[kCount]) {
  static_assert(kCount == std::variant_size_v<Message>);
  absl::Status status;
  const auto check = [&](auto& m) {
    m.DiscardUnknownFields();
    Check(&m, Fields(names[message->index()], &status));
  };
  std::visit(check, *message);
  return status;
}

}  // namespace

void Check(JobSettings* settings, Fields fields) {
  settings->set_max_nodes(fields.Number("max_nodes", settings->max_nodes(), 1, kMaxNodes));
  settings->set_min_nodes(fields.Number("min_nodes", settings->min_nodes(), 1, settings->max_nodes()));
  settings->set_max_restarts(fields.Number("max_restarts", settings->max_restarts(), 0, kMaxRestarts));
  for (const absl::string_view name : {"join_timeout", "last_call", "heartbeat_timeout", "reconnect_grace",
                                       "restart_window", "restart_backoff", "node_cooldown"}) {
    fields.FiniteDuration(name, settings);
  }
  if (ToDuration(settings->heartbeat_timeout()) < absl::Milliseconds(1)) {
    fields.Fail("heartbeat_timeout", "must be at least 1ms");
  }
  settings->set_max_failures_at_step(
      fields.Number("max_failures_at_step", settings->max_failures_at_step(), 0, kMaxRestarts));
}

void Check(WorkerFailure* failure, Fields fields) {
  fields.OptionalName("host", kMaxNameBytes, failure->mutable_host());
  failure->set_rank(fields.Number("rank", failure->rank(), -1, kMaxInt));
  failure->set_local_rank(fields.Number("local_rank", failure->local_rank(), -1, kMaxSlots - 1));
  failure->set_pid(fields.Number("pid", failure->pid(), 0, kMaxInt));
  failure->set_exit_code(fields.Number("exit_code", failure->exit_code(), 0, kMaxExitCode));
  failure->set_signal(fields.Number("signal", failure->signal(), 0, kMaxSignal));
  fields.Time("at", failure->mutable_at());
  fields.Duration("ran_for", failure);
  fields.Line("message", kMaxTextBytes, failure->mutable_message());
  fields.Lines("traceback", kMaxTracebackBytes, failure->mutable_traceback());
  fields.Line("error_file", kMaxTextBytes, failure->mutable_error_file());
  fields.Line("progress", kMaxTextBytes, failure->mutable_progress());
  if (failure->has_step()) failure->set_step(fields.Step("step", failure->step()));
}

void Check(Verdict* verdict, Fields fields) {
  fields.Line("reason", kMaxTextBytes, verdict->mutable_reason());
  if (verdict->has_first_cause()) Check(verdict->mutable_first_cause(), fields.Inside("first_cause"));
  verdict->set_exit_code(fields.Number("exit_code", verdict->exit_code(), 0, kMaxExitCode));
}

void Check(RankProgress* rank, Fields fields) {
  rank->set_step(fields.Step("step", rank->step()));
  if (rank->has_samples()) rank->set_samples(fields.Step("samples", rank->samples()));
  fields.Line("phase", kMaxPhaseBytes, rank->mutable_phase());
  fields.Duration("ago", rank);
}

void Check(Event* event, Fields fields) {
  fields.OptionalName("kind", kMaxNameBytes, event->mutable_kind());
  fields.OptionalName("host", kMaxNameBytes, event->mutable_host());
  fields.Line("detail", kMaxTextBytes, event->mutable_detail());
  fields.Line("actor", kMaxNameBytes, event->mutable_actor());
  fields.Time("time", event->mutable_time());
  if (event->has_failure()) Check(event->mutable_failure(), fields.Inside("failure"));
}

void Check(v1::GoodputRecord* goodput, Fields fields) {
  for (const absl::string_view name : {"waiting", "starting", "training", "re_forming", "lost"}) {
    fields.Duration(name, goodput->mutable_times());
  }
  if (!v1::GoodputRecord::Phase_IsValid(goodput->phase()) || goodput->phase() == v1::GoodputRecord::PHASE_UNSPECIFIED) {
    goodput->set_phase(v1::GoodputRecord::PHASE_WAITING);
  }
  goodput->set_highest_step(std::max<int64_t>(goodput->highest_step(), -1));
  fields.Duration("step_time", goodput);
}

absl::Status Validate(LauncherMessage* message) { return ValidateAny(message, kLauncherMessageNames); }
absl::Status Validate(ServerMessage* message) { return ValidateAny(message, kServerMessageNames); }

void FitTexts(LauncherMessage* message) {
  std::visit([](auto& m) { Check(&m, Fields::Fit()); }, *message);
}
void FitTexts(ServerMessage* message) {
  std::visit([](auto& m) { Check(&m, Fields::Fit()); }, *message);
}

}  // namespace ddprun::rendezvous
