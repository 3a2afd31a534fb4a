#include "base/grpc_cause.h"

#include <cstddef>

namespace ddprun {

absl::string_view GrpcCause(absl::string_view message) {
  for (const absl::string_view wrapper :
       {"Failed to connect to remote host: ", "recvmsg:", "sendmsg:", "last error: "}) {
    const size_t at = message.rfind(wrapper);
    if (at != absl::string_view::npos) message.remove_prefix(at + wrapper.size());
  }
  // "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed".
  for (const absl::string_view family : {"ipv4:", "ipv6:"}) {
    const size_t at = message.rfind(family);
    const size_t end = at == absl::string_view::npos ? at : message.find(": ", at);
    if (end != absl::string_view::npos) message.remove_prefix(end + 2);
  }
  return message;
}

}  // namespace ddprun
