#ifndef DDPRUN_LAUNCHER_STORE_CONNECTION_H_
#define DDPRUN_LAUNCHER_STORE_CONNECTION_H_

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/store/join_watch.h"
#include "launcher/store/key_value.h"
#include "launcher/store/registration.h"
#include "launcher/store/request_parser.h"

// The store's sockets: Listen opens the listener, Connection moves one client's bytes, and two classes limit how many
// connections there are: RoundNodes those of the round's nodes, PendingConnections those that are not served yet.
namespace ddprun::launcher {

// A listening TCP socket: non-blocking, close-on-exec, with the longest backlog that the kernel allows.
struct Listener {
  UniqueFd fd;
  int port = 0;
};

// Listens on `address` (numeric; empty: all addresses, both IPv6 and IPv4 if available) at the first free port of
// first_port..last_port. Both 0: the kernel chooses a port.
//   kInvalidArgument    not a numeric address, or not a port range
//   kResourceExhausted  every port of the range is in use
//   others              the kernel's error, for example if the address does not belong to this host
absl::StatusOr<Listener> Listen(absl::string_view address, int first_port, int last_port);

// Addresses of the nodes in a store's round, as registered by their launchers, and the number of connections of each
// node. Pure; not thread-safe.
class RoundNodes {
 public:
  // Maximum number of simultaneous connections per launcher and per worker of a node: far more than torch opens (one
  // per worker, plus one per clone of a store or split-off NCCL communicator).
  static constexpr int kConnectionsOfNode = 64;
  static constexpr int kConnectionsOfWorker = 256;

  // Adds a node with `workers` that registered from `address`. Its workers may also connect from one of `others`,
  // unless that is the address of an earlier node. Several nodes may share one address (launchers on one host, NAT).
  void Add(absl::string_view address, const std::vector<std::string>& others, int workers);

  // Registration address of the node that has `address`; empty if there is none.
  absl::string_view NodeAt(absl::string_view address) const;

  // Counts a new connection of the node that registered from `node`; false if it has too many. Disconnect removes one.
  bool Connect(absl::string_view node);
  void Disconnect(absl::string_view node);

 private:
  struct Node {
    int workers = 0;
    int launchers = 0;
    int connections = 0;
  };
  absl::flat_hash_map<std::string, Node> nodes_;             // keyed by registration address
  absl::flat_hash_map<std::string, std::string> addresses_;  // values are keys of nodes_
};

// Connections that are not served yet: no complete request has arrived, or no node of the round has registered their
// address so far. All have the same time limit. Also limits the number of connections of strangers, those from
// unregistered addresses. Pure; not thread-safe. All methods except Of() are O(1).
class PendingConnections {
 public:
  struct Limits {
    absl::Duration patience = absl::Seconds(10);
    size_t strangers = 1024;
    size_t strangers_of_address = 128;
  };

  explicit PendingConnections(const Limits& limits) : limits_(limits) {}

  // `stranger`: the address, empty for a connection of a node or of this host. False, and nothing is added, if this
  // address has too many.
  bool Add(ClientId id, absl::string_view stranger, SteadyTime now);
  // Removes a connection that is served or closed. No-op if it is not pending.
  void Remove(ClientId id);

  // The oldest stranger, if there are too many of them: close it.
  std::optional<ClientId> Surplus() const;
  // A connection that has exceeded its time limit: close it.
  std::optional<ClientId> Expired(SteadyTime now) const;
  SteadyTime NextDeadline() const;
  // Strangers' connections from this address, oldest first.
  std::vector<ClientId> Of(absl::string_view address) const;

 private:
  struct Pending {
    ClientId id = 0;
    SteadyTime until;
    std::string stranger;
  };
  using Line = std::list<Pending>;

  const Limits limits_;
  Line nodes_;  // both oldest first
  Line strangers_;
  absl::flat_hash_map<ClientId, Line::iterator> by_id_;
  absl::flat_hash_map<std::string, size_t> of_address_;  // number of strangers_ per address
};

// Stage of a connection.
enum class ConnectionStage {
  kOpening,   // VALIDATE or the request after it has not arrived
  kHeld,      // a client from an address that no node of the round has registered yet: its requests are not read
  kClient,    // a worker's connection, served
  kLauncher,  // a launcher's connection, which registers its node
};

// One client's socket with its unprocessed input and unsent output. Never blocks. Not thread-safe.
class Connection {
 public:
  Connection(ClientId id, UniqueFd fd, std::string address, const RequestLimits& limits)
      : id_(id), fd_(std::move(fd)), parser_(limits) {
    client.address = std::move(address);
  }

  ClientId id() const { return id_; }
  int fd() const { return fd_.get(); }
  RequestParser& parser() { return parser_; }

  // Reads available data, up to a fixed amount, into the parser. False: the peer has closed the connection or is gone.
  bool Read();
  // Sends `bytes`, or keeps the part that the socket does not accept for Flush(). False: the peer is gone.
  bool Send(std::string bytes);
  bool Flush();

  size_t unsent_bytes() const { return output_.size() - sent_; }
  // Memory held for this connection, in bytes (approximate).
  size_t held_bytes() const { return sizeof(Connection) + parser_.held_bytes() + output_.capacity(); }

  // State maintained by the server.
  JoinWatch::Client client;  // pids: empty before the first PING
  ConnectionStage stage = ConnectionStage::kOpening;
  bool validated = false;                          // VALIDATE has arrived
  bool stranger = false;                           // no node of the round has its address
  std::string node;                                // counts as a connection of this node; see RoundNodes
  std::unique_ptr<NodeRegistration> registration;  // set until the round is known
  bool paused = false;          // complete requests are left, to be handled once the output has drained
  bool closing = false;         // to be closed at the end of this turn
  uint32_t watched_events = 0;  // registered with epoll
  size_t counted_bytes = 0;     // held_bytes() as included in the server's sum

 private:
  const ClientId id_;
  UniqueFd fd_;
  RequestParser parser_;
  std::string output_;
  size_t sent_ = 0;  // sent bytes of output_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_CONNECTION_H_
