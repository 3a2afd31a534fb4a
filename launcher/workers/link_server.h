#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_SERVER_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"
#include "launcher/workers/link_peer.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// The launcher's end of the worker link (docs/worker_protocol.md): listens in the abstract namespace and reads what
// workers report. Whatever a peer does, no other worker and nothing else in the launcher notices; the worst that
// happens to it is that its connection is closed, with one line in the log. Belongs to the loop's thread, and must be
// destroyed before the loop.
class LinkServer {
 public:
  struct Events {
    // Lines of a worker but for its progress, hello first; and that its connection is no more. Called from the loop,
    // never from within a call of this class.
    std::function<void(pid_t pid, worker_contract::WorkerLine line)> on_line;
    std::function<void(pid_t pid)> on_closed;
    // Its progress; at once, also from within ReadReports and Remove, which it must not call.
    std::function<void(pid_t pid, const ReportedProgress& progress)> on_progress;
  };

  // Errors: the system's, when it is out of descriptors.
  static absl::StatusOr<std::unique_ptr<LinkServer>> Create(Events events, EventLoop* loop);
  ~LinkServer();
  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;

  // The value of DDPRUN_WORKER_LINK.
  const std::string& address() const { return address_; }

  // This worker exists. Others are refused.
  void Add(pid_t pid, int32_t rank);

  // This worker will be killed then. Told to its connection, or to one that it opens later.
  void TellStop(pid_t pid, SteadyTime killed_at, const std::string& reason);

  // This worker goes on with another rank.
  void SetRank(pid_t pid, int32_t rank);

  // Sends the line if the worker is connected. If its socket has no room for it the connection is closed.
  void Tell(pid_t pid, const worker_contract::LauncherLine& line);

  // Reads what connected workers have said by now.
  void ReadReports();

  // The process that speaks for this worker: itself or a descendant. Itself if it has not connected.
  pid_t SpeakerOf(pid_t pid) const;

  // This worker has ended, or is no longer of interest. Reads what it has left in its connection, closes that, and
  // returns what it reported last.
  std::optional<ReportedProgress> Remove(pid_t pid);

 private:
  struct Worker {
    int32_t rank;
    std::optional<ReportedProgress> progress;  // of connections that have ended
    std::optional<SteadyTime> killed_at;       // it is being stopped
    std::string stop_reason;
  };
  struct Connection {
    UniqueFd fd;
    pid_t worker = 0;
    pid_t pid = 0;                 // of who connected
    std::optional<LinkPeer> peer;  // unset: what it says does not count
  };

  LinkServer(Events events, EventLoop* loop, std::string address, UniqueFd listener);
  absl::Status Listen();
  void AcceptAll();
  void OnAccepted(UniqueFd fd);
  // The worker that is this process or an ancestor of it; 0: none is.
  pid_t WorkerOf(pid_t pid) const;
  void Begin(int fd);
  // Reads what has come, at most kMaxReadAtOnce. False if the connection is closed now.
  bool Read(int fd);
  // Reads until nothing is left. False if the connection is closed now.
  bool ReadAll(int fd);
  // Whether another connection of the same worker has begun with a hello.
  bool HasOtherConnection(const Connection& connection) const;
  // Tells the worker of this connection that it is being stopped, if it is. False if the connection is closed now.
  bool SendStop(int fd);
  // False if the connection is closed now: the line did not fit, or only a part of it.
  bool Send(int fd, const worker_contract::LauncherLine& message, bool must_arrive);
  // The connection of this worker that has begun with a hello; -1: there is none.
  int ConnectionOf(pid_t pid) const;
  // What the peer has said is told from the loop.
  void TellLines(Connection* connection);
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
