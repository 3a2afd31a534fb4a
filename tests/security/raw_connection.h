#ifndef DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_
#define DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_

#include <string>

namespace ddprun::rendezvous {

// A TCP connection to a rendezvous server on this host, and HTTP/2 by hand: what no gRPC client would do. Blocking; of
// one thread.
class RawConnection {
 public:
  // Comes from `address`, one of the loopback's.
  explicit RawConnection(int port, const std::string& address = "127.0.0.1");
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // How a client begins to speak HTTP/2.
  static std::string Greeting();
  // Whether it arrives is seen by what comes back.
  void Send(const std::string& bytes);
  // Waits for the server's first bytes; false: it has closed the connection, or does not answer.
  bool IsAnswered();
  bool Greet() {
    Send(Greeting());
    return IsAnswered();
  }
  // Opens streams of Rendezvous.Session and says nothing on them. After Greet.
  void OpenStreams(int count);
  // Reads to the end; false: it does not come.
  bool AwaitClosed();

 private:
  int fd_;
  int next_stream_ = 1;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SECURITY_RAW_CONNECTION_H_
