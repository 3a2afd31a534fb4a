#include "rendezvous/wire/event_wire.h"

#include <string>

#include "base/secret.h"
#include "proto/time.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"

namespace ddprun::rendezvous {
namespace {

std::optional<Event::Kind> KindOf(const std::string& name) {
  for (int i = 0; i < kEventKinds; ++i) {
    const auto kind = static_cast<Event::Kind>(i);
    if (Name(kind) == name) return kind;
  }
  return std::nullopt;
}

}  // namespace

v1::Event RecordToProto(const Event& event) {
  v1::Event proto;
  *proto.mutable_time() = FromTime(event.time);
  proto.set_kind(std::string(Name(event.kind)));
  proto.set_job_id(event.job_id);
  proto.set_round(event.round);
  proto.set_node_id(event.node_id);
  proto.set_host(event.host);
  proto.set_detail(FitText(event.detail, kMaxTextBytes));
  proto.set_actor(FitText(event.actor, kMaxNameBytes));
  proto.set_nodes(event.nodes);
  proto.set_workers(event.workers);
  proto.set_min_nodes(event.min_nodes);
  proto.set_max_nodes(event.max_nodes);
  proto.set_restart_count(event.restart_count);
  if (event.exit_code.has_value()) proto.set_exit_code(*event.exit_code);
  if (event.failure.has_value()) *proto.mutable_failure() = Fitted(*event.failure);
  return proto;
}

v1::Event ToProto(uint64_t number, const Event& event) {
  v1::Event proto = RecordToProto(event);
  proto.set_number(number);
  if (!event.node_id.empty()) proto.set_node_id(ShownId(event.node_id));
  return proto;
}

std::optional<Event> RecordFromProto(const v1::Event& proto) {
  Event event;
  const std::optional<Event::Kind> kind = KindOf(proto.kind());
  if (!kind.has_value()) return std::nullopt;
  event.kind = *kind;
  google::protobuf::Timestamp time = proto.time();
  Fields::Lenient().Time("time", &time);
  event.time = ToTime(time);
  event.job_id = proto.job_id();
  event.round = proto.round();
  event.node_id = proto.node_id();
  event.host = proto.host();
  event.detail = proto.detail();
  event.actor = proto.actor();
  event.nodes = proto.nodes();
  event.workers = proto.workers();
  event.min_nodes = proto.min_nodes();
  event.max_nodes = proto.max_nodes();
  event.restart_count = proto.restart_count();
  if (proto.has_exit_code()) event.exit_code = proto.exit_code();
  if (proto.has_failure()) Check(&event.failure.emplace(proto.failure()), Fields::Lenient());
  return event;
}

}  // namespace ddprun::rendezvous
