#include "rendezvous/wire/host_port.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::rendezvous {

absl::StatusOr<Endpoint> ParseHostPort(absl::string_view text) {
  const absl::Status malformed = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not ADDRESS:PORT (an IPv6 address goes in brackets, the port is 0 to 65535)"));
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return malformed;
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]") && host.size() > 2;
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find(':') != absl::string_view::npos) ||
      host.find_first_of("[]/ ") != absl::string_view::npos) {
    return malformed;
  }
  const absl::string_view digits = text.substr(colon + 1);
  int port = 0;
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(digits, &port) ||
      port > 65535) {
    return malformed;
  }
  return Endpoint{std::string(host), port};
}

absl::StatusOr<std::vector<Endpoint>> ParseHostPorts(absl::string_view text) {
  std::vector<Endpoint> endpoints;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::StatusOr<Endpoint> endpoint = ParseHostPort(part);
    if (!endpoint.ok()) return endpoint.status();
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

}  // namespace ddprun::rendezvous
