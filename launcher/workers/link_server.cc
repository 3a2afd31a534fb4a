#include "launcher/workers/link_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {
namespace {

constexpr int kBacklog = 1024;
constexpr int kMostAcceptedAtOnce = 256;
// One that reports, and those of the worker and of a few children that are about to be handed over.
constexpr int kMostConnectionsOfAWorker = 8;
// Per connection, before other connections have their turn.
constexpr size_t kMaxReadAtOnce = 16 * 1024;
// Times kMaxReadAtOnce: more than a socket buffers.
constexpr int kMostReadsToTheEnd = 64;
constexpr int kMostGenerations = 64;
constexpr int kMostComplaints = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Create(Events events, EventLoop* loop) {
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "can't create a socket for the worker link");
  const std::string name = absl::StrCat("@ddprun_", RandomId());
  const UnixAddress address = *UnixAddress::Parse(name);
  if (bind(listener.get(), address.get(), address.size()) != 0 || listen(listener.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, "listening for the worker link");
  }
  std::unique_ptr<LinkServer> server(new LinkServer(std::move(events), loop, name, std::move(listener)));
  DDPRUN_RETURN_IF_ERROR(server->Listen());
  return server;
}

LinkServer::LinkServer(Events events, EventLoop* loop, std::string address, UniqueFd listener)
    : events_(std::move(events)), loop_(loop), address_(std::move(address)), listener_(std::move(listener)) {}

LinkServer::~LinkServer() {
  *alive_ = false;
  loop_->RemoveFd(listener_.get());
  for (const auto& [fd, connection] : connections_) loop_->RemoveFd(fd);
}

absl::Status LinkServer::Listen() {
  if (listening_) return absl::OkStatus();
  absl::Status status = loop_->AddFd(listener_.get(), EPOLLIN, [this](uint32_t) { AcceptAll(); });
  listening_ = status.ok();
  return status;
}

void LinkServer::AcceptAll() {
  for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      OnAccepted(std::move(fd));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // A pending connection would keep the loop spinning. Listening resumes when a connection or a worker has ended.
      Complain(absl::StrCat("worker link: can't accept a connection: ", ErrnoStatus(errno, "accept").message()));
      loop_->RemoveFd(listener_.get());
      listening_ = false;
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void LinkServer::OnAccepted(UniqueFd fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  Connection connection;
  const int number = fd.get();
  connection.fd = std::move(fd);
  connection.pid = peer.pid;
  if (peer.uid != geteuid()) return Refuse(connection, absl::StrCat("it belongs to user ", peer.uid));
  connection.worker = WorkerOf(peer.pid);
  if (connection.worker == 0) return Refuse(connection, "it is not a worker of this launcher");
  const auto same_worker = [&](const auto& other) { return other.second.worker == connection.worker; };
  if (std::count_if(connections_.begin(), connections_.end(), same_worker) >= kMostConnectionsOfAWorker) {
    return Refuse(connection, "there are too many connections");
  }
  connections_.emplace(number, std::move(connection));
  Begin(number);
}

pid_t LinkServer::WorkerOf(pid_t pid) const {
  const pid_t self = getpid();
  for (int i = 0; i < kMostGenerations && pid > 0; ++i) {
    if (workers_.count(pid) != 0) return pid;
    pid = pid == self ? 0 : ParentOf(pid);
  }
  return 0;
}

void LinkServer::Begin(int fd) {
  Connection& connection = connections_.at(fd);
  connection.peer.emplace(workers_.at(connection.worker).rank, SteadyNow());
  const absl::Status status = loop_->AddFd(fd, EPOLLIN, [this, fd](uint32_t) { Read(fd); });
  if (status.ok()) return;
  Complain(absl::StrCat("worker link: ", status.message()));
  Close(fd);
}

bool LinkServer::Read(int fd) {
  Connection& connection = connections_.at(fd);
  char bytes[kMaxReadAtOnce];
  ssize_t got;
  do {
    got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return true;
  if (got <= 0) {
    Close(fd);
    return false;
  }
  const bool greeted = connection.peer->hello().has_value();
  absl::Status status = connection.peer->OnBytes(absl::string_view(bytes, got), SteadyNow());
  if (status.ok() && connection.peer->is_probe()) {
    HandOver(fd);
    return false;
  }
  // Connections that ended before this one began have been read completely by now.
  if (status.ok() && !greeted && connection.peer->hello() && HasOtherConnection(connection)) {
    status = absl::AlreadyExistsError("this worker already has a connection");
  }
  if (!absl::IsAlreadyExists(status)) ReportMessages(&connection);
  if (status.ok()) return greeted || !connection.peer->hello() || SendStop(fd);
  Refuse(connection, status.message());
  // Messages of a second connection are ignored.
  if (absl::IsAlreadyExists(status)) connection.peer.reset();
  Close(fd);
  return false;
}

void LinkServer::HandOver(int fd) {
  loop_->RemoveFd(fd);
  const auto connection = std::make_shared<Connection>(std::move(connections_.extract(fd).mapped()));
  Listen().IgnoreError();
  loop_->Post([this, alive = alive_, connection] {
    // The worker may have been removed meanwhile.
    if (!*alive || !events_.on_probe || workers_.count(connection->worker) == 0) return;
    events_.on_probe(connection->worker, connection->pid, std::move(connection->fd));
  });
}

bool LinkServer::ReadAll(int fd) {
  char byte;
  for (int i = 0; i < kMostReadsToTheEnd; ++i) {
    if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) return true;
    if (!Read(fd)) return false;
  }
  return true;
}

bool LinkServer::HasOtherConnection(const Connection& connection) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
    const Connection& other = entry.second;
    return &other != &connection && other.worker == connection.worker && other.peer && other.peer->hello();
  });
}

