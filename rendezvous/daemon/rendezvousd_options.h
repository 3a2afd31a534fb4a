#ifndef DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_
#define DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/core/credentials.h"

// Options of rendezvousd, from flags and a configuration file. To add an option: a member here, an Add...Options
// function and, if it involves files or must be consistent with other options, a check in CheckRendezvousdOptions.
namespace ddprun::rendezvous {

// Options of a server that shares an etcd with others.
struct EtcdFlags {
  std::vector<std::string> endpoints;  // HOST:PORT; empty: this server is the only one
  std::string prefix = "/ddprun/";
  std::string cacert;
  std::string cert;
  std::string key;
  std::string user;  // NAME:PASSWORD
  std::string advertise;
  int lease_ttl_s = 3;
};

// Options of rendezvousd; each is named as its flag.
struct RendezvousdOptions {
  std::vector<std::string> listen = {"127.0.0.1:29400"};
  std::string log_level = "INFO";
  std::string state_dir;
  Credentials credentials;
  std::string http;  // empty: no HTTP server
  bool http_open = false;
  EtcdFlags etcd;
  std::string config_file;
  bool check_config = false;
};

struct RendezvousdCommandLine {
  RendezvousdOptions options;
  std::string answer;  // if not empty: print it (--help, --version) and exit with 0
};

// Parses `arguments` (without the program's name) and the file of --config; a flag overrides the same key in the file.
// Does not read the environment.
//   INVALID_ARGUMENT  an invalid flag or value; or the file cannot be read or has an invalid line ("FILE:LINE: ...").
absl::StatusOr<RendezvousdCommandLine> ParseRendezvousdOptions(const std::vector<std::string>& arguments);

// Moves DDPRUN_ETCD_USER (NAME:PASSWORD of etcd's own authentication) from the environment into `etcd`. Call before
// other threads exist.
void TakeEtcdUserFromEnvironment(EtcdFlags* etcd);

// Checks what can be checked without starting: credentials, and that directories exist or can be created. `warnings`:
// one line each.
//   INVALID_ARGUMENT  something is missing, unreadable, or inconsistent with another option.
absl::Status CheckRendezvousdOptions(const RendezvousdOptions& options, std::vector<std::string>* warnings);

// One key of a configuration file, which is a flat subset of TOML:
//
//     listen = ["0.0.0.0:29400", "[::]:29400"]  # a list may span lines
//     token-file = "/etc/ddprun/token"
//     log-level = INFO                          # quotes are optional around a word
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one, unless the value is a list
  int line = 0;                     // line of the key, from 1
};

// Returns the entries of a configuration file, in its order.
//   INVALID_ARGUMENT  malformed text, or a duplicate key; the message begins with "LINE: ".
absl::StatusOr<std::vector<ConfigEntry>> ParseConfigText(absl::string_view text);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_
