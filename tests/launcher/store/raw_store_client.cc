#include "tests/launcher/store/raw_store_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "tests/launcher/store/request_bytes.h"

namespace ddprun::launcher {

RawClient::RawClient(int port, bool hello, uint32_t pid, const char* source)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval minute = {60, 0};
  const int one = 1;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (source != nullptr && (inet_pton(AF_INET, source, &address.sin_addr) != 1 ||
                            bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)) {
    fd_.reset();
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd_.reset();
  if (hello && connected() && (!Send(Validate() + Ping(pid)) || Receive(4) != Number(pid))) fd_.reset();
}

bool RawClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string RawClient::Receive(size_t size) {
  std::string got;
  char bytes[65536];
  while (got.size() < size) {
    const ssize_t count = recv(fd_.get(), bytes, std::min(sizeof bytes, size - got.size()), 0);
    if (count <= 0) break;
    got.append(bytes, static_cast<size_t>(count));
  }
  return got;
}

std::string RawClient::Ask(absl::string_view bytes) {
  const std::string mark = Number<uint32_t>(0xA5C35A3Cu);
  if (!Send(bytes) || !Send(Ping(0xA5C35A3Cu))) return "(closed)";
  std::string got;
  while (!absl::EndsWith(got, mark)) {
    const std::string more = Receive(1);
    if (more.empty()) return "(closed)";
    got += more;
  }
  got.resize(got.size() - mark.size());
  return got;
}

bool RawClient::IsClosed() {
  char byte;
  const ssize_t count = recv(fd_.get(), &byte, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

}  // namespace ddprun::launcher
