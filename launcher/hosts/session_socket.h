#ifndef DDPRUN_LAUNCHER_HOSTS_SESSION_SOCKET_H_
#define DDPRUN_LAUNCHER_HOSTS_SESSION_SOCKET_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/os/unique_fd.h"

// A Unix socket without a file, by whose name the agents of one job on one host find each other: at most one agent
// listens, and another can pass it its connection to `ddprun --hosts`. The kernel removes it with the last process that
// has it. All functions are thread-safe and do not block.
namespace ddprun::launcher {

// The connection of an agent to the process that the user has started.
struct FrontConnection {
  UniqueFd input;
  UniqueFd output;
  std::string bytes;  // read from `input`, but not used
};

// AlreadyExists: another process has this session.
absl::StatusOr<UniqueFd> ListenInSession(const std::string& session);
absl::StatusOr<UniqueFd> ConnectToSession(const std::string& session);
// Accepts a connection; invalid if there is none, or not of this user.
UniqueFd AcceptInSession(int listener);

// Passes on the connection with copies of the descriptors. False: the other side has gone.
bool SendConnection(int socket, int input, int output, const std::string& bytes);
// Absent: the other side has gone.
std::optional<FrontConnection> ReceiveConnection(int socket);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_SESSION_SOCKET_H_
