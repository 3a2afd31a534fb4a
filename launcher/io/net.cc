#include "launcher/io/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// Used only to look up a route: no packet is sent to them. The first are root name servers.
constexpr const char* kFarAddresses[] = {"198.41.0.4", "2001:503:ba3e::2:30"};

std::string WithoutBrackets(const std::string& host) {
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

// `flags`: AI_NUMERICHOST to accept addresses only. `error` receives getaddrinfo's result.
AddressList Lookup(const std::string& host, uint16_t port, int flags, int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  *error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  return AddressList(*error == 0 ? found : nullptr, [](addrinfo* list) {
    if (list != nullptr) freeaddrinfo(list);
  });
}

AddressList LookupAny(const std::string& host, uint16_t port, int* error) {
  AddressList numeric = Lookup(host, port, AI_NUMERICHOST, error);
  return *error == 0 ? std::move(numeric) : Lookup(host, port, 0, error);
}

absl::Status NoAddress(const std::string& host, int error) {
  const char* reason = error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
  return absl::NotFoundError(absl::StrCat("can't resolve host '", host, "': ", reason));
}

// Text without a zone: "fe80::1".
std::string Numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  }
  return text;
}

// Text with a zone if the address needs one on this host: "fe80::1%eth0".
std::string NumericWithZone(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return Numeric(address);
  return text;
}

bool IsLoopback(const sockaddr* address) { return IsLoopbackHost(Numeric(address)); }

bool IsLinkLocal(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16) == 0xA9FE;
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool IsUnspecified(const sockaddr* address) {
  const std::string text = Numeric(address);
  return text == "0.0.0.0" || text == "::";
}

// Source address of this host's route to `address`; empty if there is no route.
std::string RouteSource(const addrinfo& address, bool* loopback) {
  const UniqueFd fd(socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t size = sizeof(source);
  auto* generic = reinterpret_cast<sockaddr*>(&source);
  if (!fd.valid() || connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      getsockname(fd.get(), generic, &size) != 0) {
    return "";
  }
  *loopback = IsLoopback(generic);
  return NumericWithZone(generic, size);
}

bool IsOwnName(const std::string& host) {
  const std::string own = Hostname();
  return absl::EqualsIgnoreCase(host, own) || absl::EqualsIgnoreCase(host, own.substr(0, own.find('.')));
}

}  // namespace

std::vector<InterfaceAddress> LocalAddresses() {
  std::vector<InterfaceAddress> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    result.push_back({entry->ifa_name, Numeric(entry->ifa_addr), family == AF_INET6, IsLoopback(entry->ifa_addr),
                      IsLinkLocal(entry->ifa_addr)});
  }
  freeifaddrs(list);
  return result;
}

std::string OutwardAddress() {
  for (const char* far : kFarAddresses) {
    int error;
    const AddressList list = Lookup(far, 53, AI_NUMERICHOST, &error);
    bool loopback = false;
    const std::string source = list != nullptr ? RouteSource(*list, &loopback) : "";
    if (!source.empty() && !loopback) return source;
  }
  for (const InterfaceAddress& address : LocalAddresses()) {
    if (!address.loopback && !address.link_local) return address.address;
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host) {
  int error;
  const AddressList list = LookupAny(WithoutBrackets(host), 0, &error);
  if (list == nullptr) return NoAddress(host, error);
  std::vector<std::string> result;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    std::string address = NumericWithZone(entry->ai_addr, entry->ai_addrlen);
    if (std::find(result.begin(), result.end(), address) == result.end()) result.push_back(std::move(address));
  }
  return result;
}

bool IsLocalHost(const std::string& bracketed) {
  const std::string host = WithoutBrackets(bracketed);
  if (host.empty()) return false;
  if (IsLocalhostName(host) || IsOwnName(host)) return true;
  int error;
  const AddressList list = LookupAny(host, 0, &error);
  const std::vector<InterfaceAddress> own = LocalAddresses();
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (IsLoopback(entry->ai_addr) || IsUnspecified(entry->ai_addr)) return true;
    const std::string address = Numeric(entry->ai_addr);
    if (std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& a) { return a.address == address; })) {
      return true;
    }
  }
  return false;
}

std::string InterfaceOf(const std::string& address) {
  const std::string without_zone = address.substr(0, address.find('%'));
  for (const InterfaceAddress& own : LocalAddresses()) {
    if (own.address == without_zone) return own.interface;
  }
  return "";
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& bracketed, uint16_t port) {
  const std::string host = WithoutBrackets(bracketed);
  // Works without an entry in the hosts file, and prefers IPv4.
  if (IsLocalhostName(host)) return "127.0.0.1";
  int error;
  AddressList list = Lookup(host, port, AI_NUMERICHOST, &error);
  const bool named = error != 0;
  if (named) list = Lookup(host, port, 0, &error);
  std::string own_loopback;
  bool own_any = named && list == nullptr && IsOwnName(host);
  if (list == nullptr && !own_any) return NoAddress(bracketed, error);
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (IsUnspecified(entry->ai_addr)) {
      own_any = true;
      continue;
    }
    bool loopback = false;
    const std::string source = RouteSource(*entry, &loopback);
    if (!source.empty() && (!loopback || !named)) return source;
    if (!source.empty() && own_loopback.empty()) own_loopback = source;
  }
  if (own_any && own_loopback.empty()) own_loopback = "127.0.0.1";
  if (own_loopback.empty()) {
    return absl::UnavailableError(absl::StrCat("no route from this host to '", bracketed, "'"));
  }
  const std::string outward = OutwardAddress();
  return outward.empty() ? own_loopback : outward;
}

}  // namespace ddprun::launcher
