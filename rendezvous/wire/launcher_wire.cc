#include "rendezvous/wire/launcher_wire.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/join_check.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/fields.h"
#include "rendezvous/wire/parts.h"

namespace ddprun::rendezvous {
namespace {

v1::Join::Phase PhaseToProto(Join::Phase phase) {
  switch (phase) {
    case Join::Phase::kIdle: return v1::Join::PHASE_IDLE;
    case Join::Phase::kRunning: return v1::Join::PHASE_RUNNING;
    case Join::Phase::kSucceeded: return v1::Join::PHASE_SUCCEEDED;
    case Join::Phase::kStopping: return v1::Join::PHASE_STOPPING;
  }
  return v1::Join::PHASE_UNSPECIFIED;
}

Join::Phase ReadPhase(int phase, FieldReader* fields) {
  switch (phase) {
    case v1::Join::PHASE_IDLE: return Join::Phase::kIdle;
    case v1::Join::PHASE_RUNNING: return Join::Phase::kRunning;
    case v1::Join::PHASE_SUCCEEDED: return Join::Phase::kSucceeded;
    case v1::Join::PHASE_STOPPING: return Join::Phase::kStopping;
    case v1::Join::PHASE_UNSPECIFIED: fields->Fail("phase", "is missing"); return Join::Phase::kIdle;
    // Of a newer version: whatever it is, the node has workers (protocol 7.3).
    default: return Join::Phase::kRunning;
  }
}

// Fills the member of the oneof that fits the message.
struct Writer {
  v1::LauncherMessage* proto;

