#include "rendezvous/state/record_bytes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "proto/state.pb.h"
#include "proto/time.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kMaxRound = uint64_t{1} << 62;  // so that there is always a next round

// Membership of rounds and the verdict are parsed strictly: a value that no server can have written makes the record
// unusable. Everything else is parsed leniently, so that it can't invalidate the record and with it the round: ages and
// counts are clamped, displayed texts cleaned, and displayed messages dropped if they can't be parsed.

// Parses a message that may be dropped. Returns nullopt if it is empty or malformed.
template <typename Message>
std::optional<Message> Parsed(const std::string& bytes) {
  Message message;
  if (bytes.empty() || !message.ParseFromString(bytes)) return std::nullopt;
  return message;
}

std::optional<WorkerFailure> FailureFromBytes(const std::string& bytes) {
  std::optional<WorkerFailure> failure = Parsed<WorkerFailure>(bytes);
  if (failure.has_value()) Check(&*failure, Fields::Lenient());
  return failure;
}

v1::VerdictRecord ToProto(const Verdict& verdict) {
  v1::VerdictRecord proto;
  proto.set_succeeded(verdict.succeeded());
  proto.set_reason(FitText(verdict.reason(), kMaxTextBytes));
  if (verdict.has_first_cause()) proto.set_first_cause(Fitted(verdict.first_cause()).SerializeAsString());
  proto.set_exit_code(verdict.exit_code());
  return proto;
}

Verdict FromProto(const v1::VerdictRecord& proto) {
  Verdict verdict = NewVerdict(proto.succeeded(), FitText(proto.reason(), kMaxTextBytes),
                               FailureFromBytes(proto.first_cause()), proto.exit_code());
  Check(&verdict, Fields::Lenient());
  return verdict;
}

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
  if (round.leave_cause.has_value()) proto.set_leave_cause(Fitted(*round.leave_cause).SerializeAsString());
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
  round.reason = FitText(proto.reason(), kMaxTextBytes);
  round.leave_reason = FitText(proto.leave_reason(), kMaxTextBytes);
  round.leave_cause = FailureFromBytes(proto.leave_cause());
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

JobRecord FromProto(const v1::JobRecord& proto, Fields fields) {
  Fields lenient = Fields::Lenient();
  JobRecord record;
  record.job_id = proto.job_id();
  fields.Name("job_id", kMaxNameBytes, &record.job_id);
  record.settings = proto.settings();
  Check(&record.settings, fields.Inside("settings"));
  record.settings_host = proto.settings_host();
  lenient.OptionalName("settings_host", kMaxNameBytes, &record.settings_host);
  record.owner = FitText(proto.owner(), kMaxNameBytes);
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
  if (proto.has_verdict()) record.verdict = FromProto(proto.verdict());
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
    record.kicked.push_back(KickedNodeRecord{node.node_id(), FitText(node.actor(), kMaxNameBytes)});
  }
  record.others.assign(proto.others().begin(), proto.others().end());
  // Without its verdict the previous job is forgotten, as the oldest ended ones are.
  if (const auto verdict = Parsed<v1::VerdictRecord>(proto.earlier_verdict())) {
    record.earlier_round = proto.earlier_round();
    record.earlier_verdict = FromProto(*verdict);
  }
  record.goodput = Parsed<v1::GoodputRecord>(proto.goodput());
  if (record.goodput) {
    Check(&*record.goodput, lenient);
    record.goodput->clear_ago();
  }
  for (const std::string& saved : proto.events()) {
    auto event = Parsed<Event>(saved);
    if (!event.has_value()) continue;
    Check(&*event, lenient);
    record.events.push_back(*std::move(event));
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
  if (record.verdict.has_value()) *proto.mutable_verdict() = ToProto(*record.verdict);
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
  if (record.earlier_verdict.has_value()) {
    proto.set_earlier_verdict(ToProto(*record.earlier_verdict).SerializeAsString());
  }
  if (record.goodput.has_value()) proto.set_goodput(record.goodput->SerializeAsString());
  for (const Event& event : record.events) proto.add_events(Fitted(event).SerializeAsString());
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
