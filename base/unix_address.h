#ifndef DDPRUN_BASE_UNIX_ADDRESS_H_
#define DDPRUN_BASE_UNIX_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>

#include "absl/strings/string_view.h"

namespace ddprun {

// Where a Unix socket is: what bind, connect and sendto take.
class UnixAddress {
 public:
  // "/path", or "@name" for a socket in the abstract namespace, which has no file. Neither, or too long: nullopt.
  static std::optional<UnixAddress> Parse(absl::string_view text);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  UnixAddress() = default;

  sockaddr_un address_ = {};
  socklen_t size_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_UNIX_ADDRESS_H_
