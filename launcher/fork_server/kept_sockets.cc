#include "launcher/fork_server/kept_sockets.h"

#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/os/errno_status.h"

namespace ddprun::launcher {
namespace {

constexpr char kPrefix[] = "preload-";
constexpr int kAnswerMillis = 1000;
constexpr size_t kMaxAnswer = 64 * 1024;
// A job's message, with its environment.
constexpr int kSocketBytes = 8 << 20;

// FNV-1a, which is equal in all processes, unlike absl::Hash.
uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

bool IsOursAlone(const std::string& folder) {
  struct stat status = {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 077) == 0;
}

std::vector<std::string> PathsIn(const std::string& folder, absl::string_view prefix) {
  std::vector<std::string> paths;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  while (const dirent* entry = opened == nullptr ? nullptr : readdir(opened.get())) {
    if (absl::StartsWith(entry->d_name, prefix)) paths.push_back(absl::StrCat(folder, "/", entry->d_name));
  }
  return paths;
}

}  // namespace

absl::StatusOr<KeptSockets> KeptSockets::Open(bool create) {
  const char* const runtime = getenv("XDG_RUNTIME_DIR");
  struct stat status = {};
  // `sudo` and `su` may leave that of another user.
  const bool has_runtime = runtime != nullptr && runtime[0] == '/' && strlen(runtime) < 60 &&
                           stat(runtime, &status) == 0 && status.st_uid == geteuid() && access(runtime, W_OK) == 0;
  const std::string folder = has_runtime ? absl::StrCat(runtime, "/ddprun") : absl::StrCat("/tmp/ddprun-", geteuid());
  if (create && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, folder);
  if (IsOursAlone(folder)) return KeptSockets(folder);
  if (lstat(folder.c_str(), &status) != 0) return ErrnoStatus(errno, folder);
  for (const std::string& other : PathsIn("/tmp", absl::StrCat("ddprun-", geteuid(), "-"))) {
    if (!has_runtime && IsOursAlone(other)) return KeptSockets(other);
  }
  std::string other = absl::StrCat(folder, "-XXXXXX");
  if (create && !has_runtime && mkdtemp(other.data()) != nullptr) return KeptSockets(other);
  return absl::FailedPreconditionError(absl::StrCat(folder, " is not a folder of this user with mode 0700"));
}

std::string KeptSockets::PathOf(const std::vector<std::string>& key) const {
  // Short: the path of a socket has at most 107 bytes. Servers compare the texts themselves.
  return absl::StrCat(folder_, "/", kPrefix, absl::StrJoin(key, "-", [](std::string* out, const std::string& text) {
                        absl::StrAppend(out, absl::Hex(HashOf(text) >> 44, absl::kZeroPad5));
                      }));
}

std::string KeptSockets::WhyNone(const std::vector<std::string>& key) const {
  const std::vector<std::string> wanted = absl::StrSplit(PathOf(key).substr(folder_.size()), '-');
  size_t kept = 0, alike = 0;
  for (const std::string& path : All()) {
    if (!Connect(path).ok()) continue;
    ++kept;
    const std::vector<std::string> parts = absl::StrSplit(path.substr(folder_.size()), '-');
    const auto differs = std::mismatch(wanted.begin(), wanted.end(), parts.begin(), parts.end()).first;
    alike = std::max<size_t>(alike, differs - wanted.begin() - 1);  // all begin with the prefix
  }
  if (kept == 0 || alike >= key.size()) return "no server is kept";
  return absl::StrCat(kept, kept == 1 ? " server is" : " servers are", " kept, none for ", key[alike]);
}

std::vector<std::string> KeptSockets::All() const {
  std::vector<std::pair<std::pair<time_t, long>, std::string>> found;
  for (std::string& path : PathsIn(folder_, kPrefix)) {
    struct stat status = {};
    // Without those that are about to be renamed.
    if (absl::StrContains(path.substr(folder_.size()), '.')) continue;
    if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    found.push_back({{status.st_mtim.tv_sec, status.st_mtim.tv_nsec}, std::move(path)});
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> paths;
  for (auto& [used, path] : found) paths.push_back(std::move(path));
  return paths;
}

absl::StatusOr<UniqueFd> KeptSockets::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return absl::NotFoundError(absl::StrCat(path, " is too long"));
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    if (error == ECONNREFUSED) unlink(path.c_str());
    if (error == ECONNREFUSED || error == ENOENT) return absl::NotFoundError("no server is kept");
    return ErrnoStatus(error, path);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(path, " belongs to a process of user ", peer.uid));
  }
  return socket;
}

std::string KeptSockets::Ask(const std::string& path, absl::string_view word) {
  const absl::StatusOr<UniqueFd> socket = Connect(path);
  if (!socket.ok() || send(socket->get(), word.data(), word.size(), MSG_NOSIGNAL) < 0) return "";
  pollfd answered{socket->get(), POLLIN, 0};
  std::string answer(kMaxAnswer, '\0');
  const ssize_t got =
      poll(&answered, 1, kAnswerMillis) > 0 ? recv(socket->get(), answer.data(), answer.size(), MSG_DONTWAIT) : 0;
  answer.resize(std::max<ssize_t>(0, got));
  return answer;
}

}  // namespace ddprun::launcher
