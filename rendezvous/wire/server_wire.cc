#include "rendezvous/wire/server_wire.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/fields.h"
#include "rendezvous/wire/parts.h"

namespace ddprun::rendezvous {
namespace {

// Fills the member of the oneof that fits the message.
struct Writer {
  v1::ServerMessage* proto;

  void operator()(const Welcome& welcome) const {
    v1::Welcome* out = proto->mutable_welcome();
    if (welcome.heartbeat_interval != absl::InfiniteDuration()) {
      SetDuration(welcome.heartbeat_interval, out->mutable_heartbeat_interval());
    }
    out->set_by_launcher(welcome.by_launcher);
    out->set_protocol_version(welcome.protocol_version);
    SetDuration(welcome.heartbeat_timeout, out->mutable_heartbeat_timeout());
    out->set_missed_round(welcome.missed_round);
    out->set_server_process(welcome.server_process);
  }
  void operator()(const HeartbeatAck&) const { proto->mutable_heartbeat_ack(); }
  void operator()(const Waiting& waiting) const {
    v1::Waiting* out = proto->mutable_waiting();
    out->set_spare(waiting.spare);
    out->set_nodes_joined(waiting.nodes_joined);
    out->set_min_nodes(waiting.min_nodes);
    out->set_max_nodes(waiting.max_nodes);
    const size_t named = std::min<size_t>(waiting.hosts.size(), kMaxHostsTold);
    for (size_t i = 0; i < named; ++i) out->add_hosts(FitText(waiting.hosts[i], kMaxNameBytes));
    SetDuration(waiting.remaining, out->mutable_remaining());
    out->set_last_call(waiting.last_call);
    out->set_reason(FitText(waiting.reason, kMaxTextBytes));
  }
  void operator()(const Assign& assign) const {
    *proto->mutable_assign()->mutable_assignment() = ToProto(assign.assignment);
  }
  void operator()(const StopRound& stop) const {
    v1::StopRound* out = proto->mutable_stop_round();
    out->set_round(stop.round);
    out->set_reason(FitText(stop.reason, kMaxTextBytes));
    if (stop.first_cause.has_value()) *out->mutable_first_cause() = ToProto(*stop.first_cause);
    out->set_keep_workers(stop.keep_workers);
    out->set_at_step_end(stop.at_step_end);
  }
  void operator()(const Finish& finish) const { *proto->mutable_finish()->mutable_verdict() = ToProto(finish.verdict); }
  void operator()(const Rejected& rejected) const {
    proto->mutable_rejected()->set_reason(FitText(rejected.reason, kMaxTextBytes));
  }
  void operator()(const ExcludedFromRound& without) const {
    v1::ExcludedFromRound* out = proto->mutable_excluded_from_round();
    out->set_round(without.round);
    out->set_reason(FitText(without.reason, kMaxTextBytes));
  }
};

Welcome ReadWelcome(const v1::Welcome& proto, FieldReader fields) {
  Welcome welcome{absl::InfiniteDuration(), proto.by_launcher(), fields.Version(proto.protocol_version())};
  if (proto.has_heartbeat_interval()) {
    welcome.heartbeat_interval = fields.Duration("heartbeat_interval", true, proto.heartbeat_interval());
    // A launcher that beats without pause would be felt.
    if (welcome.heartbeat_interval < absl::Milliseconds(1)) {
      fields.Fail("heartbeat_interval", "must be at least 1ms");
    }
  }
  welcome.heartbeat_timeout =
      fields.Duration("heartbeat_timeout", proto.has_heartbeat_timeout(), proto.heartbeat_timeout());
  welcome.missed_round = proto.missed_round();
  welcome.server_process = fields.OptionalName("server_process", proto.server_process(), kMaxProcessNameBytes);
  return welcome;
}

Waiting ReadWaiting(const v1::Waiting& proto, FieldReader fields) {
  Waiting waiting;
  waiting.spare = proto.spare();
  waiting.nodes_joined = fields.Number("nodes_joined", proto.nodes_joined(), 0, kMaxNodes);
  waiting.max_nodes = fields.Number("max_nodes", proto.max_nodes(), 0, kMaxNodes);
  waiting.min_nodes = fields.Number("min_nodes", proto.min_nodes(), 0, waiting.max_nodes);
  if (proto.hosts_size() > kMaxHostsTold) {
    fields.Fail("hosts", absl::StrCat("names ", proto.hosts_size(), ", more than ", kMaxHostsTold));
  } else {
    for (const std::string& host : proto.hosts()) {
      waiting.hosts.push_back(fields.OptionalName("hosts", host, kMaxNameBytes));
    }
  }
  waiting.remaining = fields.Duration("remaining", proto.has_remaining(), proto.remaining());
  waiting.last_call = proto.last_call();
  waiting.reason = fields.Line("reason", proto.reason(), kMaxTextBytes);
  return waiting;
}

Assign ReadAssign(const v1::Assign& proto, FieldReader fields) {
  if (!proto.has_assignment()) fields.Fail("assignment", "is missing");
  return Assign{FromProto(proto.assignment(), fields.Inside("assignment"))};
}

StopRound ReadStopRound(const v1::StopRound& proto, FieldReader fields) {
  StopRound stop;
  stop.round = proto.round();
  stop.reason = fields.Line("reason", proto.reason(), kMaxTextBytes);
  if (proto.has_first_cause()) {
    stop.first_cause = FromProto(proto.first_cause(), fields.Inside("first_cause"));
  }
  stop.keep_workers = proto.keep_workers();
  stop.at_step_end = proto.at_step_end();
  return stop;
}

Finish ReadFinish(const v1::Finish& proto, FieldReader fields) {
  if (!proto.has_verdict()) fields.Fail("verdict", "is missing");
  return Finish{FromProto(proto.verdict(), fields.Inside("verdict"))};
}

Rejected ReadRejected(const v1::Rejected& proto, FieldReader fields) {
  return Rejected{fields.Line("reason", proto.reason(), kMaxTextBytes)};
}

ExcludedFromRound ReadExcludedFromRound(const v1::ExcludedFromRound& proto, FieldReader fields) {
  return ExcludedFromRound{proto.round(), fields.Line("reason", proto.reason(), kMaxTextBytes)};
}

}  // namespace

v1::ServerMessage ToProto(const ServerMessage& message) {
  v1::ServerMessage proto;
  std::visit(Writer{&proto}, message);
  return proto;
}

absl::StatusOr<ServerMessage> FromProto(const v1::ServerMessage& proto) {
  absl::Status status;
  ServerMessage message;
  switch (proto.message_case()) {
    case v1::ServerMessage::kWelcome: message = ReadWelcome(proto.welcome(), FieldReader("welcome", &status)); break;
    case v1::ServerMessage::kHeartbeatAck: message = HeartbeatAck{}; break;
    case v1::ServerMessage::kWaiting: message = ReadWaiting(proto.waiting(), FieldReader("waiting", &status)); break;
    case v1::ServerMessage::kAssign: message = ReadAssign(proto.assign(), FieldReader("assign", &status)); break;
    case v1::ServerMessage::kStopRound:
      message = ReadStopRound(proto.stop_round(), FieldReader("stop_round", &status));
      break;
    case v1::ServerMessage::kFinish: message = ReadFinish(proto.finish(), FieldReader("finish", &status)); break;
    case v1::ServerMessage::kRejected:
      message = ReadRejected(proto.rejected(), FieldReader("rejected", &status));
      break;
    case v1::ServerMessage::kExcludedFromRound:
      message = ReadExcludedFromRound(proto.excluded_from_round(), FieldReader("excluded_from_round", &status));
      break;
    case v1::ServerMessage::MESSAGE_NOT_SET: status = UnknownKind(proto); break;
  }
  if (!status.ok()) return status;
  return message;
}

}  // namespace ddprun::rendezvous
