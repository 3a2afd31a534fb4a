#ifndef DDPRUN_DDPRUNCTL_CTL_OPTIONS_H_
#define DDPRUN_DDPRUNCTL_CTL_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/core/credentials.h"

// Command line of ddprunctl.
namespace ddprun::ctl {

struct Options {
  std::vector<std::string> servers = {"127.0.0.1:29400"};  // HOST:PORT each; one of them leads
  bool names_servers = false;                              // `servers` are not the default
  rendezvous::Credentials credentials;
  bool json = false;
  std::string command;  // the subcommand's name
  std::string job_id;
  std::string node;
  std::string host;
  std::string shell;
  int32_t min_nodes = 0;
  int32_t max_nodes = 0;
  std::vector<int32_t> ranks;           // stacks, profile, logs and top --rank; empty: all
  bool native = false;                  // stacks --native
  double seconds = 5;                   // profile --seconds
  double rate = 10;                     // profile --rate, per second
  std::string file = "trace.json";      // profile --file
  std::optional<size_t> lines;          // logs --lines
  std::optional<absl::Duration> since;  // logs --since
  bool once = false;                    // top --once
  uint64_t after = 0;
  bool follow = false;  // events --follow, logs --follow, show --watch, wait
};

struct CommandLine {
  Options options;
  std::string answer;  // if not empty: print it (--help, --version, completion) and exit with 0
};

// `arguments`: without the program's name. `variable` returns the value of an environment variable, empty if unset.
//   INVALID_ARGUMENT  a wrong command, flag or value, in one line.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const std::function<std::string(const char*)>& variable);

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_CTL_OPTIONS_H_
