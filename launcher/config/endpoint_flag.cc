#include "launcher/config/endpoint_flag.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxHostBytes = 253;  // limit of DNS names

absl::Status NotAnEndpoint(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not HOST, HOST:PORT or [IPV6]:PORT: ", why));
}

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; }

bool LooksLikeIpv4(absl::string_view host) { return host.find_first_not_of("0123456789.") == absl::string_view::npos; }

// Checks a name or an IPv4 address; `whole` is the user's text, for the message.
absl::Status CheckNameOrIpv4(absl::string_view host, absl::string_view whole) {
  if (host.empty()) return NotAnEndpoint(whole, "the host is missing");
  if (host.size() > kMaxHostBytes) return NotAnEndpoint(whole, "the host name is too long");
  if (absl::StrContains(whole, "://")) return NotAnEndpoint(whole, "leave out the scheme before the host");
  if (!std::all_of(host.begin(), host.end(), IsNameCharacter)) {
    return NotAnEndpoint(whole, "a host name has only letters, digits, '.', '-' and '_'");
  }
  if (!absl::ascii_isalnum(host.front())) return NotAnEndpoint(whole, "a host starts with a letter or a digit");
  in_addr ignored;
  if (LooksLikeIpv4(host) && inet_pton(AF_INET, std::string(host).c_str(), &ignored) != 1) {
    return NotAnEndpoint(whole, "the host is not a whole IPv4 address");
  }
  return absl::OkStatus();
}

absl::StatusOr<Endpoint> WithPort(absl::string_view host, absl::string_view port, absl::string_view whole) {
  absl::StatusOr<int64_t> number = ParseInteger(port, 0, 65535);
  if (!number.ok()) return NotAnEndpoint(whole, absl::StrCat("the port ", number.status().message()));
  return Endpoint{std::string(host), static_cast<int>(*number)};
}

}  // namespace

bool IsIpv6Address(absl::string_view host) {
  const size_t zone = host.find('%');
  if (zone != absl::string_view::npos) {
    const absl::string_view name = host.substr(zone + 1);
    if (name.empty() || !std::all_of(name.begin(), name.end(), IsNameCharacter)) return false;
    host = host.substr(0, zone);
  }
  in6_addr ignored;
  return inet_pton(AF_INET6, std::string(host).c_str(), &ignored) == 1;
}

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port) {
  if (absl::StartsWith(text, "[")) {
    const size_t close = text.find(']');
    if (close == absl::string_view::npos) return NotAnEndpoint(text, "the ']' is missing");
    const absl::string_view host = text.substr(1, close - 1);
    const absl::string_view rest = text.substr(close + 1);
    if (!IsIpv6Address(host)) return NotAnEndpoint(text, "there is no IPv6 address in the brackets");
    if (rest.empty()) return Endpoint{std::string(host), default_port};
    if (rest.front() != ':') return NotAnEndpoint(text, "only :PORT may follow the ']'");
    return WithPort(host, rest.substr(1), text);
  }
  if (IsIpv6Address(text)) return Endpoint{std::string(text), default_port};

  const size_t colon = text.find(':');
  const absl::string_view host = text.substr(0, colon);
  if (absl::Status status = CheckNameOrIpv4(host, text); !status.ok()) return status;
  if (colon == absl::string_view::npos) return Endpoint{std::string(host), default_port};
  if (absl::StrContains(text.substr(colon + 1), ':')) {
    return NotAnEndpoint(text, "it has several colons but is not an IPv6 address");
  }
  return WithPort(host, text.substr(colon + 1), text);
}

absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(absl::string_view text, int default_port) {
  std::vector<Endpoint> endpoints;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  for (const absl::string_view part : parts) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(part, default_port);
    if (!endpoint.ok()) return endpoint.status();
    if (parts.size() > 1 && endpoint->port == 0) return NotAnEndpoint(part, "one of several servers has a port");
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

absl::StatusOr<std::string> ParseHost(absl::string_view text) {
  absl::string_view host = text;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6Address(host)) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " has no IPv6 address in its brackets"));
    }
  }
  if (IsIpv6Address(host)) return std::string(host);
  if (absl::StrContains(host, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), " is not a host name or address: no port belongs here"));
  }
  if (absl::Status status = CheckNameOrIpv4(host, text); !status.ok()) return status;
  return std::string(host);
}

}  // namespace ddprun::launcher