  void operator()(const Join& join) const {
    v1::Join* out = proto->mutable_join();
    out->set_job_id(join.job_id);
    out->set_node_id(join.node_id);
    out->set_incarnation(join.incarnation);
    out->set_host(join.host);
    out->set_address(join.address);
    out->set_store_port(join.store_port);
    out->set_store_secret(join.store_secret);
    out->set_slots(join.slots);
    out->set_role(join.role);
    if (join.node_rank.has_value()) out->set_node_rank(*join.node_rank);
    out->set_topology(join.topology);
    *out->mutable_settings() = ToProto(join.settings);
    out->set_phase(PhaseToProto(join.phase));
    if (join.current.has_value()) *out->mutable_current() = ToProto(*join.current);
    out->set_in_touch(join.in_touch);
    SetSurvivors(join.survivors, out->mutable_survivors());
    out->set_can_reform(join.can_reform);
    out->set_protocol_version(join.protocol_version);
    out->set_session_secret(join.session_secret);
    SetDuration(join.heartbeat_timeout, out->mutable_heartbeat_timeout());
  }
  void operator()(const Heartbeat&) const { proto->mutable_heartbeat(); }
  void operator()(const WorkerFailed& failed) const {
    proto->mutable_worker_failed()->set_round(failed.round);
    *proto->mutable_worker_failed()->mutable_failure() = ToProto(failed.failure);
  }
  void operator()(const GroupSucceeded& succeeded) const {
    proto->mutable_group_succeeded()->set_round(succeeded.round);
  }
  void operator()(const Ready& ready) const {
    proto->mutable_ready()->set_left_round(ready.left_round);
    proto->mutable_ready()->set_store_port(ready.store_port);
    proto->mutable_ready()->set_store_secret(ready.store_secret);
    SetSurvivors(ready.survivors, proto->mutable_ready()->mutable_survivors());
    proto->mutable_ready()->set_can_reform(ready.can_reform);
    proto->mutable_ready()->set_left_out(ready.left_out);
  }
  void operator()(const Leave& leave) const {
    proto->mutable_leave()->set_reason(FitText(leave.reason, kMaxTextBytes));
    proto->mutable_leave()->set_has_workers(leave.has_workers);
    proto->mutable_leave()->set_signal(leave.signal);
  }
  void operator()(const Progress& progress) const {
    proto->mutable_progress()->set_round(progress.round);
    for (const RankProgress& rank : progress.ranks) *proto->mutable_progress()->add_ranks() = ToProto(rank);
  }
};

// As it came; CheckJoin says whether it may.
Join ReadJoin(const v1::Join& proto, FieldReader fields) {
  Join join;
  join.job_id = proto.job_id();
  join.node_id = proto.node_id();
  join.incarnation = proto.incarnation();
  join.host = proto.host();
  join.address = proto.address();
  join.store_port = proto.store_port();
  join.store_secret = proto.store_secret();
  join.slots = proto.slots();
  join.role = proto.role();
  if (proto.has_node_rank()) join.node_rank = proto.node_rank();
  join.topology = proto.topology();
  if (!proto.has_settings()) fields.Fail("settings", "is missing");
  join.settings = FromProto(proto.settings(), fields.Inside("settings"));
  join.phase = ReadPhase(proto.phase(), &fields);
  if (proto.has_current()) join.current = FromProto(proto.current(), fields.Inside("current"));
  join.in_touch = proto.in_touch();
  join.survivors = FromProto(proto.survivors());
  join.can_reform = proto.can_reform();
  join.protocol_version = fields.Version(proto.protocol_version());
  join.session_secret = proto.session_secret();
  if (join.session_secret.empty()) fields.Fail("session_secret", "is missing");
  join.heartbeat_timeout =
      fields.Duration("heartbeat_timeout", proto.has_heartbeat_timeout(), proto.heartbeat_timeout());
  return join;
}

WorkerFailed ReadWorkerFailed(const v1::WorkerFailed& proto, FieldReader fields) {
  if (!proto.has_failure()) fields.Fail("failure", "is missing");
  return WorkerFailed{proto.round(), FromProto(proto.failure(), fields.Inside("failure"))};
}

Ready ReadReady(const v1::Ready& proto, FieldReader fields) {
  Ready ready{proto.left_round(),
              fields.Number("store_port", proto.store_port(), 1, 65535),
              fields.Secret("store_secret", proto.store_secret()),
              FromProto(proto.survivors()),
              proto.can_reform(),
              proto.left_out()};
  if (auto problem = CheckSurvivors(ready.survivors, kMaxSlots)) fields.Fail("survivors", *problem);
  return ready;
}

Leave ReadLeave(const v1::Leave& proto, FieldReader fields) {
  return Leave{fields.Line("reason", proto.reason(), kMaxTextBytes), proto.has_workers(),
               fields.Number("signal", proto.signal(), 0, kMaxSignal)};
}

Progress ReadProgress(const v1::Progress& proto, FieldReader fields) {
  Progress progress{proto.round(), {}};
  int32_t least = 0;
  if (proto.ranks_size() > kMaxRanksInProgress) {
    fields.Fail("ranks", absl::StrCat("has ", proto.ranks_size(), " entries, more than ", kMaxRanksInProgress));
    return progress;
  }
  for (const v1::RankProgress& from : proto.ranks()) {
    RankProgress rank;
    rank.local_rank = fields.Number("local_rank", from.local_rank(), least, kMaxSlots - 1);
    least = rank.local_rank + 1;
    rank.step = fields.Step("step", from.step());
    if (from.has_samples()) rank.samples = fields.Step("samples", from.samples());
    rank.phase = fields.Line("phase", from.phase(), kMaxPhaseBytes);
    if (from.has_loss()) rank.loss = from.loss();
    rank.ago = fields.Duration("ago", from.has_ago(), from.ago());
    progress.ranks.push_back(std::move(rank));
  }
  return progress;
}

}  // namespace

v1::LauncherMessage ToProto(const LauncherMessage& message) {
  v1::LauncherMessage proto;
  std::visit(Writer{&proto}, message);
  return proto;
}

absl::StatusOr<LauncherMessage> FromProto(const v1::LauncherMessage& proto) {
  absl::Status status;
  LauncherMessage message;
  switch (proto.message_case()) {
    case v1::LauncherMessage::kJoin: {
      Join join = ReadJoin(proto.join(), FieldReader("join", &status));
      if (!status.ok()) break;
      if (auto problem = CheckJoin(join)) status = absl::InvalidArgumentError(*std::move(problem));
      message = std::move(join);
      break;
    }
    case v1::LauncherMessage::kHeartbeat: message = Heartbeat{}; break;
    case v1::LauncherMessage::kWorkerFailed:
      message = ReadWorkerFailed(proto.worker_failed(), FieldReader("worker_failed", &status));
      break;
    case v1::LauncherMessage::kGroupSucceeded: message = GroupSucceeded{proto.group_succeeded().round()}; break;
    case v1::LauncherMessage::kReady: message = ReadReady(proto.ready(), FieldReader("ready", &status)); break;
    case v1::LauncherMessage::kLeave: message = ReadLeave(proto.leave(), FieldReader("leave", &status)); break;
    case v1::LauncherMessage::kProgress:
      message = ReadProgress(proto.progress(), FieldReader("progress", &status));
      break;
    case v1::LauncherMessage::MESSAGE_NOT_SET: status = UnknownKind(proto); break;
  }
  if (!status.ok()) return status;
  return message;
}

}  // namespace ddprun::rendezvous
