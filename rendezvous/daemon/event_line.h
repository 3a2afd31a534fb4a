#ifndef DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
#define DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_

#include <string>

#include "rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

// PURE: an event as one JSON object on one line, with its end (docs/rendezvousd.md, "Event log"). Attributes have
// OpenTelemetry's names where those exist. Texts are valid UTF-8 whatever launchers sent. Thread-safe.
std::string EventLine(const LoggedEvent& logged);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