void LinkServer::ReadReports() {
  std::vector<int> fds;
  for (const auto& [fd, connection] : connections_) {
    if (connection.peer) fds.push_back(fd);
  }
  for (const int fd : fds) {
    // Reading an earlier connection may have closed this one.
    if (connections_.count(fd) != 0) ReadAll(fd);
  }
}

pid_t LinkServer::ReporterOf(pid_t pid) const {
  const int fd = ConnectionOf(pid);
  return fd < 0 ? pid : connections_.at(fd).pid;
}

void LinkServer::ReportMessages(Connection* connection) {
  for (const ReportedProgress& progress : connection->peer->TakeReports()) {
    events_.on_progress(connection->worker, progress);
  }
  std::vector<worker_contract::WorkerLinkMessage> lines = connection->peer->TakeLines();
  if (lines.empty()) return;
  loop_->Post([this, alive = alive_, pid = connection->worker, lines = std::move(lines)] {
    for (const worker_contract::WorkerLinkMessage& line : lines) {
      if (*alive) events_.on_line(pid, line);
    }
  });
}

int LinkServer::ConnectionOf(pid_t pid) const {
  const auto found = std::find_if(connections_.begin(), connections_.end(), [pid](const auto& entry) {
    return entry.second.worker == pid && entry.second.peer && entry.second.peer->hello();
  });
  return found == connections_.end() ? -1 : found->first;
}

void LinkServer::Close(int fd) {
  const auto found = connections_.find(fd);
  const Connection& connection = found->second;
  const auto worker = workers_.find(connection.worker);
  if (worker != workers_.end() && connection.peer && connection.peer->progress()) {
    std::optional<ReportedProgress>& last = worker->second.progress;
    if (!last || !(connection.peer->progress()->at < last->at)) last = connection.peer->progress();
  }
  if (connection.peer && connection.peer->hello()) {
    loop_->Post([this, alive = alive_, pid = connection.worker] {
      if (*alive) events_.on_closed(pid);
    });
  }
  loop_->RemoveFd(fd);
  connections_.erase(found);
  Listen().IgnoreError();
}

void LinkServer::Add(pid_t pid, int32_t rank) {
  workers_.insert_or_assign(pid, Worker{rank, std::nullopt, std::nullopt, ""});
  Listen().IgnoreError();
}

void LinkServer::NotifyStop(pid_t pid, SteadyTime killed_at, const std::string& reason) {
  const auto worker = workers_.find(pid);
  if (worker == workers_.end()) return;
  worker->second.killed_at = killed_at;
  worker->second.stop_reason = reason;
  if (const int fd = ConnectionOf(pid); fd >= 0) SendStop(fd);
}

void LinkServer::SetRank(pid_t pid, int32_t rank) {
  const auto worker = workers_.find(pid);
  if (worker == workers_.end()) return;
  worker->second.rank = rank;
  for (auto& [fd, connection] : connections_) {
    if (connection.worker == pid && connection.peer) connection.peer->SetRank(rank);
  }
}

void LinkServer::Tell(pid_t pid, const worker_contract::LauncherLinkMessage& line) {
  if (const int fd = ConnectionOf(pid); fd >= 0) Send(fd, line, /*must_arrive=*/true);
}

bool LinkServer::SendStop(int fd) {
  const Worker& worker = workers_.at(connections_.at(fd).worker);
  if (!worker.killed_at) return true;
  const absl::Duration left = std::max(absl::ZeroDuration(), *worker.killed_at - SteadyNow());
  const worker_contract::LinkStop stop{left, OneLine(worker.stop_reason, worker_contract::kMaxReasonBytes)};
  return Send(fd, stop, /*must_arrive=*/false);
}

bool LinkServer::Send(int fd, const worker_contract::LauncherLinkMessage& message, bool must_arrive) {
  const std::string line = worker_contract::EncodeMessage(message);
  const ssize_t sent = send(fd, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  // An optional message is dropped if the worker does not read; a partial line would corrupt the stream.
  if (sent == static_cast<ssize_t>(line.size()) || (sent < 0 && !must_arrive)) return true;
  Close(fd);
  return false;
}

std::optional<ReportedProgress> LinkServer::Remove(pid_t pid) {
  const auto worker = workers_.find(pid);
  if (worker == workers_.end()) return std::nullopt;
  AcceptAll();
  std::vector<int> its_own;
  for (const auto& [fd, connection] : connections_) {
    if (connection.worker == pid) its_own.push_back(fd);
  }
  for (const int fd : its_own) {
    // Reading an earlier connection may have closed this one.
    if (connections_.count(fd) != 0 && ReadAll(fd)) Close(fd);
  }
  std::optional<ReportedProgress> progress = std::move(worker->second.progress);
  workers_.erase(worker);
  return progress;
}

void LinkServer::Refuse(const Connection& connection, absl::string_view why) {
  const auto worker = workers_.find(connection.worker);
  Complain(absl::StrCat("worker link: closed the connection of process ", connection.pid,
                        worker == workers_.end() ? "" : absl::StrCat(" (rank ", worker->second.rank, ")"), ": ", why));
}

void LinkServer::Complain(const std::string& text) {
  if (++complaints_ > kMostComplaints) return;
  Log(LogLevel::kWarning,
      complaints_ < kMostComplaints ? text : absl::StrCat(text, "; more of these will not be logged"));
}

}  // namespace ddprun::launcher
