#include "launcher/rendezvous_link.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/core/endpoint.h"
#include "launcher/os/net.h"
#include "rendezvous/base/log.h"
#include "rendezvous/client/grpc_client.h"
#include "rendezvous/client/local_client.h"

namespace ddprun::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

// Where a server for `config` has to listen: the addresses of this host that the endpoint's name stands for, and
// the one that other nodes are told.
absl::StatusOr<std::vector<std::string>> ListenAddresses(const LaunchConfig& config, const std::string& local_address) {
  absl::StatusOr<std::vector<std::string>> hosts = ResolveHost(config.endpoint.host);
  if (!hosts.ok()) return hosts.status();
  std::vector<std::string> own;
  bool all_loopback = true;
  for (const InterfaceAddress& address : LocalAddresses()) {
    if (std::find(hosts->begin(), hosts->end(), address.address) == hosts->end()) continue;
    if (std::find(own.begin(), own.end(), address.address) == own.end()) own.push_back(address.address);
    all_loopback = all_loopback && address.loopback;
  }
  // 127.0.0.2 and its like are this host's without being any interface's.
  if (own.empty()) own = *hosts;
  if (all_loopback && std::find(own.begin(), own.end(), local_address) == own.end()) own.push_back(local_address);
  std::vector<std::string> result;
  for (const std::string& host : own) result.push_back(Endpoint{host, config.endpoint.port}.ToString());
  return result;
}

}  // namespace

absl::StatusOr<std::string> RendezvousLink::LocalAddress(const LaunchConfig& config) {
  if (!config.local_addr.empty()) {
    absl::StatusOr<std::vector<std::string>> numeric = ResolveHost(config.local_addr);
    if (numeric.ok()) return numeric->front();
    return absl::InvalidArgumentError(absl::StrCat("--local-addr: ", numeric.status().message()));
  }
  if (config.server_place == ServerPlace::kInProcess) return std::string(kLoopback);
  absl::StatusOr<std::string> address =
      LocalAddressTowards(config.endpoint.host, static_cast<uint16_t>(config.endpoint.port));
  if (address.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat("--rdzv-endpoint=", config.endpoint.ToString(), ": ",
                                                 address.status().message(),
                                                 "; give a name or an address that this node can reach"));
}

std::string RendezvousLink::ServerName(const LaunchConfig& config) {
  return config.server_place == ServerPlace::kInProcess ? "this process" : config.endpoint.ToString();
}

RendezvousLink::RendezvousLink(const LaunchConfig* config, std::string local_address, EventLoop* loop, Handler handler)
    : config_(config),
      local_address_(std::move(local_address)),
      loop_(loop),
      handler_(std::move(handler)),
      may_host_(config->server_place == ServerPlace::kHere ||
                (config->server_place == ServerPlace::kHereIfLocal && IsLocalHost(config->endpoint.host))) {}

// The client first: nothing may be called on a driver that is gone.
RendezvousLink::~RendezvousLink() {
  client_ = nullptr;
  server_ = nullptr;
}

absl::StatusOr<std::unique_ptr<RendezvousLink>> RendezvousLink::Open(const LaunchConfig* config,
                                                                     const std::string& local_address, EventLoop* loop,
                                                                     Handler handler) {
  std::unique_ptr<RendezvousLink> link(new RendezvousLink(config, local_address, loop, std::move(handler)));
  if (link->may_host_) {
    if (absl::Status status = CheckHostedPort(*config); !status.ok()) return status;
  }
  if (config->server_place == ServerPlace::kInProcess || link->may_host_) {
    const absl::Status status = link->Host();
    const bool required = config->server_place != ServerPlace::kHereIfLocal;
    if (!status.ok() && (required || !absl::IsAlreadyExists(status))) {
      return absl::Status(status.code(), absl::StrCat("can't host the rendezvous server: ", status.message()));
    }
  }
  if (!link->hosting_) link->Connect();
  return link;
}

absl::Status RendezvousLink::Host() {
  auto driver = std::make_unique<rendezvous::Driver>(rendezvous::Driver::Host::kLauncher);
  if (config_->server_place != ServerPlace::kInProcess) {
    absl::StatusOr<std::vector<std::string>> addresses = ListenAddresses(*config_, local_address_);
    if (!addresses.ok()) return addresses.status();
    absl::StatusOr<std::unique_ptr<rendezvous::Server>> server = rendezvous::Server::Start(driver.get(), *addresses);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    Log(LogLevel::kInfo, absl::StrCat("hosts the rendezvous server at ", absl::StrJoin(server_->addresses(), ", ")));
  }
  driver_ = std::move(driver);
  hosting_ = true;
  ++generation_;
  client_ = rendezvous::NewLocalClient(driver_.get(), ForwardToLoop());
  return absl::OkStatus();
}

void RendezvousLink::Connect() {
  ++generation_;
  client_ = rendezvous::NewGrpcClient({config_->endpoint.host, config_->endpoint.port}, ForwardToLoop());
}

rendezvous::Client::Handler RendezvousLink::ForwardToLoop() {
  return [this, generation = generation_](rendezvous::ClientEvent event) {
    loop_->Post([this, generation, event = std::move(event)] {
      if (generation == generation_) handler_(event);
    });
  };
}

void RendezvousLink::TakeOver() {
  if (hosting_ || !may_host_) return;
  const absl::Status status = Host();
  if (status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("took over the rendezvous server at ", config_->endpoint.ToString()));
  }
}

void RendezvousLink::Close(SteadyTime deadline) {
  client_->Close();
  client_ = nullptr;
  if (server_ == nullptr) return;
  driver_->WaitUntilEveryoneLeft(deadline);
  server_->Shutdown();
}

}  // namespace ddprun::launcher
