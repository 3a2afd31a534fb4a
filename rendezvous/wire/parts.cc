#include "rendezvous/wire/parts.h"

#include <limits>

#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxExitCode = 255;

}  // namespace

v1::JobSettings ToProto(const JobSettings& settings) {
  v1::JobSettings proto;
  proto.set_min_nodes(settings.min_nodes);
  proto.set_max_nodes(settings.max_nodes);
  proto.set_max_restarts(settings.max_restarts);
  SetDuration(settings.join_timeout, proto.mutable_join_timeout());
  SetDuration(settings.last_call, proto.mutable_last_call());
  SetDuration(settings.heartbeat_timeout, proto.mutable_heartbeat_timeout());
  SetDuration(settings.reconnect_grace, proto.mutable_reconnect_grace());
  SetDuration(settings.restart_window, proto.mutable_restart_window());
  SetDuration(settings.restart_backoff, proto.mutable_restart_backoff());
  proto.set_max_failures_at_step(settings.max_failures_at_step);
  SetDuration(settings.node_cooldown, proto.mutable_node_cooldown());
  return proto;
}

JobSettings FromProto(const v1::JobSettings& proto, FieldReader fields) {
  JobSettings settings;
  settings.max_nodes = proto.max_nodes();
  settings.min_nodes = proto.min_nodes();
  settings.max_restarts = proto.max_restarts();
  settings.join_timeout = fields.Duration("join_timeout", proto.has_join_timeout(), proto.join_timeout());
  settings.last_call = fields.Duration("last_call", proto.has_last_call(), proto.last_call());
  settings.heartbeat_timeout =
      fields.Duration("heartbeat_timeout", proto.has_heartbeat_timeout(), proto.heartbeat_timeout());
  settings.reconnect_grace = fields.Duration("reconnect_grace", proto.has_reconnect_grace(), proto.reconnect_grace());
  settings.restart_window = fields.Duration("restart_window", proto.has_restart_window(), proto.restart_window());
  settings.restart_backoff = fields.Duration("restart_backoff", proto.has_restart_backoff(), proto.restart_backoff());
  settings.max_failures_at_step = proto.max_failures_at_step();
  settings.node_cooldown = fields.Duration("node_cooldown", proto.has_node_cooldown(), proto.node_cooldown());
  return settings;
}

v1::WorkerFailure ToProto(const WorkerFailure& failure) {
  v1::WorkerFailure proto;
  proto.set_host(failure.host);
  proto.set_rank(failure.rank);
  proto.set_local_rank(failure.local_rank);
  proto.set_pid(failure.pid);
  proto.set_exit_code(failure.exit_code);
  proto.set_signal(failure.signal);
  proto.set_restartable(failure.restartable);
  proto.set_oom_killed(failure.oom_killed);
  SetTime(failure.at, proto.mutable_at());
  SetDuration(failure.ran_for, proto.mutable_ran_for());
  proto.set_message(FitText(failure.message, kMaxTextBytes));
  proto.set_traceback(FitText(failure.traceback, kMaxTracebackBytes));
  proto.set_error_file(FitText(failure.error_file, kMaxTextBytes));
  proto.set_progress(FitText(failure.progress, kMaxTextBytes));
  if (failure.step.has_value()) proto.set_step(*failure.step);
  return proto;
}

WorkerFailure FromProto(const v1::WorkerFailure& proto, FieldReader fields) {
  WorkerFailure failure;
  failure.host = fields.OptionalName("host", proto.host(), kMaxNameBytes);
  failure.rank = fields.Number("rank", proto.rank(), -1, kMaxInt);
  failure.local_rank = fields.Number("local_rank", proto.local_rank(), -1, kMaxSlots - 1);
  failure.pid = fields.Number("pid", proto.pid(), 0, kMaxInt);
  failure.exit_code = fields.Number("exit_code", proto.exit_code(), 0, kMaxExitCode);
  failure.signal = fields.Number("signal", proto.signal(), 0, kMaxSignal);
  failure.restartable = proto.restartable();
  failure.oom_killed = proto.oom_killed();
  failure.at = fields.Time("at", proto.at());
  failure.ran_for = fields.Duration("ran_for", proto.has_ran_for(), proto.ran_for());
  failure.message = fields.Line("message", proto.message(), kMaxTextBytes);
  failure.traceback = fields.Lines("traceback", proto.traceback(), kMaxTracebackBytes);
  failure.error_file = fields.Line("error_file", proto.error_file(), kMaxTextBytes);
  failure.progress = fields.Line("progress", proto.progress(), kMaxTextBytes);
  if (proto.has_step()) failure.step = fields.Step("step", proto.step());
  return failure;
}

v1::Verdict ToProto(const Verdict& verdict) {
  v1::Verdict proto;
  proto.set_succeeded(verdict.succeeded);
  proto.set_reason(FitText(verdict.reason, kMaxTextBytes));
  if (verdict.first_cause.has_value()) *proto.mutable_first_cause() = ToProto(*verdict.first_cause);
  proto.set_exit_code(verdict.exit_code);
  return proto;
}

