#ifndef DDPRUN_BASE_ENDPOINT_H_
#define DDPRUN_BASE_ENDPOINT_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {

// Address on which a server listens. The host is a name or an address as given; it is not resolved.
struct Endpoint {
  std::string host;  // IPv6 addresses without brackets
  int port = 0;      // 0: any free port

  // "host:port", "[v6]:port".
  std::string ToString() const {
    const bool ipv6 = host.find(':') != std::string::npos;
    return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
  }
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_ENDPOINT_H_
