#include "launcher/hosts/session_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/unix_address.h"
#include "launcher/os/errno_status.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

// Binds or connects a socket; other users may know the session's name from /proc/net/unix, so both sides check who the
// other is.
absl::StatusOr<UniqueFd> Open(const std::string& session, int (*attach)(int, const sockaddr*, socklen_t)) {
  const std::optional<UnixAddress> address = UnixAddress::Parse(absl::StrCat("@ddprun-agent-", session));
  if (!address) return absl::InvalidArgumentError("the session has no name");
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (attach(fd.get(), address->get(), address->size()) == 0) return fd;
  if (errno == EADDRINUSE) return absl::AlreadyExistsError("another agent has this session");
  return ErrnoStatus(errno, "session");
}

bool IsOfThisUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// A message of some bytes and the two descriptors of a connection.
struct ConnectionMessage {
  explicit ConnectionMessage(std::string bytes) : text(std::move(bytes)) {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ConnectionMessage(const ConnectionMessage&) = delete;

  std::array<int, 2> fds;
  std::string text;
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr message{};
};

}  // namespace

absl::StatusOr<UniqueFd> ListenInSession(const std::string& session) {
  absl::StatusOr<UniqueFd> fd = Open(session, bind);
  if (fd.ok() && listen(fd->get(), 8) != 0) return ErrnoStatus(errno, "listen");
  return fd;
}

absl::StatusOr<UniqueFd> ConnectToSession(const std::string& session) {
  absl::StatusOr<UniqueFd> fd = Open(session, connect);
  if (fd.ok() && !IsOfThisUser(fd->get())) return absl::PermissionDeniedError("another user has this session");
  return fd;
}

UniqueFd AcceptInSession(int listener) {
  UniqueFd peer(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer.valid() && !IsOfThisUser(peer.get())) peer.reset();
  return peer;
}

bool SendConnection(int socket, int input, int output, const std::string& bytes) {
  ConnectionMessage sent(absl::StrCat("+", bytes.substr(0, kMaxBytes)));  // a message must not be empty
  sent.fds = {input, output};
  cmsghdr* const header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(sent.fds));
  memcpy(CMSG_DATA(header), sent.fds.data(), sizeof(sent.fds));
  return sendmsg(socket, &sent.message, MSG_NOSIGNAL) >= 0;
}

std::optional<FrontConnection> ReceiveConnection(int socket) {
  ConnectionMessage received(std::string(kMaxBytes + 1, '\0'));
  const ssize_t got = recvmsg(socket, &received.message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&received.message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(received.fds))) {
    return std::nullopt;
  }
  memcpy(received.fds.data(), CMSG_DATA(header), sizeof(received.fds));
  return FrontConnection{UniqueFd(received.fds[0]), UniqueFd(received.fds[1]), received.text.substr(1, got - 1)};
}

}  // namespace ddprun::launcher
