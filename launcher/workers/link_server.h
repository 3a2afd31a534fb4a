#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_SERVER_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/workers/link_peer.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// The launcher's end of the worker link (docs/worker_protocol.md): listens in the abstract namespace and reads the
// workers' reports. A misbehaving peer affects neither other workers nor the rest of the launcher; at worst its own
// connection is closed, with one log line. Belongs to the loop's thread, and must be destroyed before the loop.
class LinkServer {
 public:
  struct Events {
    // A worker's messages except progress, hello first; and the end of its connection. Called from the loop, never from
    // within a call of this class.
    std::function<void(pid_t pid, worker_contract::WorkerLinkMessage line)> on_line;
    std::function<void(pid_t pid)> on_closed;
    // A worker's progress. Called immediately, also from within ReadReports and Remove, so it must not call those.
    std::function<void(pid_t pid, const ReportedProgress& progress)> on_progress;
    // A connection on which `process`, worker `worker` or a descendant of it, answers questions (section 7). It is the
    // receiver's from now on, which bounds how many it keeps. Called from the loop; unset: such connections are closed.
    std::function<void(pid_t worker, pid_t process, UniqueFd fd)> on_probe;
  };

  // Errors: the system's, if it is out of descriptors.
  static absl::StatusOr<std::unique_ptr<LinkServer>> Create(Events events, EventLoop* loop);
  ~LinkServer();
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  // The value of DDPRUN_WORKER_LINK.
  const std::string& address() const { return address_; }

  // Registers a worker. Connections of other processes are refused.
  void Add(pid_t pid, int32_t rank);

  // Announces to the worker that it will be killed at `killed_at`: on its connection, or on one that it opens later.
  void NotifyStop(pid_t pid, SteadyTime killed_at, const std::string& reason);

  // Changes the rank of a worker that continues in another round.
  void SetRank(pid_t pid, int32_t rank);

  // Sends the message if the worker is connected. Closes the connection if the socket buffer has no room for it.
  void Tell(pid_t pid, const worker_contract::LauncherLinkMessage& line);

  // Reads everything that connected workers have sent so far.
  void ReadReports();

  // The process connected for this worker: itself or a descendant. `pid` if there is no connection.
  pid_t ReporterOf(pid_t pid) const;

  // Removes a worker that has exited or is no longer of interest. Reads the rest of its connection, closes it, and
  // returns the worker's last reported progress.
  std::optional<ReportedProgress> Remove(pid_t pid);

 private:
  struct Worker {
    int32_t rank;
    std::optional<ReportedProgress> progress;  // from closed connections
    std::optional<SteadyTime> killed_at;       // set while it is being stopped
    std::string stop_reason;
  };
  struct Connection {
    UniqueFd fd;
    pid_t worker = 0;
    pid_t pid = 0;                 // pid of the connected process
    std::optional<LinkPeer> peer;  // unset: its messages are ignored
  };

  LinkServer(Events events, EventLoop* loop, std::string address, UniqueFd listener);
  absl::Status Listen();
  void AcceptAll();
  void OnAccepted(UniqueFd fd);
  // The worker that is `pid` or an ancestor of it; 0 if none.
  pid_t WorkerOf(pid_t pid) const;
  void Begin(int fd);
  // Reads available data, at most kMaxReadAtOnce bytes. False if the connection is now closed.
  bool Read(int fd);
  // Reads until nothing is left. False if the connection is now closed.
  bool ReadAll(int fd);
  // True if another connection of the same worker has sent its hello.
  bool HasOtherConnection(const Connection& connection) const;
  // Notifies the worker if it is being stopped. False if the connection is now closed.
  bool SendStop(int fd);
  // False if the connection is now closed, because the message did not fit into the socket buffer completely.
  bool Send(int fd, const worker_contract::LauncherLinkMessage& message, bool must_arrive);
  // The worker's connection that has sent a hello; -1 if none.
  int ConnectionOf(pid_t pid) const;
  // Gives a connection that answers questions to its receiver.
  void HandOver(int fd);
  // Reports the peer's messages: progress immediately, others from the loop.
  void ReportMessages(Connection* connection);
  void Close(int fd);
  void Refuse(const Connection& connection, absl::string_view why);
  void Complain(const std::string& text);

  const Events events_;
  EventLoop* const loop_;
  const std::string address_;
  const UniqueFd listener_;
  bool listening_ = false;
  std::map<pid_t, Worker> workers_;
  std::map<int, Connection> connections_;
  int complaints_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_LINK_SERVER_H_
