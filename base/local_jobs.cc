#include "base/local_jobs.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/socket_address.h"
#include "base/socket_owner.h"
#include "base/steady_time.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr char kPrefix[] = "@ddprun_job_";
constexpr int kBacklog = 64;
constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr size_t kMaxAnswer = 64 * 1024;

// Credentials of the process at the other end; user -1: unknown.
ucred PeerOf(int connection) {
  ucred peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
  socklen_t size = sizeof peer;
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

// Returns a connection to the launcher that listens at `name`; -1: there is none that this user may believe.
int Connect(const std::string& name, pid_t* launcher) {
  const std::optional<UnixAddress> address = UnixAddress::Parse(name);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (address && connect(fd, address->get(), address->size()) == 0) {
    const ucred peer = PeerOf(fd);
    *launcher = peer.pid;
    if (IsRootOrOwnUser(peer.uid) || geteuid() == 0) return fd;
  }
  close(fd);
  return -1;
}

// Reads to the end; returns what has come by then if that takes longer.
std::string ReadAnswer(int connection, SteadyTime deadline) {
  std::string answer;
  while (answer.size() < kMaxAnswer) {
    pollfd readable = {connection, POLLIN, 0};
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
    if (poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) == 0) break;
    char buffer[4096];
    const ssize_t got = read(connection, buffer, sizeof buffer);
    if (got > 0) answer.append(buffer, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
  return answer;
}

}  // namespace

absl::StatusOr<int> ListenForLocalJobs() {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return absl::ErrnoToStatus(errno, "can't create a socket");
  const UnixAddress address = *UnixAddress::Parse(absl::StrCat(kPrefix, RandomId()));
  if (bind(listener, address.get(), address.size()) == 0 && listen(listener, kBacklog) == 0) return listener;
  const absl::Status failed = absl::ErrnoToStatus(errno, "can't listen on a Unix socket");
  close(listener);
  return failed;
}

int AcceptLocalJob(int listener) {
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (connection < 0 || IsRootOrOwnUser(PeerOf(connection).uid)) return connection;
  close(connection);
  return -1;
}

void AnswerLocalJob(int connection, const LocalJob& job) {
  const std::string answer = absl::StrCat(job.server, "\n", job.job_id, "\n", job.token, "\n");
  (void)send(connection, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  close(connection);
}

std::vector<LocalJob> FindLocalJobs() {
  std::vector<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t name = line.find(kPrefix);
    // Connections that a launcher has accepted have its name, too.
    if (name != line.npos) names.push_back(line.substr(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<std::pair<int, LocalJob>> asked;
  for (const std::string& name : names) {
    LocalJob job;
    const int connection = Connect(name, &job.launcher);
    if (connection >= 0) asked.emplace_back(connection, std::move(job));
  }
  const SteadyTime deadline = SteadyNow() + kPatience;
  std::vector<LocalJob> jobs;
  for (auto& [connection, job] : asked) {
    const std::vector<std::string> lines = absl::StrSplit(ReadAnswer(connection, deadline), '\n');
    close(connection);
    if (lines.size() != 4) continue;  // the last one is empty
    job.server = lines[0];
    job.job_id = lines[1];
    job.token = lines[2];
    jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const LocalJob& a, const LocalJob& b) { return a.launcher < b.launcher; });
  return jobs;
}

}  // namespace ddprun
