#ifndef DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_
#define DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {

// A blocking client that sends and receives arbitrary bytes. No call takes longer than a minute. Not thread-safe.
class RawClient {
 public:
  // Connects. `hello`: sends VALIDATE and PING with `pid`, and reads the answer. `source`: the source address, in
  // 127.0.0.0/8; null: chosen by the kernel.
  explicit RawClient(int port, bool hello = true, uint32_t pid = 1, const char* source = nullptr);

  bool connected() const { return fd_.valid(); }
  // Returns false if the server has closed the connection or a timeout expires.
  bool Send(absl::string_view bytes);
  // Receives exactly `size` bytes, or fewer if the server closes the connection or a timeout expires.
  std::string Receive(size_t size);
  // Sends, and receives everything up to the reply of a PING, which proves that there is no further reply.
  std::string Ask(absl::string_view bytes);
  // Waits for the server to close the connection. Returns false on a timeout, or if the server sends something.
  bool IsClosed();
  void Close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_STORE_RAW_STORE_CLIENT_H_
