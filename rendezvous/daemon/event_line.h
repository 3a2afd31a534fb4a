#ifndef DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
#define DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

// PURE: formats an event as one line of JSON, with the line end (docs/rendezvousd.md, "Event log"). Attributes use
// OpenTelemetry's names where those exist. Texts are valid UTF-8 whatever launchers sent. Thread-safe.
std::string EventLine(const LoggedEvent& logged);

// PURE: identifies the event of a line regardless of its number and of how its texts were truncated.
struct EventLineKey {
  std::string time;  // as in the line, so that it sorts by time; empty: not a line of an event
  std::string text;  // the whole key
};
EventLineKey KeyOfEventLine(absl::string_view line);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
