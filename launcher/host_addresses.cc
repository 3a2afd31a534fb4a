#include "launcher/host_addresses.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/net.h"

namespace ddprun::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// Interval between lookups of the endpoint's name, if it may become resolvable late.
constexpr absl::Duration kNameInterval = absl::Seconds(1);

bool IsIn(const std::string& address, const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), address) != list.end();
}

// Listens at the local addresses that the endpoint's name resolves to. If other nodes can't use those, because they are
// loopback or the name resolves differently here, also at the address announced to other nodes; likewise if
// --local-addr is given. Listens at all addresses only if the endpoint is 0.0.0.0.
void FindServingAddresses(const LaunchConfig& config, HostAddresses* host) {
  const std::string& name = config.endpoint.host;
  const absl::StatusOr<std::vector<std::string>> resolved = ResolveHost(name);
  if (resolved.ok()) {
    for (const std::string& address : *resolved) {
      // The hosts file may list ::1 although the kernel has no IPv6. All of 127.0.0.0/8 is local without being
      // configured.
      if (IsLocalHost(address) && (address != "::1" || !InterfaceOf(address).empty())) {
        host->serving.push_back(address);
      }
    }
  }
  const bool others_can = !std::all_of(host->serving.begin(), host->serving.end(), IsLoopbackHost);
  if ((!others_can || config.options.local_addr) && !IsIn(host->address, host->serving)) {
    host->note = resolved.ok() ? absl::StrCat(name, " is ", absl::StrJoin(*resolved, ", "), " here")
                               : absl::StrCat(name, " has no address here");
    host->serving.push_back(host->address);
  }
}

absl::StatusOr<std::string> LocalAddress(const LaunchConfig& config) {
  if (config.options.local_addr) {
    absl::StatusOr<std::vector<std::string>> numeric = ResolveHost(*config.options.local_addr);
    if (numeric.ok()) return numeric->front();
    return absl::Status(numeric.status().code(), absl::StrCat("--local-addr: ", numeric.status().message()));
  }
  if (config.server_place == ServerPlace::kInProcess) return std::string(kLoopback);
  absl::StatusOr<std::string> address =
      LocalAddressTowards(config.endpoint.host, static_cast<uint16_t>(config.endpoint.port));
  for (const Endpoint& endpoint : config.more_endpoints) {
    if (!address.ok()) address = LocalAddressTowards(endpoint.host, static_cast<uint16_t>(endpoint.port));
  }
  if (address.ok()) return address;
  // The server's own host needs no route to the endpoint: its name may resolve only on other nodes.
  if (config.server_place == ServerPlace::kHere) {
    if (const std::string outward = OutwardAddress(); !outward.empty()) return outward;
  }
  return absl::Status(address.status().code(),
                      absl::StrCat("--rdzv-endpoint=", ServersText(config), ": ", address.status().message(),
                                   "; give a name or an address that ", Hostname(), " can reach"));
}

void ApplyMasterAddr(const std::string& name, HostAddresses* host) {
  const absl::StatusOr<std::vector<std::string>> resolved = ResolveHost(name);
  if (resolved.ok()) {
    for (const std::string& address : *resolved) {
      // Addresses without an interface are not connectable, such as 0.0.0.0, or ::1 without IPv6.
      if (InterfaceOf(address).empty() && address.rfind("127.", 0) != 0) continue;
      host->address = address;
      host->master = name;
      return;
    }
  }
  Log(LogLevel::kWarning,
      absl::StrCat("--master-addr=", name,
                   resolved.ok() ? " is not an address of this host" : ": the name has no address here",
                   ": MASTER_ADDR is ", host->master));
}

// Blocks for as long as the system's resolver allows.
absl::StatusOr<HostAddresses> LookUpHostAddresses(const LaunchConfig& config) {
  DDPRUN_ASSIGN_OR_RETURN(std::string address, LocalAddress(config));
  HostAddresses host;
  host.address = std::move(address);
  host.master = host.address;
  if (!config.store_host.empty()) ApplyMasterAddr(config.store_host, &host);
  host.may_host = config.server_place == ServerPlace::kHere ||
                  (config.server_place == ServerPlace::kHereIfLocal && IsLocalHost(config.endpoint.host));
  if (host.may_host) FindServingAddresses(config, &host);
  return host;
}

}  // namespace

absl::StatusOr<HostAddresses> FindHostAddresses(const LaunchConfig& config, EventLoop* loop,
                                                const std::function<bool()>& stopped) {
  const absl::Duration patience =
      config.cluster.endpoint_appears_late ? ToDuration(config.settings.join_timeout()) : absl::ZeroDuration();
  const SteadyTime give_up = SteadyNow() + patience;
  for (bool first = true;; first = false) {
    std::optional<absl::StatusOr<HostAddresses>> found;
    {
      // The thread may outlive the caller, so it owns a copy of the configuration.
      const BackgroundCall<absl::StatusOr<HostAddresses>> look_up(
          loop, [config] { return LookUpHostAddresses(config); },
          [&](absl::StatusOr<HostAddresses> result) {
            found = std::move(result);
            loop->Quit();
          });
      loop->Run();
    }
    if (stopped()) {
      return absl::CancelledError(absl::StrCat("stopped while looking up the address of ", config.endpoint.host));
    }
    if (found->ok()) return *std::move(found);
    if (!config.cluster.endpoint_appears_late) return absl::InvalidArgumentError(found->status().message());
    if (SteadyNow() >= give_up) return absl::UnavailableError(found->status().message());
    if (first) {
      Log(LogLevel::kWarning,
          absl::StrCat(found->status().message(), "; trying again for ", absl::FormatDuration(patience)));
    }
    const SteadyTime next = SteadyNow() + kNameInterval;
    const auto timer = loop->AddTimer([next] { return next; }, [loop](SteadyTime) { loop->Quit(); });
    loop->Run();
    if (stopped()) {
      return absl::CancelledError(
          absl::StrCat("stopped while waiting for ", config.endpoint.host, " to have an address"));
    }
  }
}

}  // namespace ddprun::launcher
