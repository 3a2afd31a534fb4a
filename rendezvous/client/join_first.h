#ifndef DDPRUN_RENDEZVOUS_CLIENT_JOIN_FIRST_H_
#define DDPRUN_RENDEZVOUS_CLIENT_JOIN_FIRST_H_

#include <variant>

#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// Decides which messages may be sent on the current stream. A launcher may send a message before it learns that its
// stream broke and another one is open. That message was meant for the old stream, and the server refuses a stream that
// does not begin with a Join or has two. Thread-compatible.
class JoinFirst {
 public:
  void OnNewStream() { joined_ = false; }

  // True if the message may be sent: the first Join of the stream, or any other message after it.
  bool Admits(const LauncherMessage& message) {
    const bool is_join = std::holds_alternative<Join>(message);
    const bool admitted = is_join != joined_;
    joined_ = joined_ || is_join;
    return admitted;
  }

 private:
  bool joined_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_JOIN_FIRST_H_
