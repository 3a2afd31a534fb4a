#ifndef DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {

// Conversion of events. Thread-safe.

// For people: with the node's shown id in place of its own.
v1::Event ToProto(uint64_t number, const Event& event);

// For a record (proto/state.proto): with the node's own id, without a number. nullopt: of a kind that only a newer
// version knows.
v1::Event RecordToProto(const Event& event);
std::optional<Event> RecordFromProto(const v1::Event& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
