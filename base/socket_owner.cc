#include "base/socket_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// An address and a port as in the kernel's tables. IPv4-mapped IPv6 is IPv4.
struct Place {
  int family = AF_INET;
  uint32_t words[4] = {};  // network order
  uint16_t port = 0;       // network order
};

Place SocketEndOf(const SocketAddress& address) {
  Place place;
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    place.words[0] = v4->sin_addr.s_addr;
    place.port = v4->sin_port;
    return place;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  place.port = v6->sin6_port;
  uint32_t words[4];
  std::memcpy(words, &v6->sin6_addr, sizeof words);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    place.words[0] = words[3];
    return place;
  }
  place.family = AF_INET6;
  std::memcpy(place.words, words, sizeof words);
  return place;
}

absl::Status NoSocket() { return absl::NotFoundError("no such socket on this host"); }
absl::Status Closed() { return absl::FailedPreconditionError("the socket has been closed"); }
absl::Status NoAnswer() { return absl::UnavailableError("the kernel does not report the socket's owner"); }

// `words` are as reported by the kernel for a socket of `family`.
bool IsAt(const Place& place, int family, const uint32_t* words, uint16_t port) {
  if (port != place.port) return false;
  if (family == AF_INET6 && place.family == AF_INET) {
    return words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff) && words[3] == place.words[0];
  }
  return family == place.family && std::memcmp(words, place.words, family == AF_INET ? 4 : 16) == 0;
}

bool IsTheSocket(const inet_diag_msg& found, const Place& peer, const Place& own) {
  return IsAt(peer, found.idiag_family, found.id.idiag_src, found.id.idiag_sport) &&
         IsAt(own, found.idiag_family, found.id.idiag_dst, found.id.idiag_dport);
}

// A line of /proc/net/tcp or tcp6 begins with "sl: local remote", with the words of both addresses in host order.
std::string ProcText(const Place& place, bool as_ipv6) {
  std::string text;
  if (as_ipv6 && place.family == AF_INET) {
    absl::StrAppendFormat(&text, "%08X%08X%08X", 0u, 0u, htonl(0xffffu));
  }
  const int words = place.family == AF_INET ? 1 : 4;
  for (int i = 0; i < words; ++i) absl::StrAppendFormat(&text, "%08X", place.words[i]);
  absl::StrAppendFormat(&text, ":%04X", ntohs(place.port));
  return text;
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A sock_diag request for TCP sockets in one of `states` (one bit each).
struct DiagRequest {
  DiagRequest(int family, uint16_t flags, uint32_t states) {
    header.nlmsg_len = sizeof *this;
    header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    body.sdiag_family = static_cast<uint8_t>(family);
    body.sdiag_protocol = IPPROTO_TCP;
    body.idiag_states = states;
  }

  nlmsghdr header = {};
  inet_diag_req_v2 body = {};
};

}  // namespace

bool IsRootOrOwnUser(uid_t user) { return user == 0 || user == geteuid(); }

SocketOwner::SocketOwner() : netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
  // Checks that the kernel's sock_diag module exists. Without it, every request for one socket is answered with "no
  // such socket", but listing the table fails. With no states given, the list consists of its end only.
  const DiagRequest request(AF_INET, NLM_F_DUMP, 0);
  struct {
    nlmsghdr header = {};
    int error = 0;
  } end;
  if (netlink_ < 0 || send(netlink_, &request, sizeof request, 0) < 0 ||
      recv(netlink_, &end, sizeof end, MSG_DONTWAIT) < static_cast<ssize_t>(sizeof end) ||
      end.header.nlmsg_type != NLMSG_DONE || end.error < 0) {
    if (netlink_ >= 0) close(netlink_);
    netlink_ = -1;
  }
}

SocketOwner::~SocketOwner() {
  if (netlink_ >= 0) close(netlink_);
}

absl::StatusOr<uid_t> SocketOwner::UserOf(const SocketAddress& peer, const SocketAddress& own) {
  if (netlink_ < 0) return UserByProc(peer, own);
  const Place from = SocketEndOf(peer);
  const Place to = SocketEndOf(own);
  if (from.family != to.family) return NoSocket();
  DiagRequest request(from.family, 0, UINT32_MAX);
  request.body.id.idiag_sport = from.port;
  request.body.id.idiag_dport = to.port;
  std::memcpy(request.body.id.idiag_src, from.words, sizeof from.words);
  std::memcpy(request.body.id.idiag_dst, to.words, sizeof to.words);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(netlink_, &request, sizeof request, 0) < 0) return NoAnswer();
  // The reply is available when send() returns.
  alignas(nlmsghdr) char reply[8192];
  const ssize_t size = recv(netlink_, reply, sizeof reply, MSG_DONTWAIT);
  if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) return NoAnswer();
  const auto* header = reinterpret_cast<const nlmsghdr*>(reply);
  if (header->nlmsg_type == NLMSG_ERROR) {
    const auto* error = reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(header));
    if (error->error != -ENOENT) return NoAnswer();
    return IsLoopback(peer) ? Closed() : NoSocket();
  }
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
    return NoAnswer();
  }
  const auto* found = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  // If there is no such connection, the kernel reports a matching listener.
  if (!IsTheSocket(*found, from, to)) return IsLoopback(peer) ? Closed() : NoSocket();
  // A socket that is closed or in TIME_WAIT is always reported as owned by root.
  if (found->idiag_inode == 0) return Closed();
  return found->idiag_uid;
}

absl::StatusOr<uid_t> SocketOwner::UserByProc(const SocketAddress& peer, const SocketAddress& own) {
  const Place from = SocketEndOf(peer);
  const Place to = SocketEndOf(own);
  bool readable = false;
  for (const bool ipv6 : {false, true}) {
    if (!ipv6 && from.family == AF_INET6) continue;
    const std::string table = ReadFile(ipv6 ? "/proc/net/tcp6" : "/proc/net/tcp");
    readable = readable || !table.empty();
    const std::string ends = " " + ProcText(from, ipv6) + " " + ProcText(to, ipv6) + " ";
    const size_t at = table.find(ends);
    if (at == std::string::npos) continue;
    // state, queues, timer, retransmissions, user, timeout, inode
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(table).substr(at + ends.size(), 200), ' ', absl::SkipEmpty());
    uint32_t user = 0;
    uint64_t inode = 0;
    if (fields.size() < 7 || !absl::SimpleAtoi(fields[4], &user) || !absl::SimpleAtoi(fields[6], &inode)) {
      return NoAnswer();
    }
    if (inode == 0) return Closed();
    return user;
  }
  if (!readable) return NoAnswer();
  return IsLoopback(peer) ? Closed() : NoSocket();
}

}  // namespace ddprun
