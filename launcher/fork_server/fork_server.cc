#include "launcher/fork_server/fork_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/resolve_program.h"
#include "worker_contract/fork_protocol.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxMessage = 64 * 1024;
constexpr size_t kMaxReasonBytes = 500;
// A worker's stdout, stderr and gate.
constexpr size_t kMostFds = 3;
// Room in the server's command line for the workers'; longer ones, up to the system's limit of one argument, are not
// worth their copies.
constexpr size_t kMostRoom = 64 * 1024;
// Room for bursts of requests with these descriptors each.
constexpr int kSocketBytes = 4 << 20;

absl::StatusOr<UniqueFd> SourceFile() {
  UniqueFd file(static_cast<int>(memfd_create("ddprun_fork_server", MFD_CLOEXEC)));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  absl::string_view rest = kForkServerSource;
  while (!rest.empty()) {
    const ssize_t written = write(file.get(), rest.data(), rest.size());
    if (written <= 0) return ErrnoStatus(errno, "writing to a memfd");
    rest.remove_prefix(written);
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, "rewinding a memfd");
  return file;
}

size_t CommandLineBytes(const std::vector<std::string>& argv) {
  size_t bytes = 0;
  for (const std::string& word : argv) bytes += word.size() + 1;
  return bytes;
}

// Command line of the interpreter: "-" instead of the script, then the numbers of the descriptors that it needs, padded
// to the size of the workers' command line, which they write over it (a longer one is placed elsewhere).
std::vector<std::string> ServerArgv(const ForkServer::Settings& settings, int socket, int workers_stdin) {
  const size_t flags_end = settings.script - (settings.is_module ? 1 : 0);
  std::vector<std::string> argv(settings.worker_argv.begin(), settings.worker_argv.begin() + flags_end);
  argv.push_back("-");
  const size_t wanted = std::min(CommandLineBytes(settings.worker_argv), kMostRoom);
  const size_t room = wanted - std::min(wanted, CommandLineBytes(argv) + 1);
  const std::string numbers = absl::StrCat(socket, " ", workers_stdin);
  std::string last = absl::StrCat(numbers, " ddprun fork server");
  last.resize(std::max(room, numbers.size()), ' ');
  argv.push_back(std::move(last));
  return argv;
}

std::string Joined(const std::vector<std::string>& fields) { return absl::StrJoin(fields, absl::string_view("\0", 1)); }

// Values that change while a process computes or waits for data: CPU time and page faults that required reading.
std::string ProgressOf(pid_t pid) {
  const std::string stat = ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)), ' ');
  // Fields of proc(5), from field 2 on: 12 majflt, 14 utime, 15 stime, 16 and 17 those of children.
  constexpr size_t kFields[] = {10, 12, 13, 14, 15};
  std::string progress;
  for (const size_t field : kFields) absl::StrAppend(&progress, field < fields.size() ? fields[field] : "", " ");
  return progress;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ForkServer>> ForkServer::Start(Settings settings, EventLoop* loop, Events events) {
  std::unique_ptr<ForkServer> server(new ForkServer(std::move(settings), loop, std::move(events)));
  DDPRUN_RETURN_IF_ERROR(server->StartServer());
  return server;
}

ForkServer::ForkServer(Settings settings, EventLoop* loop, Events events)
    : settings_(std::move(settings)), loop_(loop), events_(std::move(events)) {}

ForkServer::~ForkServer() {
  *alive_ = false;
  KillServer();
}

absl::Status ForkServer::StartServer() {
  if (settings_.running) {
    channel_.reset(std::exchange(settings_.running->socket, -1));
    if (!channel_.valid()) return absl::UnavailableError("the process that forks the workers has ended");
    fcntl(channel_.get(), F_SETFD, FD_CLOEXEC);
    server_ = Child{settings_.running->pid, OpenPidfd(settings_.running->pid), {}};
  } else if (absl::Status status = SpawnServer(); !status.ok()) {
    return status;
  }
  setsockopt(channel_.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  DDPRUN_RETURN_IF_ERROR(SendSetup());
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.valid()) return ErrnoStatus(errno, "timerfd_create");
  absl::Status watched = loop_->AddFd(channel_.get(), EPOLLIN, [this](uint32_t events) {
    (events & EPOLLOUT) != 0 ? SendPendingRequests() : OnReadable();
  });
  if (watched.ok()) watched = loop_->AddFd(timer_.get(), EPOLLIN, [this](uint32_t) { OnProgressTimer(); });
  if (watched.ok()) WatchProgress();
  return watched;
}

