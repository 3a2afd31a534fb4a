#ifndef DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/control.pb.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {

// With the node's shown id in place of its own. Thread-safe.
v1::Event ToProto(uint64_t number, absl::Time time, const Event& event);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_EVENT_WIRE_H_
