#ifndef DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_
#define DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// A blocking client that sends and receives any bytes. No call takes longer than a minute. Not thread-safe.
class RawClient {
 public:
  // Connects. `hello`: sends VALIDATE and PING with `pid`, and reads the answer. `source`: the address it comes from,
  // of 127.0.0.0/8; null: the kernel's choice.
  explicit RawClient(int port, bool hello = true, uint32_t pid = 1, const char* source = nullptr);

  bool connected() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  // False if the server has closed (or took nothing for too long).
  bool Send(absl::string_view bytes);
  // Exactly `size` bytes, or fewer if the server closes or says nothing for too long.
  std::string Receive(size_t size);
  // Sends, and receives everything up to the reply of a PING: proves that there is no further reply.
  std::string Ask(absl::string_view bytes);
  // Waits for the server to close. False if it does not, or sends something.
  bool IsClosed();
  void Close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_
