#ifndef DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_
#define DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/core/credentials.h"

// What rendezvousd is told by flags and by a configuration file. To add an option: a member here, an Add...Options
// function and, if files or several options must fit together, a check in CheckRendezvousdOptions.
namespace ddprun::rendezvous {

// Of a server that is one of several with the same etcd.
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

struct RendezvousdOptions {
  std::vector<std::string> listen = {"127.0.0.1:29400"};
  std::string log_level = "INFO";
  std::string state_dir;
  std::string event_log;  // file; empty: none
  Credentials credentials;
  std::string http;  // empty: no HTTP server
  bool http_open = false;
  EtcdFlags etcd;
  std::string config_file;
  bool check_config = false;
};

struct RendezvousdCommandLine {
  RendezvousdOptions options;
  std::string answer;  // not empty: print it (--help, --version) and exit with 0
};

// `arguments`: those after the program's name. Reads the file of --config; a flag wins over the same key in the file.
// The environment is not looked at.
//   INVALID_ARGUMENT  a wrong flag or value; the file can't be read, or has a wrong line ("FILE:LINE: what is wrong").
absl::StatusOr<RendezvousdCommandLine> ParseRendezvousdOptions(const std::vector<std::string>& arguments);

// Takes DDPRUN_ETCD_USER, NAME:PASSWORD of etcd's own authentication, out of the environment. Call before other threads
// exist.
void TakeEtcdUserFromEnvironment(EtcdFlags* etcd);

// What can be told without starting: credentials, and that directories exist or can be created. `warnings`: one line
// each.
//   INVALID_ARGUMENT  something is missing, unreadable, or does not fit another option.
absl::Status CheckRendezvousdOptions(const RendezvousdOptions& options, std::vector<std::string>* warnings);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_DAEMON_RENDEZVOUSD_OPTIONS_H_
