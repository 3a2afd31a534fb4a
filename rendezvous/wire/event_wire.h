#ifndef DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {

// Conversion of events. Thread-safe.

// Converts an event for display: the node's id is replaced by its shown form (base/secret.h).
v1::Event ToProto(uint64_t number, const Event& event);

// Convert an event of a record (proto/state.proto), which has the node's own id and no number. RecordFromProto returns
// nullopt for a kind that only a newer version has.
v1::Event RecordToProto(const Event& event);
std::optional<Event> RecordFromProto(const v1::Event& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
