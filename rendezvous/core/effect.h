#ifndef DDPRUN_RENDEZVOUS_CORE_EFFECT_H_
#define DDPRUN_RENDEZVOUS_CORE_EFFECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/core/event.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/messages.h"

// Effects: what the core asks its shell (server/driver.h) to do in response to an event. Registry's functions append
// them to a list, and the shell executes them in the order of the list.
namespace ddprun::rendezvous {

// Sends a message to one node, on the node's stream of this incarnation; if that stream is gone, the message is
// dropped.
struct Tell {
  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  ServerMessage message;
};

// Closes the node's stream of this incarnation, after the messages of earlier effects were sent on it.
struct Close {
  enum class Why {
    kRefused,   // the node is not accepted; a Rejected was sent before
    kFull,      // like kRefused, because the server has too many jobs or nodes
    kReplaced,  // the same node has a stream with a higher incarnation
    kLost,      // the node was silent and counts as lost (protocol 4.1); it may join again
  };

  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  Why why = Why::kReplaced;
  std::string reason;  // one line
};

// Replaces the stored record of the job (protocol 4.4). The shell must not deliver later messages to this job's nodes
// before the record is durable, because they depend on it.
struct Persist {
  std::shared_ptr<const JobRecord> record;
  std::string event;  // one line that says why the record changed, stored beside it; empty: nothing to show
};

// Publishes an event to subscribers, once the records of earlier Persist effects of the same job are durable.
struct Report {
  Event event;
};

using Effect = std::variant<Tell, Close, Persist, Report>;
using Effects = std::vector<Effect>;

// Returns the effect's message if the effect is a Tell with a message of type `Message`, otherwise nullptr.
template <typename Message>
const Message* ToldMessage(const Effect& effect) {
  const auto* tell = std::get_if<Tell>(&effect);
  return tell == nullptr ? nullptr : std::get_if<Message>(&tell->message);
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EFFECT_H_
