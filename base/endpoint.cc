#include "base/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxHostBytes = 253;  // limit of DNS names

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; }

bool LooksLikeIpv4(absl::string_view host) { return host.find_first_not_of("0123456789.") == absl::string_view::npos; }

// Returns what is wrong with a name or an IPv4 address, or "".
absl::string_view NameOrIpv4Error(absl::string_view host) {
  if (host.empty()) return "the host is missing";
  if (host.size() > kMaxHostBytes) return "the host name is too long";
  if (!std::all_of(host.begin(), host.end(), IsNameCharacter)) {
    return "a host name has only letters, digits, '.', '-' and '_'";
  }
  if (!absl::ascii_isalnum(host.front())) return "a host starts with a letter or a digit";
  in_addr ignored;
  if (LooksLikeIpv4(host) && inet_pton(AF_INET, std::string(host).c_str(), &ignored) != 1) {
    return "the host is not a whole IPv4 address";
  }
  return "";
}

}  // namespace

std::string Endpoint::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

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

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, std::optional<int> default_port) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(text), " is not ", default_port ? "HOST, HOST:PORT" : "HOST:PORT", " or [IPV6]:PORT: ", why));
  };
  absl::string_view host, port;
  if (absl::StartsWith(text, "[")) {
    const size_t close = text.find(']');
    if (close == absl::string_view::npos) return error("the ']' is missing");
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!IsIpv6Address(host)) return error("there is no IPv6 address in the brackets");
    if (!port.empty() && port.front() != ':') return error("only :PORT may follow the ']'");
  } else if (IsIpv6Address(text)) {
    if (!default_port) return error("an IPv6 address with a port needs brackets");
    host = text;
  } else {
    if (absl::StrContains(text, "://")) return error("leave out the scheme before the host");
    host = text.substr(0, text.find(':'));
    port = text.substr(host.size());
    if (const absl::string_view why = NameOrIpv4Error(host); !why.empty()) return error(why);
    if (absl::StrContains(port.substr(port.empty() ? 0 : 1), ':')) {
      return error("it has several colons but is not an IPv6 address");
    }
  }
  if (port.empty()) {
    if (!default_port) return error("the port is missing");
    return Endpoint{std::string(host), *default_port};
  }
  const absl::string_view digits = port.substr(1);
  int number = 0;
  // SimpleAtoi accepts blanks and signs.
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(digits, &number) ||
      number > 65535) {
    return error(absl::StrCat("the port ", Quoted(digits), " is not a whole number from 0 to 65535"));
  }
  return Endpoint{std::string(host), number};
}

absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(absl::string_view text, std::optional<int> default_port) {
  std::vector<Endpoint> endpoints;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  for (const absl::string_view part : parts) {
    DDPRUN_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(part, default_port));
    if (parts.size() > 1 && endpoint.port == 0) {
      return absl::InvalidArgumentError(absl::StrCat(Quoted(part), " has port 0: each of several servers has a port"));
    }
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

absl::StatusOr<std::string> ParseHost(absl::string_view text) {
  const auto error = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a host name or address: ", why));
  };
  absl::string_view host = text;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6Address(host)) return error("there is no IPv6 address in the brackets");
  }
  if (IsIpv6Address(host)) return std::string(host);
  if (absl::StrContains(host, "://")) return error("leave out the scheme before the host");
  if (absl::StrContains(host, ':')) return error("no port belongs here");
  if (const absl::string_view why = NameOrIpv4Error(host); !why.empty()) return error(why);
  return std::string(host);
}

}  // namespace ddprun
