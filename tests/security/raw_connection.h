#ifndef DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_
#define DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_

#include <string>

namespace ddprun::rendezvous {

// A TCP connection to a rendezvous server on this host that speaks HTTP/2 in ways that no gRPC client does. Blocking;
// thread-compatible.
class RawConnection {
 public:
  // Connects from `address`, one of the loopback addresses.
  explicit RawConnection(int port, const std::string& address = "127.0.0.1");
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // The first bytes of an HTTP/2 client.
  static std::string Greeting();
  // Errors are ignored: the tests look at the server's answer.
  void Send(const std::string& bytes);
  // Waits for the server's first bytes. Returns false if the server closes the connection or does not answer.
  bool IsAnswered();
  bool Greet() {
    Send(Greeting());
    return IsAnswered();
  }
  // Opens idle streams of Rendezvous.Session. REQUIRES: Greet was called.
  void OpenStreams(int count);
  // Reads until the connection ends. Returns false if it does not end.
  bool AwaitClosed();

 private:
  int fd_;
  int next_stream_ = 1;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_
