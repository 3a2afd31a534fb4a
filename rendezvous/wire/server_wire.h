#ifndef DDPRUN_RENDEZVOUS_WIRE_SERVER_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_SERVER_WIRE_H_

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// What the server sends. Texts for people are shortened to what the receiver takes (limits.h). Thread-safe.
v1::ServerMessage ToProto(const ServerMessage& message);

// What a launcher received. Thread-safe.
//   INVALID_ARGUMENT  a field is missing or out of bounds; the text names it.
//   UNIMPLEMENTED     it is of a kind that only a newer server knows, and to be ignored (protocol 7.2).
absl::StatusOr<ServerMessage> FromProto(const v1::ServerMessage& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_SERVER_WIRE_H_
