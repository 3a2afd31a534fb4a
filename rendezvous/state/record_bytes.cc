#include "rendezvous/state/record_bytes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "proto/state.pb.h"
#include "proto/time.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"
#include "rendezvous/wire/event_wire.h"
#include "rendezvous/wire/job_wire.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kMaxRound = uint64_t{1} << 62;  // so that there is always a next round

// Membership of rounds is parsed strictly: a value that no server can have written makes the record unusable.
// Everything else (displayed values, ages, counts) is parsed leniently, so that it can't invalidate the record and with
// it the round.

v1::RoundRecord ToProto(const RoundRecord& round) {
  v1::RoundRecord proto;
  proto.set_number(round.number);
  proto.set_group_world_size(round.group_world_size);
  proto.set_world_size(round.world_size);
  proto.set_master_addr(round.master_addr);
  proto.set_master_port(round.master_port);
  proto.set_master_host(round.master_host);
  proto.set_store_secret(round.store_secret);
  proto.set_reason(FitText(round.reason, kMaxTextBytes));
  proto.set_leave_reason(FitText(round.leave_reason, kMaxTextBytes));
  if (round.leave_cause.has_value()) *proto.mutable_leave_cause() = Fitted(*round.leave_cause);
  for (const RoundNodeRecord& node : round.nodes) {
    v1::RoundNodeRecord* out = proto.add_nodes();
    out->set_node_id(node.node_id);
    out->set_session(node.session);
    out->set_gone(node.gone);
  }
  return proto;
}

RoundRecord FromProto(const v1::RoundRecord& proto, Fields fields) {
  RoundRecord round;
  round.number = proto.number();
  if (round.number > kMaxRound) fields.Fail("number", "is too large");
  round.group_world_size = fields.Number("group_world_size", proto.group_world_size(), 0, kMaxNodes);
  round.world_size = fields.Number("world_size", proto.world_size(), 0, int64_t{kMaxNodes} * kMaxSlots);
  round.master_addr = proto.master_addr();
  fields.OptionalName("master_addr", kMaxNameBytes, &round.master_addr);
  round.master_port = fields.Number("master_port", proto.master_port(), 0, 65535);
  round.master_host = proto.master_host();
  Fields::Lenient().OptionalName("master_host", kMaxNameBytes, &round.master_host);
  round.store_secret = proto.store_secret();
  fields.Secret("store_secret", round.store_secret);
  round.reason = proto.reason();
  round.leave_reason = proto.leave_reason();
  if (proto.has_leave_cause()) Check(&round.leave_cause.emplace(proto.leave_cause()), Fields::Lenient());
  for (const v1::RoundNodeRecord& node : proto.nodes()) {
    round.nodes.push_back(RoundNodeRecord{node.node_id(), node.session(), node.gone()});
  }
  if (!round.nodes.empty() && round.nodes.size() != static_cast<size_t>(round.group_world_size)) {
    fields.Fail("nodes", "are not group_world_size");
  }
  return round;
}

v1::RestartRecord ToProto(const RestartRecord& restarts) {
  v1::RestartRecord proto;
  for (const absl::Duration age : restarts.charge_ages) *proto.add_charge_ages() = FromDuration(age);
  if (restarts.last_age.has_value()) *proto.mutable_last_age() = FromDuration(*restarts.last_age);
  proto.set_series(restarts.series);
  *proto.mutable_wait() = FromDuration(restarts.wait);
  proto.set_last_rank(restarts.last_rank);
  proto.set_last_step(restarts.last_step);
  proto.set_failures_at_step(restarts.failures_at_step);
  return proto;
}

RestartRecord FromProto(const v1::RestartRecord& proto) {
  Fields fields = Fields::Lenient();
  RestartRecord restarts;
  for (const auto& age : proto.charge_ages()) {
    restarts.charge_ages.push_back(NearestDuration(age));
  }
  if (proto.has_last_age()) restarts.last_age = NearestDuration(proto.last_age());
  restarts.series = fields.Number("series", proto.series(), 0, INT32_MAX);
  restarts.wait = NearestDuration(proto.wait());
  restarts.last_rank = fields.Number("last_rank", proto.last_rank(), -1, INT32_MAX);
  restarts.last_step = proto.last_step();
  restarts.failures_at_step = fields.Number("failures_at_step", proto.failures_at_step(), 0, INT32_MAX);
  return restarts;
}

