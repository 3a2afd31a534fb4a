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

// Effects are the decisions of the core. The shell executes them in order.
namespace ddprun::rendezvous {

// Something to tell one node. The shell delivers it to the node's stream of this incarnation, or drops it.
struct Tell {
  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  ServerMessage message;
};

// End the node's stream of this incarnation, after what it was told before.
struct Close {
  enum class Why {
    kRefused,   // for good: a Rejected came before
    kFull,      // the same, because the server has too many jobs
    kReplaced,  // by a stream of the same node with a higher incarnation
    kLost,      // it was silent and counts as lost; it may join again
  };

  std::string job_id;
  std::string node_id;
  uint64_t incarnation = 0;
  Why why = Why::kReplaced;
  std::string reason;  // one line
};

// Replaces the stored record of the job. Messages to this job's nodes that follow the effect depend on the record: the
// shell must not deliver them before the record is safe.
struct Persist {
  std::shared_ptr<const JobRecord> record;
  std::string event;  // what happened, in a line, for the job's history
};

// Something happened. Watchers receive the event after the earlier records of the same job are safe.
struct Report {
  Event event;
};

using Effect = std::variant<Tell, Close, Persist, Report>;
using Effects = std::vector<Effect>;

// The message of this effect if it is one, or nullptr.
template <typename Message>
const Message* ToldMessage(const Effect& effect) {
  const auto* tell = std::get_if<Tell>(&effect);
  return tell == nullptr ? nullptr : std::get_if<Message>(&tell->message);
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EFFECT_H_
