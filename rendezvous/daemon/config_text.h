#ifndef DDPRUN_RENDEZVOUS_DAEMON_CONFIG_TEXT_H_
#define DDPRUN_RENDEZVOUS_DAEMON_CONFIG_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// PURE. Parser for configuration files: a flat subset of TOML.
//
//     listen = ["0.0.0.0:29400", "[::]:29400"]  # a list may span lines
//     token-file = "/etc/ddprun/token"
//     log-level = INFO                          # quotes are optional around a word
namespace ddprun::rendezvous {

// One key. Entries are in file order.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one, unless the value is a list
  int line = 0;                     // line of the key, from 1
};

// INVALID_ARGUMENT: malformed text, or a duplicate key; the message begins with "LINE: ".
absl::StatusOr<std::vector<ConfigEntry>> ParseConfigText(absl::string_view text);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_CONFIG_TEXT_H_
