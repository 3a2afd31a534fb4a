#ifndef DDPRUN_LAUNCHER_STORE_STORE_SERVER_H_
#define DDPRUN_LAUNCHER_STORE_STORE_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/socket_address.h"
#include "base/socket_owner.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"
#include "launcher/store/connection.h"
#include "launcher/store/join_watch.h"
#include "launcher/store/key_value.h"
#include "launcher/store/registration.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {

struct StoreOptions {
  std::string address;  // numeric address to listen on; empty: all addresses of the host
  int first_port = 0;   // the first free port of the range is used; both 0: the kernel chooses
  int last_port = 0;

  // Limit for content, unprocessed input and unsent output together (approximate). A client that would exceed it is
  // closed.
  size_t max_bytes = size_t{1} << 30;
  int max_connections = 65536;
  RequestLimits request;
  PendingConnections::Limits pending;

  // Secret that launchers of other nodes must know to register with this store; empty: none.
  std::string secret;

  std::function<pid_t(pid_t pid)> parent_of = ParentOf;
  // Like SocketOwner::UserOf, which is used if this is null.
  std::function<absl::StatusOr<uid_t>(const SocketAddress& peer, const SocketAddress& own)> user_of;
  std::function<void(LogLevel, absl::string_view)> log = Log;
  // Receives the evidence that a registered launcher sends. Called from ProcessReady; must not call back.
  std::function<void(const std::string& payload)> on_evidence = [](const std::string&) {};
};

// A client that waits for a key that is not set.
struct WaitingClient {
  uint64_t number = 0;         // unique number of this wait
  std::optional<int> rank;     // the client's rank; unset if unknown, see JoinWatch
  uint32_t pid = 0;            // 0: not sent yet
  std::string key;             // one of the keys it waits for
  std::optional<int> on_rank;  // the rank that should set it, if known from torch's naming
};

// The key-value store of one round: speaks c10d's TCPStore protocol, so that unmodified workers of torch 2.6 to 2.15
// can use it to rendezvous. Hosted by the launcher of group rank 0. A store is used for one round only: in a later
// round, old keys would send new workers to dead addresses.
//
// It serves two kinds of clients: processes of this host that run as this process's user or as root, and clients from
// an address of a node of the round. A node's addresses are the one from which its launcher registers, which requires
// the store's secret, and those listed in the registration. Clients from elsewhere are held for a while, because a
// worker may connect before its launcher has registered, and then closed. docs/security.md says what this does not
// cover.
//
// Has no threads of its own; all calls must come from the thread whose event loop watches PollFd(). Never blocks.
// Destruction closes the port and all connections immediately.
class StoreServer {
 public:
  // Starts to listen; clients may connect before the round is known. Errors are those of Listen(), and
  // kResourceExhausted if the process is out of file descriptors.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Open(StoreOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Readable whenever ProcessReady() has something to do. Owned by the server.
  int PollFd() const { return epoll_.get(); }
  // Does a bounded amount of work; PollFd() stays readable if there is more.
  void ProcessReady();

  int port() const { return listener_.port; }
  // Memory for content and connections (approximate), limited by StoreOptions::max_bytes.
  size_t used_bytes() const { return key_value_.bytes() + connection_bytes_; }
  int connections() const { return static_cast<int>(connections_.size()); }

  // Starts the round, see JoinWatch. Other nodes register over the network (RegistrationClient); registrations that
  // arrived earlier are held until this call. REQUIRES: called once.
  void BeginRound(uint64_t round, int world_size);
  absl::Status RegisterLocal(const NodeRegistration& node);
  int Joined() const { return join_watch_.Joined(); }
  std::vector<MissingRank> Missing() const { return join_watch_.Missing(); }
  std::vector<WaitingClient> Waiting() const;
  bool AnyWaits() const { return key_value_.AnyWaits(); }

 private:
  // Origin of a connection.
  struct Origin {
    std::string address;    // "this host", the registration address of its node, or its own
    bool stranger = false;  // `address` is its own: no node of the round has registered it
  };

  StoreServer(StoreOptions options, Listener listener, UniqueFd epoll, UniqueFd timer, UniqueFd spare);

  void Accept();
  // nullopt: the peer may not connect.
  std::optional<Origin> OriginOf(int fd, const SocketAddress& peer);
  void AddConnection(UniqueFd fd, Origin origin);
  // Closes connections that have been pending for too long.
  void OnTimer();
  void SetTimer();
  void CloseNow(ClientId id);
  void OnEvents(Connection& connection, uint32_t events);
  // Handles complete requests until none is left or the turn's share is used up (then the connection is paused).
  void HandleRequests(Connection& connection);
  // Examines the next request of a connection in stage kOpening. False: nothing can be handled now.
  bool MayHandleNext(Connection& connection);
  // These return the number of bytes in their replies.
  size_t HandleRequest(Connection& connection, Request request);
  size_t HandlePing(Connection& connection, uint32_t nonce);
  size_t HandleRegistration(Connection& connection, absl::string_view payload);
  // Registers a node once the round is known. Returns the number of bytes in the reply.
  size_t Register(Connection& connection);
  absl::Status CheckSecret(const NodeRegistration& node) const;
  // Marks a stranger's connection as its node's, now that the address is registered. False: the node has too many
  // connections, so this one must be closed.
  bool Admit(Connection& connection);
  // Starts to execute the connection's requests.
  void Serve(Connection& connection);
  // Serves held connections from this address, which a node has now registered.
  void ServeHeld(absl::string_view address);
  void Send(Connection& connection, std::string bytes);
  // Updates connection_bytes_.
  void Recount(Connection& connection);
  // Finishes the work on a connection: updates connection_bytes_ and epoll, or closes and destroys the connection if it
  // is marked as closing.
  void Settle(Connection& connection);
  void CloseLater(Connection& connection) { connection.closing = true; }
  // Like CloseLater, and logs why.
  void Reject(Connection& connection, absl::string_view why);
  // Logs a limited number of warnings, so that a hostile peer can't fill a disk.
  void Warn(absl::string_view text);

  const StoreOptions options_;
  Listener listener_;
  UniqueFd epoll_;
  UniqueFd timer_;  // for pending_
  bool timer_set_ = false;
  UniqueFd spare_;  // closed briefly to accept and close a connection when no descriptor is left
  ClientId next_client_ = 1;
  absl::flat_hash_map<ClientId, std::unique_ptr<Connection>> connections_;
  size_t connection_bytes_ = 0;  // sum of Connection::counted_bytes
  KeyValue key_value_;
  JoinWatch join_watch_;
  SocketOwner socket_owner_;
  RoundNodes nodes_;
  PendingConnections pending_;
  absl::flat_hash_set<std::string> refused_;  // addresses already named in the log
  int warnings_left_ = 20;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_STORE_SERVER_H_
