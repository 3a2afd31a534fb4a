#include "base/unix_address.h"

#include <algorithm>
#include <cstddef>

namespace ddprun {

std::optional<UnixAddress> UnixAddress::Parse(absl::string_view text) {
  UnixAddress result;
  // Leave one byte for the null byte that ends a path.
  if (text.size() < 2 || text.size() >= sizeof result.address_.sun_path) return std::nullopt;
  if (text[0] != '/' && text[0] != '@') return std::nullopt;
  result.address_.sun_family = AF_UNIX;
  std::copy(text.begin(), text.end(), result.address_.sun_path);
  // An abstract name follows a null byte, and its length is given by the size.
  if (text[0] == '@') result.address_.sun_path[0] = '\0';
  result.size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return result;
}

}  // namespace ddprun
