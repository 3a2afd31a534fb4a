#ifndef DDPRUN_RENDEZVOUS_CLIENT_JOIN_FIRST_H_
#define DDPRUN_RENDEZVOUS_CLIENT_JOIN_FIRST_H_

#include <variant>

#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// Tells which messages belong on the present stream. A launcher may speak while it does not know yet that its stream
// broke and another stands: what it says then was meant for the old one, and the server would refuse a stream that
// does not begin with a Join, or has two. Thread-compatible.
class JoinFirst {
 public:
  void OnNewStream() { joined_ = false; }

  // Whether to send the message. A Join is, if it is the first of the stream; others are, after it.
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