Verdict FromProto(const v1::Verdict& proto, FieldReader fields) {
  Verdict verdict;
  verdict.succeeded = proto.succeeded();
  verdict.reason = fields.Line("reason", proto.reason(), kMaxTextBytes);
  if (proto.has_first_cause()) {
    verdict.first_cause = FromProto(proto.first_cause(), fields.Inside("first_cause"));
  }
  verdict.exit_code = fields.Number("exit_code", proto.exit_code(), 0, kMaxExitCode);
  return verdict;
}

void SetSurvivors(const std::vector<Survivor>& survivors, google::protobuf::RepeatedPtrField<v1::Survivor>* proto) {
  for (const Survivor& survivor : survivors) {
    v1::Survivor* out = proto->Add();
    out->set_local_rank(survivor.local_rank);
    if (survivor.committed_step.has_value()) out->set_committed_step(*survivor.committed_step);
  }
}

std::vector<Survivor> FromProto(const google::protobuf::RepeatedPtrField<v1::Survivor>& proto) {
  std::vector<Survivor> survivors;
  survivors.reserve(proto.size());
  for (const v1::Survivor& in : proto) {
    Survivor& survivor = survivors.emplace_back(Survivor{in.local_rank()});
    if (in.has_committed_step()) survivor.committed_step = in.committed_step();
  }
  return survivors;
}

v1::RankProgress ToProto(const RankProgress& rank) {
  v1::RankProgress proto;
  proto.set_local_rank(rank.local_rank);
  proto.set_step(rank.step);
  if (rank.samples.has_value()) proto.set_samples(*rank.samples);
  proto.set_phase(FitText(rank.phase, kMaxPhaseBytes));
  if (rank.loss.has_value()) proto.set_loss(*rank.loss);
  SetDuration(rank.ago, proto.mutable_ago());
  return proto;
}

v1::Assignment ToProto(const Assignment& assignment) {
  v1::Assignment proto;
  proto.set_round(assignment.round);
  proto.set_group_rank(assignment.group_rank);
  proto.set_group_world_size(assignment.group_world_size);
  proto.set_base_rank(assignment.base_rank);
  proto.set_world_size(assignment.world_size);
  proto.set_base_role_rank(assignment.base_role_rank);
  proto.set_role_world_size(assignment.role_world_size);
  proto.set_master_addr(assignment.master_addr);
  proto.set_master_port(assignment.master_port);
  proto.set_master_host(FitText(assignment.master_host, kMaxNameBytes));
  proto.set_store_secret(assignment.store_secret);
  proto.set_restart_count(assignment.restart_count);
  proto.set_reason(FitText(assignment.reason, kMaxTextBytes));
  proto.set_keeps_workers(assignment.keeps_workers);
  if (assignment.state_source.has_value()) proto.set_state_source(*assignment.state_source);
  if (assignment.state_step.has_value()) proto.set_state_step(*assignment.state_step);
  if (assignment.server_node.has_value()) proto.set_server_node(*assignment.server_node);
  return proto;
}

Assignment FromProto(const v1::Assignment& proto, FieldReader fields) {
  Assignment assignment;
  assignment.round = proto.round();
  if (proto.round() == 0) fields.Fail("round", "must not be 0");
  assignment.group_world_size = fields.Number("group_world_size", proto.group_world_size(), 1, kMaxNodes);
  assignment.group_rank = fields.Number("group_rank", proto.group_rank(), 0, assignment.group_world_size - 1);
  assignment.world_size = fields.Number("world_size", proto.world_size(), 1, kMaxInt);
  assignment.base_rank = fields.Number("base_rank", proto.base_rank(), 0, assignment.world_size - 1);
  assignment.role_world_size = fields.Number("role_world_size", proto.role_world_size(), 1, assignment.world_size);
  assignment.base_role_rank =
      fields.Number("base_role_rank", proto.base_role_rank(), 0, assignment.role_world_size - 1);
  assignment.master_addr = fields.Name("master_addr", proto.master_addr(), kMaxNameBytes);
  assignment.master_port = fields.Number("master_port", proto.master_port(), 1, 65535);
  assignment.master_host = fields.Line("master_host", proto.master_host(), kMaxNameBytes);
  assignment.store_secret = fields.Secret("store_secret", proto.store_secret());
  assignment.restart_count = fields.Number("restart_count", proto.restart_count(), 0, kMaxInt);
  assignment.reason = fields.Line("reason", proto.reason(), kMaxTextBytes);
  assignment.keeps_workers = proto.keeps_workers();
  if (proto.has_state_source()) {
    assignment.state_source = fields.Number("state_source", proto.state_source(), 0, assignment.world_size - 1);
  }
  if (proto.has_state_step()) assignment.state_step = fields.Step("state_step", proto.state_step());
  if (proto.has_server_node()) {
    assignment.server_node = fields.Number("server_node", proto.server_node(), 0, assignment.group_world_size - 1);
  }
  return assignment;
}

}  // namespace ddprun::rendezvous
