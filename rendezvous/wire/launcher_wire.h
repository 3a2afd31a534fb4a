#ifndef DDPRUN_RENDEZVOUS_WIRE_LAUNCHER_WIRE_H_
#define DDPRUN_RENDEZVOUS_WIRE_LAUNCHER_WIRE_H_

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// What a launcher sends. Texts for people are shortened to what the receiver takes (limits.h). Join::in_process is
// not sent. Thread-safe.
v1::LauncherMessage ToProto(const LauncherMessage& message);

// What a server received. Thread-safe.
//   INVALID_ARGUMENT  a field is missing or out of bounds; the text names it.
//   UNIMPLEMENTED     it is of a kind that only a newer launcher knows, and to be ignored (protocol 7.2).
absl::StatusOr<LauncherMessage> FromProto(const v1::LauncherMessage& proto);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LAUNCHER_WIRE_H_
