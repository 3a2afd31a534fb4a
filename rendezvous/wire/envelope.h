#ifndef DDPRUN_RENDEZVOUS_WIRE_ENVELOPE_H_
#define DDPRUN_RENDEZVOUS_WIRE_ENVELOPE_H_

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

// Conversion between messages and the envelopes that contain them on a stream. Thread-safe.
namespace ddprun::rendezvous {

// Texts are shortened to the receiver's limits (limits.h). Join.origin is removed.
v1::LauncherMessage ToProto(LauncherMessage message);
v1::ServerMessage ToProto(ServerMessage message);

// Checks a received message (core/validate.h).
//   INVALID_ARGUMENT  a field is missing or out of bounds; the text names it.
//   UNIMPLEMENTED     a message of a newer version, which the caller must ignore (protocol 7.2).
absl::StatusOr<LauncherMessage> FromProto(v1::LauncherMessage proto);
absl::StatusOr<ServerMessage> FromProto(v1::ServerMessage proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_ENVELOPE_H_