absl::Status ForkServer::SpawnServer() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return ErrnoStatus(errno, "socketpair");
  channel_.reset(sockets[0]);
  const UniqueFd theirs(sockets[1]);
  DDPRUN_ASSIGN_OR_RETURN(Child child,
                          settings_.is_program ? SpawnProgram(theirs.get()) : SpawnInterpreter(theirs.get()));
  child.gate.Open();
  server_ = std::move(child);
  return absl::OkStatus();
}

absl::StatusOr<Child> ForkServer::SpawnInterpreter(int socket) {
  DDPRUN_ASSIGN_OR_RETURN(UniqueFd source, SourceFile());
  const UniqueFd workers_stdin(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!workers_stdin.valid()) return ErrnoStatus(errno, "duplicating standard input");
  SpawnRequest request;
  request.program = settings_.worker_argv.front();
  request.argv = ServerArgv(settings_, socket, workers_stdin.get());
  request.environment = settings_.environment;
  request.stdin_fd = source.get();
  request.passed_fds = {socket, workers_stdin.get()};
  request.ignored_signals = settings_.ignored_signals;
  return CreateChild(request);
}

absl::StatusOr<Child> ForkServer::SpawnProgram(int socket) {
  // Output before RunWorker belongs to every worker, so it is kept until then.
  const UniqueFd out(memfd_create("output", MFD_CLOEXEC)), err(memfd_create("output", MFD_CLOEXEC));
  if (!out.valid() || !err.valid()) return ErrnoStatus(errno, "memfd_create");
  SpawnRequest request;
  request.program = settings_.worker_argv.front();
  request.argv = settings_.worker_argv;
  request.environment = settings_.environment;
  request.environment.push_back(absl::StrCat(worker_contract::kForkServer, "=", socket));
  request.stdout_fd = out.get();
  request.stderr_fd = err.get();
  request.passed_fds = {socket};
  request.ignored_signals = settings_.ignored_signals;
  return CreateChild(request);
}

absl::Status ForkServer::Died() {
  if (const std::optional<int> error = server_.gate.TakeError()) {
    return ExplainExecError(settings_.worker_argv.front(), *error);
  }
  return absl::UnavailableError(settings_.is_program && !ready_ ? "the program ended before reaching RunWorker"
                                                                : "the fork server died");
}

absl::Status ForkServer::SendSetup() {
  std::vector<std::string> fields = {"setup",
                                     absl::StrCat(getpid()),
                                     settings_.modules,
                                     left_out_,
                                     settings_.is_module ? "module" : "script",
                                     absl::StrCat(settings_.script)};
  fields.insert(fields.end(), settings_.worker_argv.begin(), settings_.worker_argv.end());
  return SendMessage(Joined(fields), {});
}

std::vector<ForkServer::Ticket> ForkServer::Fork(const std::vector<Request>& requests) {
  std::vector<Ticket> tickets;
  for (const Request& request : requests) {
    tickets.push_back(++last_ticket_);
    waiting_[last_ticket_].request = request;
  }
  SendPendingRequests();
  return tickets;
}

bool ForkServer::Cancel(Ticket ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end() || found->second.asked) return false;
  waiting_.erase(found);
  return true;
}