v1::GoodputRecord::Phase ToProto(GoodputPhase phase) {
  switch (phase) {
    case GoodputPhase::kWaiting: return v1::GoodputRecord::PHASE_WAITING;
    case GoodputPhase::kStarting: return v1::GoodputRecord::PHASE_STARTING;
    case GoodputPhase::kTraining: return v1::GoodputRecord::PHASE_TRAINING;
    case GoodputPhase::kReForming: return v1::GoodputRecord::PHASE_RE_FORMING;
    case GoodputPhase::kEnded: return v1::GoodputRecord::PHASE_ENDED;
  }
  return v1::GoodputRecord::PHASE_UNSPECIFIED;
}

GoodputPhase FromProto(v1::GoodputRecord::Phase phase) {
  switch (phase) {
    case v1::GoodputRecord::PHASE_STARTING: return GoodputPhase::kStarting;
    case v1::GoodputRecord::PHASE_TRAINING: return GoodputPhase::kTraining;
    case v1::GoodputRecord::PHASE_RE_FORMING: return GoodputPhase::kReForming;
    case v1::GoodputRecord::PHASE_ENDED: return GoodputPhase::kEnded;
    default: return GoodputPhase::kWaiting;
  }
}

v1::GoodputRecord ToProto(const GoodputRecord& goodput) {
  v1::GoodputRecord proto;
  *proto.mutable_times() = ToProto(goodput.times);
  proto.set_phase(ToProto(goodput.phase));
  proto.set_trained(goodput.trained);
  proto.set_highest_step(goodput.highest_step);
  *proto.mutable_step_time() = FromDuration(goodput.step_time);
  return proto;
}

GoodputRecord FromProto(const v1::GoodputRecord& proto) {
  const v1::Goodput& times = proto.times();
  GoodputRecord goodput;
  goodput.times = GoodputView{.waiting = NearestDuration(times.waiting()),
                              .starting = NearestDuration(times.starting()),
                              .training = NearestDuration(times.training()),
                              .re_forming = NearestDuration(times.re_forming()),
                              .lost = NearestDuration(times.lost())};
  goodput.phase = FromProto(proto.phase());
  goodput.trained = proto.trained();
  goodput.highest_step = std::max<int64_t>(proto.highest_step(), -1);
  goodput.step_time = NearestDuration(proto.step_time());
  return goodput;
}

JobRecord FromProto(const v1::JobRecord& proto, Fields fields) {
  Fields lenient = Fields::Lenient();
  JobRecord record;
  record.job_id = proto.job_id();
  fields.Name("job_id", kMaxNameBytes, &record.job_id);
  record.settings = proto.settings();
  Check(&record.settings, fields.Inside("settings"));
  record.settings_host = proto.settings_host();
  lenient.OptionalName("settings_host", kMaxNameBytes, &record.settings_host);
  record.owner = proto.owner();
  record.age = NearestDuration(proto.age());
  record.restarts_charged = lenient.Number("restarts_charged", proto.restarts_charged(), 0, INT32_MAX);
  record.highest_round = proto.highest_round();
  record.round = FromProto(proto.round(), fields.Inside("round"));
  if (record.highest_round < record.round.number) fields.Fail("highest_round", "is less than round.number");
  if (proto.resized_max_nodes() != 0) {
    record.resized = JobSize{fields.Number("resized_min_nodes", proto.resized_min_nodes(), 1, kMaxNodes),
                             fields.Number("resized_max_nodes", proto.resized_max_nodes(), 1, kMaxNodes)};
    if (record.resized->min_nodes > record.resized->max_nodes) fields.Fail("resized_min_nodes", "is too large");
  }
  record.drained_hosts.assign(proto.drained_hosts().begin(), proto.drained_hosts().end());
  if (proto.has_verdict()) Check(&record.verdict.emplace(proto.verdict()), lenient);
  record.told.assign(proto.told().begin(), proto.told().end());
  for (const v1::FencedNodeRecord& node : proto.fenced()) {
    record.fenced.push_back(FencedNodeRecord{node.node_id(), node.incarnation(), node.session()});
  }
  if (proto.has_restarts()) record.restarts = FromProto(proto.restarts());
  for (const v1::CooldownRecord& node : proto.cooldowns()) {
    CooldownRecord& cooldown = record.cooldowns.emplace_back(CooldownRecord{node.node_id()});
    cooldown.times = lenient.Number("cooldowns.times", node.times(), 0, INT32_MAX);
    if (node.has_remaining()) cooldown.remaining = NearestDuration(node.remaining());
  }
  record.failing_node = proto.failing_node();
  record.failing_rounds = lenient.Number("failing_rounds", proto.failing_rounds(), 0, INT32_MAX);
  for (const v1::KickedNodeRecord& node : proto.kicked()) {
    record.kicked.push_back(KickedNodeRecord{node.node_id(), node.actor()});
  }
  record.others.assign(proto.others().begin(), proto.others().end());
  record.earlier_round = proto.earlier_round();
  if (proto.has_earlier_verdict()) {
    Check(&record.earlier_verdict.emplace(proto.earlier_verdict()), lenient);
  } else if (record.earlier_round > 0) {
    fields.Fail("earlier_round", "has no verdict");
  }
  if (proto.has_goodput()) record.goodput = FromProto(proto.goodput());
  for (const v1::Event& saved : proto.events()) {
    if (auto event = RecordFromProto(saved)) record.events.push_back(*std::move(event));
  }
  return record;
}

}  // namespace

