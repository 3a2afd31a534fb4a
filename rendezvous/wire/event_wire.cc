#include "rendezvous/wire/event_wire.h"

#include <string>

#include "rendezvous/base/shown_id.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/wire/fields.h"
#include "rendezvous/wire/parts.h"

namespace ddprun::rendezvous {

v1::Event ToProto(uint64_t number, absl::Time time, const Event& event) {
  v1::Event proto;
  proto.set_number(number);
  SetTime(time, proto.mutable_time());
  proto.set_kind(std::string(Name(event.kind)));
  proto.set_job_id(event.job_id);
  proto.set_round(event.round);
  if (!event.node_id.empty()) proto.set_node_id(ShownId(event.node_id));
  proto.set_host(event.host);
  proto.set_detail(FitText(event.detail, kMaxTextBytes));
  proto.set_actor(FitText(event.actor, kMaxNameBytes));
  proto.set_nodes(event.nodes);
  proto.set_workers(event.workers);
  proto.set_min_nodes(event.min_nodes);
  proto.set_max_nodes(event.max_nodes);
  proto.set_restart_count(event.restart_count);
  if (event.exit_code.has_value()) proto.set_exit_code(*event.exit_code);
  if (event.failure.has_value()) *proto.mutable_failure() = ToProto(*event.failure);
  return proto;
}

}  // namespace ddprun::rendezvous
