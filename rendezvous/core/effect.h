#ifndef DDPRUN_RENDEZVOUS_CORE_EFFECT_H_
#define DDPRUN_RENDEZVOUS_CORE_EFFECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// Something to tell one node. The shell delivers it to the node's stream of this incarnation, or drops it.
struct Effect {
  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  std::optional<ServerMessage> message;  // none: only close
  // After the message, if any, end the stream. With a Rejected: the launcher is refused for good. Without a message:
  // it was replaced by a newer incarnation, or counted as lost while the stream stood; it may connect and join again.
  bool close = false;
};

using Effects = std::vector<Effect>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EFFECT_H_
