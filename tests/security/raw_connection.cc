#include "tests/security/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

namespace ddprun::rendezvous {
namespace {

constexpr timeval kHang = {.tv_sec = 60};

sockaddr_in Address(const std::string& host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

std::string Frame(char type, char flags, int stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(type);
  frame.push_back(flags);
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame + payload;
}

std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }

// POST /ddprun.v1.Rendezvous/Session, each field as a literal that changes no table (RFC 7541, 6.2.2).
std::string SessionHeaders() {
  const char kPath = 4, kAuthority = 1;
  std::string headers = "\x83\x86";  // :method POST, :scheme http
  headers += kPath + Text("/ddprun.v1.Rendezvous/Session");
  headers += kAuthority + Text("localhost");
  headers += "\x0f\x10" + Text("application/grpc");  // content-type
  headers += std::string(1, '\0') + Text("te") + Text("trailers");
  return headers;
}

}  // namespace

RawConnection::RawConnection(int port, const std::string& address)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in from = Address(address, 0), to = Address("127.0.0.1", port);
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kHang, sizeof kHang);
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 ||
      connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    perror("RawConnection");
    abort();
  }
}

RawConnection::~RawConnection() { close(fd_); }

std::string RawConnection::Greeting() {
  constexpr char kSettings = 4;
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
}

bool RawConnection::IsAnswered() {
  char byte = 0;
  return recv(fd_, &byte, 1, 0) == 1;
}

void RawConnection::OpenStreams(int count) {
  constexpr char kHeaders = 1, kEndHeaders = 4;
  std::string frames;
  for (int i = 0; i < count; ++i, next_stream_ += 2) {
    frames += Frame(kHeaders, kEndHeaders, next_stream_, SessionHeaders());
  }
  Send(frames);
}

bool RawConnection::AwaitClosed() {
  char buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd_, buffer, sizeof buffer, 0)) > 0) {
  }
  return got == 0 || errno == ECONNRESET;
}

void RawConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += n;
  }
}

}  // namespace ddprun::rendezvous