void ForkServer::SendPendingRequests() {
  if (!ready_) return;
  absl::Status status;
  for (auto& [ticket, waiting] : waiting_) {
    if (waiting.asked) continue;
    status = Ask(ticket, &waiting);
    if (!status.ok()) break;
    waiting.asked = true;
  }
  if (status.ok() && !waiting_.empty()) status = SendMessage("go", {});
  const bool full = absl::IsAborted(status);  // the rest is sent when the server has read
  (void)loop_->ModifyFd(channel_.get(), full ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (status.ok() || full) return WatchProgress();
  // Do not call back from within the caller's call.
  loop_->Post([this, alive = alive_, status] {
    if (*alive && !ended_) End(status);
  });
}

absl::Status ForkServer::Ask(Ticket ticket, Waiting* waiting) {
  const Request& request = waiting->request;
  DDPRUN_ASSIGN_OR_RETURN(StartGate::Ends gate, StartGate::Create());
  waiting->gate = std::move(gate.launcher);
  std::vector<std::string> fields = {"start", absl::StrCat(ticket), absl::StrJoin(request.cpus, ",")};
  for (std::string& change : EnvironmentChanges(settings_.environment, request.environment)) {
    fields.push_back(std::move(change));
  }
  const std::vector<int> fds = {request.stdout_fd < 0 ? STDOUT_FILENO : request.stdout_fd,
                                request.stderr_fd < 0 ? STDERR_FILENO : request.stderr_fd, gate.process.get()};
  return SendMessage(Joined(fields), fds);
}

absl::Status ForkServer::SendMessage(absl::string_view message, const std::vector<int>& fds) {
  iovec text{const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &text;
  packet.msg_iovlen = 1;
  if (!fds.empty()) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(channel_.get(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  if (errno == EAGAIN) return absl::AbortedError("the fork server's socket is full");
  if (errno == EPIPE || errno == ECONNRESET) return Died();
  return ErrnoStatus(errno, "sending to the fork server");
}

void ForkServer::OnReadable() {
  // Handlers may end the server, start another one or destroy this object.
  const std::shared_ptr<bool> alive = alive_;
  while (*alive && !ended_ && ReadMessage()) {
  }
}

bool ForkServer::ReadMessage() {
  std::string message(kMaxMessage, '\0');
  const ssize_t got = recv(channel_.get(), message.data(), message.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {
    End(Died());
    return false;
  }
  message.resize(got);
  OnMessage(absl::StrSplit(message, '\0'));
  return true;
}

void ForkServer::OnMessage(const std::vector<std::string>& fields) {
  const std::string& kind = fields[0];
  const auto field = [&fields](size_t i) { return i < fields.size() ? OneLine(fields[i], kMaxReasonBytes) : ""; };
  if (kind == "ready") {
    Log(LogLevel::kInfo,
        absl::StrCat("--preload: fork server ", server_.pid,
                     settings_.is_program ? " reached RunWorker" : " imported " + field(2), " in ", field(1), " s"));
    if (!field(3).empty()) Log(LogLevel::kWarning, absl::StrCat("--preload: ", field(3)));
    ready_ = true;
    WatchProgress();
    return SendPendingRequests();
  }
  if (kind == "started" || kind == "unforked") {
    Ticket ticket = 0;
    pid_t pid = 0;
    if (!absl::SimpleAtoi(field(1), &ticket)) return;
    if (kind == "started" && absl::SimpleAtoi(field(2), &pid)) return OnStarted(ticket, pid);
    return End(absl::ResourceExhaustedError(absl::StrCat("the fork server can't fork: ", field(2))));
  }
  if (kind == "nothing") {
    if (!field(1).empty()) Log(LogLevel::kWarning, absl::StrCat("--preload: ", field(1)));
    return End(absl::OkStatus());
  }
  if (kind == "failed") return End(absl::FailedPreconditionError(field(1)));
  if (kind == "leave") {
    Log(LogLevel::kWarning,
        absl::StrCat("--preload leaves out ", field(1), ": ", field(2), "; workers import it themselves"));
    absl::StrAppend(&left_out_, left_out_.empty() ? "" : ",", field(1));
    return ReplaceServer();
  }
  if (kind == "changed") {
    Log(LogLevel::kInfo, absl::StrCat("--preload: loading again, because ", field(1), " has changed"));
    return ReplaceServer();
  }
}

void ForkServer::OnStarted(Ticket ticket, pid_t pid) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) {
    kill(-pid, SIGKILL);  // cancelled meanwhile
    return;
  }
  Child child{pid, OpenPidfd(pid), std::move(found->second.gate)};
  waiting_.erase(found);
  WatchProgress();
  events_.on_started(ticket, std::move(child));
}

void ForkServer::ReplaceServer() {
  KillServer();
  for (auto& [ticket, waiting] : waiting_) waiting.asked = false;
  if (absl::Status status = StartServer(); !status.ok()) End(status);
}

void ForkServer::End(absl::Status why) {
  // Workers already forked may have reported their start; after the shutdown no more reports can arrive.
  shutdown(channel_.get(), SHUT_RD);
  ended_ = true;
  const std::shared_ptr<bool> alive = alive_;
  std::string message(kMaxMessage, '\0');
  ssize_t got;
  while (*alive && (got = recv(channel_.get(), message.data(), message.size(), MSG_DONTWAIT)) > 0) {
    const std::vector<std::string> fields = absl::StrSplit(message.substr(0, got), '\0');
    if (fields[0] == "started") OnMessage(fields);
  }
  if (!*alive) return;
  KillServer();
  std::vector<Ticket> not_started;
  for (const auto& [ticket, waiting] : waiting_) not_started.push_back(ticket);
  waiting_.clear();
  events_.on_ended(why, not_started);
}

void ForkServer::KillServer() {
  ready_ = false;
  if (timer_.valid()) loop_->RemoveFd(timer_.get());
  timer_.reset();
  if (channel_.valid()) loop_->RemoveFd(channel_.get());
  channel_.reset();
  if (!server_.pidfd.valid()) return;
  // It leads its own session, which includes processes started by its imports.
  kill(-server_.pid, SIGKILL);
  SignalPidfd(server_.pidfd.get(), SIGKILL);
  // Not waited for, since it may take seconds (a file system, much memory). ReapDeadOrphans reaps it.
  server_ = Child{};
}

void ForkServer::WatchProgress() {
  const bool owes_answer = !ready_ || !waiting_.empty();
  progress_ = owes_answer ? ProgressOf(server_.pid) : "";
  const timespec limit = absl::ToTimespec(settings_.stall_limit);
  const itimerspec spec{limit, owes_answer ? limit : timespec{}};
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void ForkServer::OnProgressTimer() {
  uint64_t expirations;
  if (read(timer_.get(), &expirations, sizeof expirations) < 0) return;
  if (settings_.is_program && !ready_) {
    return End(absl::DeadlineExceededError(
        absl::StrCat("the program did not reach RunWorker within ", absl::FormatDuration(settings_.stall_limit))));
  }
  std::string progress = ProgressOf(server_.pid);
  if (progress != progress_) {
    progress_ = std::move(progress);
    return;
  }
  End(absl::DeadlineExceededError(
      absl::StrCat(ready_ ? "the fork server has not answered for " : "the imports have made no progress for ",
                   absl::FormatDuration(settings_.stall_limit))));
}

namespace {

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::vector<std::string> EnvironmentChanges(absl::Span<const std::string> from, absl::Span<const std::string> to) {
  std::vector<std::string> changes;
  const absl::flat_hash_set<absl::string_view> old_entries(from.begin(), from.end());
  absl::flat_hash_set<absl::string_view> names;
  for (const std::string& entry : to) {
    names.insert(NameOf(entry));
    if (!old_entries.contains(entry)) changes.push_back(entry);
  }
  for (const std::string& entry : from) {
    if (!names.contains(NameOf(entry))) changes.emplace_back(NameOf(entry));
  }
  return changes;
}

bool IsLinkedWithWorkerRuntime(const std::string& file) {
  constexpr absl::string_view kElf = "\177ELF";
  const UniqueFd opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!opened.valid() || fstat(opened.get(), &status) != 0 || status.st_size < static_cast<off_t>(kElf.size())) {
    return false;
  }
  const size_t size = status.st_size;
  void* const begin = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  if (begin == MAP_FAILED) return false;
  madvise(begin, size, MADV_SEQUENTIAL);
  // Assembled here, so that the launcher's own binary does not contain it.
  const std::string mark = absl::StrCat(DDPRUN_FORK_SERVER_MARK_BEGIN, DDPRUN_FORK_SERVER_MARK_END);
  const bool found =
      memcmp(begin, kElf.data(), kElf.size()) == 0 && memmem(begin, size, mark.data(), mark.size()) != nullptr;
  munmap(begin, size);
  return found;
}

}  // namespace ddprun::launcher
