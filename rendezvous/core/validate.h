#ifndef DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_
#define DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_

#include "absl/status/status.h"
#include "rendezvous/core/fields.h"
#include "rendezvous/core/messages.h"

// The bounds of all messages (docs/protocol.md, 2.2). Each message is checked once, where it enters the program: by the
// reader of a stream, or by the client of a server in the same process. Pure functions.
namespace ddprun::rendezvous {

// Checks a received message and cleans its texts. INVALID_ARGUMENT names the field.
absl::Status Validate(LauncherMessage* message);
absl::Status Validate(ServerMessage* message);

// Makes the texts of a message fit before it is sent (see Fields::Fit).
void FitTexts(LauncherMessage* message);
void FitTexts(ServerMessage* message);

// Check parts of messages in the mode of `fields`.
void Check(JobSettings* settings, Fields fields);
void Check(WorkerFailure* failure, Fields fields);
void Check(Verdict* verdict, Fields fields);
void Check(RankProgress* rank, Fields fields);

// A part with its texts made to fit.
template <typename Part>
Part Fitted(Part part) {
  Check(&part, Fields::Fit());
  return part;
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VALIDATE_H_
