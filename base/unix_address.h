#ifndef DDPRUN_BASE_UNIX_ADDRESS_H_
#define DDPRUN_BASE_UNIX_ADDRESS_H_

#include <sys/socket.h>
#include <sys/un.h>

#include <optional>

#include "absl/strings/string_view.h"

namespace ddprun {

// Address of a Unix socket for bind, connect and sendto.
class UnixAddress {
 public:
  // Parses "/path", or "@name" for a socket in the abstract namespace, which has no file. nullopt: neither, or too
  // long.
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
