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
#include "launcher/os/proc_files.h"
#include "launcher/os/unique_fd.h"
#include "launcher/store/connection.h"
#include "launcher/store/join_watch.h"
#include "launcher/store/key_value.h"
#include "launcher/store/listener.h"
#include "launcher/store/pending_connections.h"
#include "launcher/store/registration.h"
#include "launcher/store/request_parser.h"
#include "launcher/store/round_nodes.h"

namespace ddprun::launcher {

struct StoreOptions {
  std::string address;  // to listen on, numeric; empty: all addresses of the host
  int first_port = 0;   // the first free port of the range is taken; both 0: the kernel chooses
  int last_port = 0;

  // Of the content, what has arrived and what is to be sent, together (roughly). A client that would exceed it
  // is closed.
  size_t max_bytes = size_t{1} << 30;
  int max_connections = 65536;
  RequestLimits request;
  PendingConnections::Limits pending;

  // What a launcher of another node has to know to register with this store; empty: nothing.
  std::string secret;

  std::function<pid_t(pid_t pid)> parent_of = ParentOf;
  // As SocketOwner::UserOf, which serves if there is none.
  std::function<absl::StatusOr<uid_t>(const SocketAddress& peer, const SocketAddress& own)> user_of;
  std::function<void(LogLevel, absl::string_view)> log = Log;
};

// A client that waits for a key that nobody has set.
struct WaitingClient {
  uint64_t number = 0;         // of this wait: no other one has it
  std::optional<int> rank;     // its own; not known: see JoinWatch
  uint32_t pid = 0;            // 0: it has never said
  std::string key;             // one of those it waits for
  std::optional<int> on_rank;  // the rank that is to set it, where torch's naming tells
};

// The key-value store of one round: speaks c10d's TCPStore protocol, so that unmodified workers of torch 2.6 to
// 2.15 meet in it. Hosted by the launcher of group rank 0. A store is used for one round only, and the next round
// gets a new one: old keys would send new workers to dead addresses.
//
// It serves two kinds of clients: processes of this host that run as this process's user or as root, and whatever comes
// from an address of a node of the round. A node's addresses are that from which its launcher registers, which takes
// the store's secret, and those that it names. Clients from elsewhere are held for a while, because a worker may be
// faster than its launcher, and then closed. docs/security.md says what this does not cover.
//
// Threads: none of its own; all calls come from one thread, the one whose event loop watches PollFd(). It never blocks.
// Destruction closes the port and all connections at once.
class StoreServer {
 public:
  // Listens from here on; clients may connect before the round is known. Errors are those of Listen(), and
  // kResourceExhausted if the process is out of file descriptors.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Open(StoreOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Readable whenever ProcessReady() has something to do. The server's own.
  int PollFd() const { return epoll_.get(); }
  // Does a bounded amount of work; PollFd() stays readable when there is more.
  void ProcessReady();

  int port() const { return listener_.port; }
  // Memory for content and connections (roughly): what StoreOptions::max_bytes bounds.
  size_t used_bytes() const { return key_value_.bytes() + connection_bytes_; }
  int connections() const { return static_cast<int>(connections_.size()); }

  // Who is expected and who has come: see JoinWatch. The other nodes register over the network (RegistrationClient).
  // Registrations that came before are held until this call. `nodes_know_secret`: false if the rendezvous server is of
  // a version that does not hand it on; then any host may register, but only itself. REQUIRES: called once.
  void BeginRound(uint64_t round, int world_size, bool nodes_know_secret);
  absl::Status RegisterLocal(const NodeRegistration& node);
  int Joined() const { return join_watch_.Joined(); }
  std::vector<MissingRank> Missing() const { return join_watch_.Missing(); }
  std::vector<WaitingClient> Waiting() const;
  bool AnyWaits() const { return key_value_.AnyWaits(); }

 private:
  // Where a connection comes from.
  struct Origin {
    std::string address;    // "this host", the address from which its node registered, or just its own
    bool stranger = false;  // just its own
  };

  StoreServer(StoreOptions options, Listener listener, UniqueFd epoll, UniqueFd timer, UniqueFd spare);

  void Accept();
  // nullopt: it may not connect.
  std::optional<Origin> OriginOf(int fd, const SocketAddress& peer);
  void AddConnection(UniqueFd fd, Origin origin);
  // Closes what has been pending for too long.
  void OnTimer();
  void SetTimer();
  void CloseNow(ClientId id);
  void OnEvents(Connection& connection, uint32_t events);
  // Handles complete requests until there is none, or the turn's share is used up (then it is paused).
  void HandleRequests(Connection& connection);
  // Looks at what comes next on a connection that is opening. False: nothing to be handled now.
  bool MayGoOn(Connection& connection);
  // These return the number of bytes that they have answered.
  size_t HandleRequest(Connection& connection, Request request);
  size_t HandlePing(Connection& connection, uint32_t nonce);
  size_t HandleRegistration(Connection& connection, absl::string_view payload);
  // Once the round is known. Returns the number of bytes that it has answered.
  size_t Register(Connection& connection);
  absl::Status CheckSecret(const NodeRegistration& node) const;
  // Its address is one of a node now. False: the node has too many connections, and it is to be closed.
  bool Admit(Connection& connection);
  // From here on its requests are carried out.
  void Serve(Connection& connection);
  // Those that have waited for a node with this address.
  void ServeHeld(absl::string_view address);
  void Send(Connection& connection, std::string bytes);
  // Brings the memory sum up to date.
  void Recount(Connection& connection);
  // Ends the work on a connection: brings sum and epoll up to date, or closes and destroys it if it is to be
  // closed.
  void Settle(Connection& connection);
  void CloseLater(Connection& connection) { connection.closing = true; }
  // As CloseLater, and says why.
  void Reject(Connection& connection, absl::string_view why);
  // Only a limited number of times, so that a hostile peer can't fill a disk.
  void Warn(absl::string_view text);

  const StoreOptions options_;
  Listener listener_;
  UniqueFd epoll_;
  UniqueFd timer_;  // for pending_
  bool timer_set_ = false;
  UniqueFd spare_;  // given up for a moment to accept and close a connection when no descriptor is left
  ClientId next_client_ = 1;
  absl::flat_hash_map<ClientId, std::unique_ptr<Connection>> connections_;
  size_t connection_bytes_ = 0;  // sum of Connection::counted_bytes
  KeyValue key_value_;
  JoinWatch join_watch_;
  bool nodes_know_secret_ = true;
  SocketOwner socket_owner_;
  RoundNodes nodes_;
  PendingConnections pending_;
  absl::flat_hash_set<std::string> refused_;  // addresses that have been named in the log
  int warnings_left_ = 20;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_STORE_SERVER_H_