std::string ToBytes(const JobRecord& record) {
  v1::JobRecord proto;
  proto.set_job_id(record.job_id);
  *proto.mutable_settings() = record.settings;
  proto.set_settings_host(record.settings_host);
  proto.set_owner(FitText(record.owner, kMaxNameBytes));
  *proto.mutable_age() = FromDuration(record.age);
  proto.set_restarts_charged(record.restarts_charged);
  proto.set_highest_round(record.highest_round);
  *proto.mutable_round() = ToProto(record.round);
  if (record.verdict.has_value()) *proto.mutable_verdict() = Fitted(*record.verdict);
  for (const std::string& node_id : record.told) proto.add_told(node_id);
  if (record.resized.has_value()) {
    proto.set_resized_min_nodes(record.resized->min_nodes);
    proto.set_resized_max_nodes(record.resized->max_nodes);
  }
  for (const std::string& host : record.drained_hosts) proto.add_drained_hosts(host);
  for (const FencedNodeRecord& node : record.fenced) {
    v1::FencedNodeRecord* fenced = proto.add_fenced();
    fenced->set_node_id(node.node_id);
    fenced->set_incarnation(node.incarnation);
    fenced->set_session(node.session);
  }
  *proto.mutable_restarts() = ToProto(record.restarts);
  for (const CooldownRecord& node : record.cooldowns) {
    v1::CooldownRecord* cooldown = proto.add_cooldowns();
    cooldown->set_node_id(node.node_id);
    cooldown->set_times(node.times);
    if (node.remaining.has_value()) *cooldown->mutable_remaining() = FromDuration(*node.remaining);
  }
  proto.set_failing_node(record.failing_node);
  proto.set_failing_rounds(record.failing_rounds);
  for (const KickedNodeRecord& node : record.kicked) {
    v1::KickedNodeRecord* kicked = proto.add_kicked();
    kicked->set_node_id(node.node_id);
    kicked->set_actor(FitText(node.actor, kMaxNameBytes));
  }
  for (const std::string& node_id : record.others) proto.add_others(node_id);
  proto.set_earlier_round(record.earlier_round);
  if (record.earlier_verdict.has_value()) *proto.mutable_earlier_verdict() = Fitted(*record.earlier_verdict);
  if (record.goodput.has_value()) *proto.mutable_goodput() = ToProto(*record.goodput);
  for (const Event& event : record.events) *proto.add_events() = RecordToProto(event);
  return proto.SerializeAsString();
}

absl::StatusOr<JobRecord> RecordFromBytes(absl::string_view bytes) {
  v1::JobRecord proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("a job's record can't be parsed");
  }
  absl::Status status;
  JobRecord record = FromProto(proto, Fields("record", &status));
  if (!status.ok()) return absl::DataLossError(absl::StrCat("invalid job record: ", status.message()));
  return record;
}

std::string DescribeSetAside(absl::string_view job_id, const absl::Status& problem, absl::string_view place) {
  return absl::StrCat("can't read the record of job ", EscapeControls(job_id), " (", problem.message(),
                      "); it is kept as ", place,
                      "; this job is rebuilt from what its launchers report, and other jobs are not affected");
}

}  // namespace ddprun::rendezvous
