#ifndef DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
#define DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
// CONTRACT SKETCH: the implementer owns this file; keep these public names and meanings.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/steady_time.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// Something to tell one node. The shell delivers it to the node's stream of this incarnation, or drops it.
struct Effect {
  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  ServerMessage message;
  bool close = false;  // after the message, end the stream (rejected, replaced by a newer incarnation)
};

// All jobs of one server. Pure: no clock, thread, socket, log or random call. Thread-compatible.
class Registry {
 public:
  Registry();
  ~Registry();

  // The node says something. A Join may name any job (creating it, or beginning it anew after an end); other
  // messages are ignored unless (job_id, node_id, incarnation) is a joined node.
  void OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                 const LauncherMessage& message, SteadyTime now, std::vector<Effect>* effects);

  // The node's stream of this incarnation ended without a Leave.
  void OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation, SteadyTime now,
                      std::vector<Effect>* effects);

  // Does what is due at `now`; to be called at NextDeadline().
  void OnDeadline(SteadyTime now, std::vector<Effect>* effects);

  // When OnDeadline is next needed; InfiniteFuture if only messages can change anything.
  SteadyTime NextDeadline() const;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_REGISTRY_H_
