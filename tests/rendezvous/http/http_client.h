#ifndef DDPRUN_TESTS_RENDEZVOUS_HTTP_HTTP_CLIENT_H_
#define DDPRUN_TESTS_RENDEZVOUS_HTTP_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace ddprun::testing {

// A blocking TCP connection to an HTTP server on this host, with a timeout of one minute.
class HttpClient {
 public:
  explicit HttpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const int small = 4096;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Close();
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& text) { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }

  // Returns the next response with a Content-Length: status line, headers, body. Shorter if the connection ends early.
  std::string Response(bool head = false) {
    if (!ReadUntil("\r\n\r\n")) return std::exchange(input_, "");
    const size_t header = input_.find("\r\n\r\n") + 4;
    const size_t name = input_.find("Content-Length: ");
    const size_t body = head || name > header ? 0 : strtoul(input_.c_str() + name + 16, nullptr, 10);
    while (input_.size() < header + body && ReadMore()) continue;
    const std::string response = input_.substr(0, header + body);
    input_.erase(0, response.size());
    return response;
  }
  std::string Ask(const std::string& request) {
    Send(request);
    return Response();
  }
  std::string Get(const std::string& target, const std::string& headers = "") {
    return Ask("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }

  // Returns false if the connection ends, or times out, first.
  bool ReadUntil(const std::string& text) {
    while (input_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  // Bytes that were read but not returned by Response.
  const std::string& input() const { return input_; }
  // Reads until the connection ends. Returns false on a timeout.
  bool AwaitClosed() {
    while (ReadMore()) continue;
    return ended_;
  }

 private:
  bool ReadMore() {
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
    ended_ = count == 0 || (count < 0 && errno == ECONNRESET);
    if (count <= 0) return false;
    input_.append(bytes, count);
    return true;
  }

  int fd_;
  std::string input_;
  bool ended_ = false;
};

// 200 for "HTTP/1.1 200 OK"; 0 without a response.
inline int StatusOf(const std::string& response) { return response.size() < 12 ? 0 : atoi(response.c_str() + 9); }

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_HTTP_HTTP_CLIENT_H_
