#ifndef DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_
#define DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_

#include "absl/status/status.h"
#include "proto/state.pb.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/fields.h"
#include "rendezvous/core/messages.h"

// The bounds of all messages (protocol 2.2), checked once, where a message enters the program: by the reader of a
// stream, or by the client of a server in the same process. The sender calls FitTexts instead. Pure functions.
namespace ddprun::rendezvous {

// Checks a received message and removes control characters from its displayed texts. Returns INVALID_ARGUMENT with the
// path of the first field out of bounds.
absl::Status Validate(LauncherMessage* message);
absl::Status Validate(ServerMessage* message);

// Truncates the displayed texts of a message to their bounds. Call before sending (Fields::Fit).
void FitTexts(LauncherMessage* message);
void FitTexts(ServerMessage* message);

// Check and adjust parts of messages as the mode of `fields` says (fields.h).
void Check(JobSettings* settings, Fields fields);
void Check(WorkerFailure* failure, Fields fields);
void Check(Verdict* verdict, Fields fields);
void Check(RankProgress* rank, Fields fields);
void Check(Event* event, Fields fields);
void Check(v1::GoodputRecord* goodput, Fields fields);

// Returns `part` with its displayed texts truncated to their bounds.
template <typename Part>
Part Fitted(Part part) {
  Check(&part, Fields::Fit());
  return part;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_
