#ifndef DDPRUN_LAUNCHER_FORK_SERVER_KEPT_SOCKETS_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_KEPT_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// The sockets of this user's kept fork servers (kept_server.py). They lie in a folder that only the user may enter,
// $XDG_RUNTIME_DIR/ddprun, else /tmp/ddprun-UID, else, if another user has taken that name, /tmp/ddprun-UID-RANDOM;
// never in the abstract namespace, which other users and containers can reach. Thread-compatible.
class KeptSockets {
 public:
  // FailedPrecondition: the folder is not ours alone. NotFound: there is none, and `create` is false.
  static absl::StatusOr<KeptSockets> Open(bool create);

  // Path of the socket for servers with this key: texts in which starts differ, such as "working folder /a", the most
  // general first.
  std::string PathOf(const std::vector<std::string>& key) const;
  // Says that no server with this key is kept, and if others are, in what the most similar one differs.
  std::string WhyNone(const std::vector<std::string>& key) const;
  // Paths of all sockets, the most recently used first.
  std::vector<std::string> All() const;

  // Connects to the server at `path`, a process of this user. NotFound: there is none; removes the socket of one that
  // has died.
  static absl::StatusOr<UniqueFd> Connect(const std::string& path);
  // Sends a message that consists of this one word and returns the answer; empty if there is none within a second.
  static std::string Ask(const std::string& path, absl::string_view word);

 private:
  explicit KeptSockets(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_KEPT_SOCKETS_H_
