#ifndef DDPRUN_RENDEZVOUS_SERVER_SESSION_H_
#define DDPRUN_RENDEZVOUS_SERVER_SESSION_H_

#include "absl/status/status.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// One launcher's stream, as the driver sees it. Called from any thread, one call at a time, with no lock held;
// implementations return at once. Shared by the driver and the object that feeds it.
class Session {
 public:
  virtual ~Session() = default;

  // Queues a message for the launcher; dropped if the stream is gone.
  virtual void Send(const ServerMessage& message) = 0;

  // Ends the stream with `status` once everything queued was sent. Later calls of either method do nothing.
  virtual void End(const absl::Status& status) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SESSION_H_
