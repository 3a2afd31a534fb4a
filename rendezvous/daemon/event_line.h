#ifndef DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
#define DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::rendezvous {

// PURE: an event as one JSON object on one line, with its end (docs/rendezvousd.md, "Event log"). Attributes have
// OpenTelemetry's names where those exist. Texts are valid UTF-8 whatever launchers sent. Thread-safe.
std::string EventLine(const LoggedEvent& logged);

// PURE: what tells the event of a line from others, whatever number it has, and however its texts were cut.
struct EventLineKey {
  std::string time;  // as the line has it, so that it sorts by time; empty: this is no line of an event
  std::string text;  // all of the key
};
EventLineKey KeyOfEventLine(absl::string_view line);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_EVENT_LINE_H_
