#include "launcher/rendezvous_link.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "base/loopback.h"
#include "launcher/os/net.h"
#include "rendezvous/client/grpc_client.h"
#include "rendezvous/client/local_client.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr absl::Duration kShortestTry = absl::Milliseconds(50);

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
  if ((!others_can || !config.local_addr.empty()) && !IsIn(host->address, host->serving)) {
    host->note = resolved.ok() ? absl::StrCat(name, " is ", absl::StrJoin(*resolved, ", "), " here")
                               : absl::StrCat(name, " has no address here");
    host->serving.push_back(host->address);
  }
}

absl::StatusOr<std::string> LocalAddress(const LaunchConfig& config) {
  if (!config.local_addr.empty()) {
    absl::StatusOr<std::vector<std::string>> numeric = ResolveHost(config.local_addr);
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

}  // namespace

absl::StatusOr<HostAddresses> LookUpHostAddresses(const LaunchConfig& config) {
  absl::StatusOr<std::string> address = LocalAddress(config);
  if (!address.ok()) return address.status();
  HostAddresses host;
  host.address = *std::move(address);
  host.master = host.address;
  if (!config.store_host.empty()) ApplyMasterAddr(config.store_host, &host);
  host.may_host = config.server_place == ServerPlace::kHere ||
                  (config.server_place == ServerPlace::kHereIfLocal && IsLocalHost(config.endpoint.host));
  if (host.may_host) FindServingAddresses(config, &host);
  return host;
}

std::string RendezvousLink::ServerName(const LaunchConfig& config) {
  return config.server_place == ServerPlace::kInProcess ? "this process" : ServersText(config);
}

RendezvousLink::RendezvousLink(const LaunchConfig* config, HostAddresses host, EventLoop* loop, Handler handler)
    : config_(config), host_(std::move(host)), loop_(loop), handler_(std::move(handler)) {}

// Destroy the client first: it calls the driver.
RendezvousLink::~RendezvousLink() {
  client_ = nullptr;
  server_ = nullptr;
}

absl::StatusOr<std::unique_ptr<RendezvousLink>> RendezvousLink::Open(const LaunchConfig* config, HostAddresses host,
                                                                     EventLoop* loop, Handler handler) {
  std::unique_ptr<RendezvousLink> link(new RendezvousLink(config, std::move(host), loop, std::move(handler)));
  if (link->host_.may_host) {
    if (absl::Status status = CheckHostedPort(*config); !status.ok()) return status;
  }
  if (config->server_place == ServerPlace::kInProcess || link->host_.may_host) {
    const absl::Status status = link->Host();
    const bool required = config->server_place != ServerPlace::kHereIfLocal;
    if (!status.ok() && (required || !absl::IsAlreadyExists(status))) {
      const char* const or_elsewhere = required ? "" : "; if rendezvousd runs here, set --rdzv-conf=is_host=0";
      return absl::Status(status.code(),
                          absl::StrCat("can't host the rendezvous server: ", status.message(), or_elsewhere));
    }
  }
  if (!link->hosting_) link->Connect();
  return link;
}

absl::Status RendezvousLink::Host() {
  auto driver = std::make_unique<rendezvous::Driver>(rendezvous::Driver::Host::kLauncher, rendezvous::SavedState(),
                                                     nullptr, &events_);
  if (config_->server_place != ServerPlace::kInProcess) {
    std::vector<std::string> ignored;  // already logged
    const absl::Status credentials =
        CheckCredentials(config_->credentials, rendezvous::CredentialSide::kBoth, &ignored);
    if (!credentials.ok()) return credentials;
    std::vector<std::string> addresses;
    for (const std::string& host : host_.serving) {
      addresses.push_back(Endpoint{host, config_->endpoint.port}.ToString());
    }
    absl::StatusOr<std::unique_ptr<rendezvous::Server>> server =
        rendezvous::Server::Start(driver.get(), addresses, {.credentials = config_->credentials});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    const bool loopback = std::all_of(host_.serving.begin(), host_.serving.end(), IsLoopbackHost);
    serving_ = absl::StrCat("this node serves at ", absl::StrJoin(server_->addresses(), ", "),
                            host_.note.empty() ? "" : absl::StrCat(" (", host_.note, ")"),
                            loopback ? ", which no other host can reach" : "");
    Log(LogLevel::kInfo, absl::StrCat("hosting the rendezvous server: ", serving_));
  }
  driver_ = std::move(driver);
  hosting_ = true;
  ++generation_;
  client_ = rendezvous::NewLocalClient(driver_.get(), ForwardToLoop(), OwnName(config_->credentials));
  return absl::OkStatus();
}

void RendezvousLink::Connect() {
  ++generation_;
  // Attempts shorter than a round trip can't succeed. The timeout grows with further attempts anyway.
  const absl::Duration patience = std::max(config_->settings.heartbeat_timeout / 12, kShortestTry);
  std::vector<Endpoint> servers = {config_->endpoint};
  servers.insert(servers.end(), config_->more_endpoints.begin(), config_->more_endpoints.end());
  client_ = rendezvous::NewGrpcClient(servers, ForwardToLoop(), patience, config_->credentials);
}

rendezvous::Client::Handler RendezvousLink::ForwardToLoop() {
  return [this, generation = generation_](rendezvous::ClientEvent event) {
    loop_->Post([this, generation, event = std::move(event)] {
      if (generation == generation_) Handle(event);
    });
  };
}

void RendezvousLink::Handle(const rendezvous::ClientEvent& event) {
  const auto* message = std::get_if<rendezvous::ServerMessage>(&event);
  if (message != nullptr && !hosting_ && host_.may_host) {
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(message)) {
      server_process_.OnServer(welcome->server_process);
    }
    if (const auto* assign = std::get_if<rendezvous::Assign>(message)) {
      server_process_.OnRound(assign->assignment.round);
    }
  }
  handler_(event);
}

void RendezvousLink::Send(rendezvous::LauncherMessage message) {
  if (auto* join = std::get_if<rendezvous::Join>(&message); join != nullptr && hosting_ && join->current) {
    join->server_node_ended = server_process_.HasEnded(join->current->round);
  }
  client_->Send(std::move(message));
}

void RendezvousLink::TakeOver() {
  if (hosting_ || !host_.may_host) return;
  const absl::Status status = Host();
  if (status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("took over the rendezvous server at ", config_->endpoint.ToString()));
  }
}

void RendezvousLink::Disconnect() {
  client_->Close();
  client_ = nullptr;
}

void RendezvousLink::LingerForOthers(SteadyTime deadline, SteadyTime leavers_deadline) {
  // Without a verdict the job continues, so there is nothing for the others to fetch.
  const std::optional<rendezvous::JobView> job = driver_->GetJob(config_->job_id);
  if (job && rendezvous::IsEnd(job->state)) driver_->WaitUntilLaunchersLeft(deadline);
  driver_->WaitUntilLeaversLeft(leavers_deadline);
}

void RendezvousLink::StopLingering() { driver_->StopWaiting(); }

void RendezvousLink::Close() {
  if (server_ != nullptr) server_->Shutdown();
}

}  // namespace ddprun::launcher
